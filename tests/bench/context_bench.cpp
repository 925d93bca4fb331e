// Time to first token of a prompt vs a saved context:
//
//   tools/lab/random_checkpoint.py configs/tinyllama-1.1b.json MODEL
//   ninja -C build context_bench && build/context_bench MODEL 8192 FILE
//
// CPU seconds vary less on a busy machine. Cold: the file's pages are evicted from the page cache.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "engine/contexts/saved_context.h"
#include "engine/stopwatch.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/error.h"
#include "models/load/config.h"

namespace {

using namespace lariat;

void drop_from_cache(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

struct Elapsed {
  Stopwatch::time_point start = Stopwatch::now();
  std::clock_t cpu = std::clock();

  std::string text() const {
    const double cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    return fmt::format("{:.3f} s ({:.3f} s of processors)", seconds_since(start), cpu_seconds);
  }
};

std::vector<float> forward(Session& session, Sequence& sequence, std::span<const int32_t> tokens) {
  return to_host(session.backend(), forward(session, {&sequence, tokens}));
}

// The logits depend on the whole context.
void load(Session& session, const std::filesystem::path& file, const std::string& how,
          std::span<const float> expected) {
  const Elapsed elapsed;
  SavedContext context = load_context(session, file);
  const std::string loaded = elapsed.text();
  const auto logits = forward(session, context.sequence, std::vector{1});
  const std::string first = elapsed.text();
  const bool same = std::equal(logits.begin(), logits.end(), expected.begin(), expected.end());
  fmt::print("load, {}: {}, first token after {}; {} logits\n", how, loaded, first,
             same ? "the same" : "OTHER");
}

void run(const std::filesystem::path& dir, int64_t n, const std::filesystem::path& file) {
  CpuBackend backend;
  const Model model = load_model(dir, load_config(dir), backend, std::nullopt, [](size_t, size_t) {});
  SessionOptions options;
  options.v_dtype = model.weights.embed.m.dtype;  // as lariat
  Session session(model, backend, options);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % model.spec.vocab_size));
  Sequence sequence = session.new_sequence();
  const Elapsed reading;
  forward(session, sequence, tokens);
  fmt::print("{}; {} tokens\nread: first token after {}\n", backend.description(), n, reading.text());
  const Elapsed saving;
  save_context(session, sequence, tokens, file);
  fmt::print("save: {}, {} MiB\n", saving.text(), std::filesystem::file_size(file) >> 20);
  const auto row = forward(session, sequence, std::vector{1});
  const std::vector<float> expected(row.begin(), row.end());
  for (int i = 0; i < 3; ++i) {
    drop_from_cache(file);
    load(session, file, "cold", expected);
    load(session, file, "warm", expected);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("context_bench MODEL_DIR TOKENS FILE\n", stderr);
    return 2;
  }
  try {
    run(argv[1], std::atoll(argv[2]), argv[3]);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
