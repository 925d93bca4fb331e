#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/contexts/memory_check.h"
#include "engine/contexts/saved_context.h"
#include "engine/lariat.h"
#include "tests/engine/engine_test_util.h"
#include "tests/ranks/ranks.h"
#include "tests/skip.h"
#include "tests/test_util.h"

// A model divided among all ranks gives the logits of one process, within the order of f32 sums. The other
// ranks follow rank 0.
namespace lariat::test {
namespace {

OpenOptions f32_options() {
  OpenOptions options;
  options.reads = Reads::kTokens;
  options.threads = 1;
  options.dtype = DType::kF32;
  options.kv_dtype = {DType::kF32, DType::kF32};
  return options;
}

// Calls use(one process's engine, divided engine) on rank 0. Returns false if the model cannot be divided.
template <class Use>
bool compare(const std::filesystem::path& path, OpenOptions options, const Use& use) {
  options.ranks = &ranks();
  Engine divided;
  try {
    divided = Engine::open(path, options);
  } catch (const Error&) {
    return false;
  }
  if (ranks().rank() > 0) {
    follow(ranks(), divided.model, *divided.backend);
    return true;
  }
  options.ranks = nullptr;
  use(Engine::open(path, options), divided);
  return true;
}

std::vector<int32_t> tokens_of(const Engine& engine, int64_t n) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    tokens.push_back(
        static_cast<int32_t>((i * i * 7 + i * 3 + 1) % std::min<int64_t>(engine.model.spec.vocab_size, 90)));
  return tokens;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
    largest = std::max(largest, std::abs(double{a[i]}));
  }
  return most / largest;
}

// Logits of the last tokens of: a prefill in two pieces, decode steps, a fork that goes another way, a batch
// of both.
std::vector<float> all_logits(const Engine& engine, int64_t n) {
  Session session = engine.session();
  const std::vector<int32_t> tokens = tokens_of(engine, n);
  std::vector<float> all;
  const auto add = [&](const Matrix& logits) {
    const std::vector<float> host = to_host(session.backend(), logits);
    all.insert(all.end(), host.begin(), host.end());
  };
  Sequence sequence = session.new_sequence();
  const std::span all_tokens(tokens);
  add(forward(session, {&sequence, all_tokens.first(tokens.size() / 2)}));
  add(forward(session, {&sequence, all_tokens.subspan(tokens.size() / 2)}));
  Sequence other = session.fork(sequence, n / 2 + 1);
  for (const int32_t token : {3, 5}) add(forward(session, {&sequence, {&token, 1}}));
  const int32_t seven = 7;
  add(forward(session, {&other, {&seven, 1}}));
  const Prompt both[] = {{&sequence, {&seven, 1}}, {&other, {&seven, 1}}};
  add(session.forward(both));
  return all;
}

// With heads or pages of the cache divided.
void expect_equal(const std::filesystem::path& path, OpenOptions options, int64_t n, double tolerance,
                  int& compared) {
  for (const char* split : {"heads", "sequence"}) {
    options.split = split;
    compared += compare(path, options, [&](const Engine& one, const Engine& divided) {
      EXPECT_LT(difference(all_logits(one, n), all_logits(divided, n)), tolerance)
          << path << " " << options.position_method << " " << split;
    });
  }
}

// Two pages, then a third.
TEST(Divided, EveryGoldenCheckpoint) {
  int compared = 0;
  for (const char* name : GoldenList::names())
    expect_equal(checkpoint_dir(name), f32_options(), 511, kSumOrderTolerance, compared);
  EXPECT_GE(compared, 80);
}

// As floats, whose columns are divided within groups too, and as stored, with activations of 16 and 8 bits.
TEST(Divided, QuantizedFoldersAndGguf) {
  int compared = 0;
  for (const std::string folder : {"forms", "gguf"}) {
    // Inputs of bf16 weights, and activations of 8 bits, may round to the next value.
    const double rounded = 2e-2, of_16_bits = folder == "forms" ? 2e-3 : rounded;
    for (const auto& entry : std::filesystem::directory_iterator(golden_dir() / folder)) {
      const bool is_model =
          std::filesystem::exists(entry.path() / "config.json") ||
          (entry.path().extension() == ".gguf" && !entry.path().stem().string().ends_with("-mini"));
      if (!is_model) continue;
      OpenOptions options = f32_options();
      expect_equal(entry.path(), options, 300, kSumOrderTolerance, compared);
      options.dtype.reset();
      options.activations = 16;
      expect_equal(entry.path(), options, 300, of_16_bits, compared);
      options.activations = 8;
      expect_equal(entry.path(), options, 300, rounded, compared);
    }
  }
  EXPECT_GE(compared, ranks().size() == 2 ? 150 : 60);
}

// The scale moves several times, with and without position methods; sinks drop pages.
TEST(Divided, CachesThatChange) {
  int compared = 0;
  const auto llama = checkpoint_dir("llama_gqa");
  OpenOptions options = f32_options();
  options.rope.scaling = "dynamic-yarn";
  options.rope.original_ctx = 64;
  expect_equal(llama, options, 700, kSumOrderTolerance, compared);
  options.rope_steps = 0;
  expect_equal(llama, options, 300, kSumOrderTolerance, compared);
  options = f32_options();
  for (const char* method :
       {"dca/chunk=48/window=16", "self-extend/window=32/group=auto", "rerope/window=32/k=auto",
        "jet-long-freq/window=16/far=yarn", "sinks/sinks=4/window=64"}) {
    options.position_method = method;
    options.rope.original_ctx = 64;
    expect_equal(llama, options, 900, kSumOrderTolerance, compared);
  }
  EXPECT_EQ(compared, 14);
}

TEST(Divided, WeightsQuantizedAtLoad) {
  int compared = 0;
  for (const DType dtype : {DType::kQ8, DType::kQ4}) {
    OpenOptions options = f32_options();
    options.dtype.reset();
    options.quantize = WeightFormat(dtype);
    expect_equal(demo_dir(), options, 100, 2e-2, compared);
    options.activations = 16;
    expect_equal(demo_dir(), options, 100, 1e-3, compared);
  }
  EXPECT_EQ(compared, 8);
}

TEST(Divided, RepeatedRunsAreBitwiseEqual) {
  OpenOptions options = f32_options();
  for (const char* split : {"heads", "sequence"}) {
    options.split = split;
    compare(checkpoint_dir("llama_gqa"), options, [](const Engine&, const Engine& divided) {
      EXPECT_EQ(all_logits(divided, 600), all_logits(divided, 600));
    });
  }
}

// A context of three pages moves between one process and pages on all ranks, its keys to another scale.
TEST(Divided, SavedContexts) {
  OpenOptions options = f32_options();
  options.split = "sequence";
  options.rope.scaling = "dynamic-yarn";
  options.rope.original_ctx = 64;
  const TempFolder folder;
  compare(checkpoint_dir("llama_gqa"), options, [&](const Engine& one, const Engine& divided) {
    const std::vector<int32_t> tokens = tokens_of(one, 700), more = tokens_of(one, 900);
    const auto save = [&](const Engine& engine, const char* name) {
      Session session = engine.session();
      Sequence sequence = session.new_sequence();
      forward(session, {&sequence, tokens});
      save_context(session, sequence, tokens, folder.path / name);
    };
    const auto continued = [&](const Engine& engine, const char* name) {
      Session session = engine.session();
      SavedContext saved = load_context(session, folder.path / name);
      return to_host(session.backend(), forward(session, {&saved.sequence, more}));
    };
    save(one, "one");
    save(divided, "divided");
    const std::vector<float> expected = continued(one, "one");
    for (const char* name : {"one", "divided"})
      EXPECT_LT(difference(expected, continued(divided, name)), kSumOrderTolerance) << name;
    EXPECT_LT(difference(expected, continued(one, "divided")), kSumOrderTolerance);
  });
}

TEST(Divided, ALongerCacheFits) {
  if (ranks().size() == 1) LARIAT_SKIP("for several ranks");
  OpenOptions options = f32_options();
  options.split = "sequence";
  compare(checkpoint_dir("llama_gqa"), options, [](const Engine& one, const Engine& divided) {
    Session whole = one.session(), part = divided.session();
    int64_t length = 1000;
    while (fits_memory(whole, length, 1)) length += length / 10;
    EXPECT_TRUE(fits_memory(part, length, 1));
    EXPECT_FALSE(fits_memory(part, 2 * length * ranks().size(), 1));
  });
}

struct CountingRanks : Communicator {
  CountingRanks() : Communicator(ranks().rank(), ranks().size()) {}
  void all_reduce(std::span<float> values) override { ++sums, ranks().all_reduce(values); }
  void all_gather(const void* mine, std::span<const size_t> parts, void* all) override {
    ++gathers, ranks().all_gather(mine, parts, all);
  }
  void gather(const void* mine, std::span<const size_t> parts, void* all) override {
    ranks().gather(mine, parts, all);
  }
  void broadcast(void* data, size_t bytes) override { ranks().broadcast(data, bytes); }
  void barrier() override { ranks().barrier(); }
  [[noreturn]] void abort(int exit_code) override {
    ranks().abort(exit_code);
    std::abort();
  }
  int sums = 0, gathers = 0;
};

TEST(Divided, MessagesOfADecodedToken) {
  if (ranks().size() == 1) LARIAT_SKIP("for several ranks");
  for (const bool by_sequence : {false, true}) {
    CountingRanks counting;
    OpenOptions options = f32_options();
    options.split = by_sequence ? "sequence" : "heads";
    options.ranks = &counting;
    const Engine divided = Engine::open(checkpoint_dir("llama_gqa"), options);
    if (ranks().rank() > 0) {
      follow(counting, divided.model, *divided.backend);
      continue;
    }
    Session session = divided.session();
    Sequence sequence = session.new_sequence();
    counting.sums = counting.gathers = 0;
    const int32_t token = 1;
    forward(session, {&sequence, {&token, 1}});
    const int layers = static_cast<int>(divided.model.spec.layers.size());
    EXPECT_EQ(counting.sums, (by_sequence ? 3 : 2) * layers);
    EXPECT_EQ(counting.gathers, (by_sequence ? 4 : 0) * layers);
  }
}

// Fewer columns than a group of quantized values, and more ranks than heads.
TEST(Divided, TooManyRanksAreRefused) {
  if (ranks().size() != 3) LARIAT_SKIP("for 3 ranks");
  EXPECT_FALSE(compare(checkpoint_dir("olmo2"), f32_options(), [](const Engine&, const Engine&) {}));
}

}  // namespace
}  // namespace lariat::test
