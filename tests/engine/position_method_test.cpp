// Position methods vs RelativeOracle with the full matrix of distances.
#include "models/spec/position_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "engine/contexts/saved_context.h"
#include "models/positions/parse_position_method.h"
#include "models/spec/rope_config.h"
#include "tests/engine/position_cases.h"

namespace lariat::test {
namespace {

void expect_refused(const auto& action, const std::string& words) {
  EXPECT_TRUE(names(error_of(action), "`position_method` | " + words));
}

constexpr size_t kTokens = 300;  // more than a page

class Methods : public OnLlama, public testing::WithParamInterface<MethodCase> {
 protected:
  Methods() {
    RopeOptions rope{.scaling = GetParam().scaling};
    if (GetParam().scaling != "none") rope.factor = 4.0;
    options_.rope = resolve_rope(model_.spec.rope(), rope);
    options_.positions = parse_position_method(GetParam().method, 64, 0);
    tokens_ = some_tokens(kTokens, model_.spec.vocab_size);
    const auto& [method, distance, scaling, temperature, far] = GetParam();
    const RopeFrequencies near = rope_frequencies(*options_.rope, kTokens);
    expected_ =
        RelativeOracle(model_dir_, model_.spec)
            .logits(tokens_, distance, near, temperature, far ? far->angle(*options_.rope, near) : Angle());
    for (const float logit : expected_) largest_ = std::max(largest_, std::abs(static_cast<double>(logit)));
  }
  // Largest difference relative to the largest logit.
  double difference(int threads, int64_t chunk, size_t prefilled) {
    CpuBackend backend(threads);
    const Model model = open_f32(model_dir_, backend);
    options_.prefill_chunk = chunk;
    Session session(model, backend, options_);
    return max_abs_difference(all_logits(session, tokens_, prefilled), expected_) / largest_;
  }

  SessionOptions options_ = f32_session();
  std::vector<int32_t> tokens_;
  std::vector<float> expected_;
  double largest_ = 0;
};

TEST_P(Methods, EqualsItsDistanceMatrix) {
  for (const int64_t chunk : {0, 1, 7, 64}) {
    const double off = difference(chunk == 7 ? 2 : 1, chunk, kTokens);
    EXPECT_LE(off, 2e-5) << "chunks of " << chunk;
    RecordProperty("chunks_of_" + std::to_string(chunk), fmt::format("{:.1e}", off));
  }
  for (const size_t prefilled : {size_t{1}, size_t{30}}) {
    const double off = difference(1, 0, prefilled);
    EXPECT_LE(off, 2e-5) << "decoded after " << prefilled;
    RecordProperty("decoded_behind_" + std::to_string(prefilled), fmt::format("{:.1e}", off));
  }
}

// Measured: at most 2.2e-3 in f16, 1.3e-2 in bf16.
TEST_P(Methods, EqualsItIn16BitCaches) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    options_.k_dtype = options_.v_dtype = dtype;
    const double bound = dtype == DType::kF16 ? 3e-3 : 2e-2;
    for (const size_t prefilled : {size_t{1}, kTokens}) {
      const double off = difference(1, 64, prefilled);
      EXPECT_LE(off, bound) << name_of(dtype) << " after " << prefilled;
      RecordProperty(fmt::format("{}_behind_{}", name_of(dtype), prefilled), fmt::format("{:.1e}", off));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Methods, testing::ValuesIn(method_cases()), [](const auto& test) {
  return test_name(test.param.method + "_" + test.param.scaling);
});

using PositionMethods = OnLlama;

// Logits are bitwise identical to the model without the method.
TEST_F(PositionMethods, LeaveShortTextsUnchanged) {
  const auto tokens = some_tokens(40, model_.spec.vocab_size);
  Session plain(model_, backend_, f32_session());
  const auto expected = all_logits(plain, tokens, 20);
  for (const char* method :
       {"none", "dca/chunk=40/window=9", "string/shift=40/window=8", "sinks/sinks=2/window=40",
        "self-extend/group=3/window=40", "rerope/window=40", "lm-infinite/sinks=3/window=40",
        "jet-long/window=39/group=3", "jet-long/window=5", "jet-long-freq/window=39/far=ntk/factor=3",
        "jet-long-freq/window=5", "jet-long-freq/window=39/far=bands/factors=1,9"}) {
    SessionOptions options = f32_session();
    options.positions = parse_position_method(method, 64, 0);
    Session session(model_, backend_, options);
    EXPECT_EQ(all_logits(session, tokens, 20), expected) << method;
  }
}

// A scale change re-rotates keys by their position in a chunk or group; growing groups move keys as well.
TEST_F(PositionMethods, KeysFollowAChangingScale) {
  const auto tokens = some_tokens(kTokens, model_.spec.vocab_size);
  SessionOptions options = f32_session();
  for (const auto& [method, scaling] :
       {std::pair("dca/chunk=24/window=10", "dynamic-yarn"),
        std::pair("string/shift=40/window=8", "dynamic-yarn"),
        std::pair("self-extend/group=3/window=20", "dynamic-yarn"),
        std::pair("rerope/window=20/k=3", "dynamic-yarn"),
        std::pair("self-extend/group=auto/window=20", "dynamic-yarn"),
        std::pair("self-extend/group=auto/window=20", "none"), std::pair("rerope/window=20/k=auto", "none"),
        std::pair("jet-long/window=20", "none"), std::pair("jet-long/window=20", "dynamic-yarn"),
        std::pair("jet-long-freq/window=20", "none"), std::pair("jet-long-freq/window=20", "dynamic-yarn"),
        std::pair("jet-long-freq/window=20/far=linear/factor=3", "dynamic-yarn"),
        std::pair("jet-long-freq/window=20/far=bands/factors=1,4", "dynamic-yarn")}) {
    options.rope = resolve_rope(model_.spec.rope(), {.scaling = scaling});
    options.positions = parse_position_method(method, 64, 0);
    Session session(model_, backend_, options);
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, std::span(tokens).first(40));
    // Layer 0's keys depend on no other token.
    for (size_t i = 40; i + 1 < tokens.size(); ++i) decode(session, sequence, tokens[i]);
    Sequence anew = session.new_sequence();
    anew.expect(std::ssize(tokens));
    prefill(session, anew, std::span(tokens).first(kTokens - 1));
    std::vector<KvLayer> layers{session.pool().geometry().layers[0]};
    if (layers[0].second_k_offset > 0) layers.push_back(layers[0].with_second_keys());
    EXPECT_EQ(layers.size(), second_keys_of(options.positions.ranges) > 0 ? 2U : 1U) << method;
    for (const KvLayer& layer : layers) {
      for (int64_t j = 0; j + 1 < std::ssize(tokens); ++j) {
        const auto key = [&](const Sequence& of) {
          const auto* keys = static_cast<const float*>(layer.keys(of.cache().pages()[j / kKvPage]));
          return std::span(keys + kv_index(0, j, 0, layer.head_dim), static_cast<size_t>(layer.head_dim));
        };
        ASSERT_LE(max_abs_difference(key(sequence), key(anew)), 1e-5) << method << " " << j;
      }
    }
    EXPECT_GT(sequence.cache().rerotations().count, 3);
  }
}

// The scale step of the length, 64 * 2^(9 / 4), brings the farthest key to the trained length, 64. All chunks
// use one step, because the final length is known.
TEST_F(PositionMethods, AutoFollowsTheLength) {
  const auto tokens = some_tokens(kTokens, model_.spec.vocab_size);
  const double length = 64 * std::exp2(9.0 / 4);
  SessionOptions options = f32_session();
  options.rope = resolve_rope(model_.spec.rope(), {.scaling = "none", .original_ctx = 64});
  options.prefill_chunk = 64;
  const auto check = [&](const char* method, size_t n, const Distance& distance,
                         const std::optional<Far>& far = {}) {
    options.positions = parse_position_method(method, 64, 0);
    EXPECT_EQ(options.positions.name, method);
    const std::span text = std::span(tokens).first(n);
    const RopeFrequencies near = rope_frequencies(*options.rope, 1);
    const auto expected =
        far ? RelativeOracle(model_dir_, model_.spec)
                  .logits(text, distance, near, far->temperature(), far->angle(*options.rope, near))
            : RelativeOracle(model_dir_, model_.spec).logits(text, distance, near);
    Session session(model_, backend_, options);
    Sequence sequence = session.new_sequence();
    sequence.expect(std::ssize(text));
    prefill(session, sequence, text.first(n - 9));
    Sequence copy = session.fork(sequence, std::ssize(text) - 20);
    for (size_t i = n - 20; i < n; ++i) {
      const auto row = decode(session, copy, text[i]);
      EXPECT_LE(max_abs_difference(row, std::span(expected).subspan(i * row.size(), row.size())), 2e-5) << i;
    }
  };
  check("self-extend/group=auto/window=24", kTokens, self_extend_distance(8, 24));
  check("rerope/window=40/k=auto", kTokens, rerope_distance(40, (length - 40) / 24));
  check("self-extend/group=auto/window=24", 64, self_extend_distance(1, 24));
  check("jet-long/window=24/group=auto", kTokens, jet_long_distance(5, 24));
  check("jet-long/window=24/group=auto", 65, jet_long_distance(2, 24));
  check("jet-long/window=24/group=auto", 64, jet_long_distance(1, 24));
  for (const char* far : {"yarn", "ntk", "linear"}) {
    const std::string method = fmt::format("jet-long-freq/window=24/far={}/factor=auto", far);
    check(method.c_str(), kTokens, plain_distance(), Far{far, 24, (length - 24) / 40});
    check(method.c_str(), 64, plain_distance());
  }
}

TEST_F(PositionMethods, WorkWithEveryScaling) {
  const auto tokens = some_tokens(kTokens, model_.spec.vocab_size);
  SessionOptions options = f32_session();
  options.rope_steps = 0;
  const Far far{"yarn", 24, (kTokens - 24) / 40.0};
  for (int type = 0; type <= static_cast<int>(RopeType::kDynamicYarnRadix); ++type) {
    RopeScaling& rope = options.rope.emplace(rope_of_type(model_.spec.rope(), static_cast<RopeType>(type)));
    rope.factor = rope.depends_on_length() ? 1 : 4;
    rope.short_factor.assign(static_cast<size_t>(rope.rotary_dim / 2), 1.5);
    rope.long_factor.assign(static_cast<size_t>(rope.rotary_dim / 2), 3.5);
    const RopeFrequencies near = rope_frequencies(rope, kTokens);
    const RelativeOracle oracle(model_dir_, model_.spec);
    const auto difference = [&](const char* method, const std::vector<float>& expected) {
      options.positions = parse_position_method(method, 64, 0);
      Session session(model_, backend_, options);
      return max_abs_difference(all_logits(session, tokens, kTokens), expected);
    };
    EXPECT_LE(difference("jet-long/window=24", oracle.logits(tokens, jet_long_distance(5, 24), near)), 5e-5)
        << name_of(rope.type);
    EXPECT_LE(difference("jet-long-freq/window=24", oracle.logits(tokens, plain_distance(), near,
                                                                  far.temperature(), far.angle(rope, near))),
              5e-5)
        << name_of(rope.type);
  }
}

class Windows : public OnLlama, public testing::WithParamInterface<MethodCase> {};

TEST_P(Windows, OnlyTheWindowStaysInMemory) {
  SessionOptions options = f32_session();
  options.positions = parse_position_method(GetParam().method, 64, 0);
  Session session(model_, backend_, options);
  Sequence sequence = session.new_sequence();
  const auto tokens = some_tokens(2000, model_.spec.vocab_size);
  std::vector<float> logits;
  for (const int32_t token : tokens) {
    const auto row = decode(session, sequence, token);
    logits.assign(row.begin(), row.end());
    ASSERT_LE(session.pool().pages(), 4);  // sinks, window, rollback, a new one
  }
  const auto expected =
      RelativeOracle(model_dir_, model_.spec)
          .logits(tokens, GetParam().distance, frequencies_for(session.options(), session.rope(), 1));
  EXPECT_LE(max_abs_difference(logits, std::span(expected).last(logits.size())), 1e-4);

  sequence.truncate(1900);
  for (size_t i = 1900; i < tokens.size(); ++i) {
    const auto row = decode(session, sequence, tokens[i]);
    logits.assign(row.begin(), row.end());
  }
  EXPECT_LE(max_abs_difference(logits, std::span(expected).last(logits.size())), 1e-4);
  sequence.truncate(1000);
  expect_refused([&] { decode(session, sequence, 1); }, GetParam().method + " | 1000");
}

INSTANTIATE_TEST_SUITE_P(
    OfMethods, Windows,
    testing::Values(MethodCase{"sinks/sinks=4/window=60", sinks_distance(4, 60)},
                    MethodCase{"lm-infinite/sinks=4/window=60", lm_infinite_distance(4, 60)}),
    [](const auto& test) { return std::string(test.param.method[0] == 's' ? "Sinks" : "LmInfinite"); });

TEST_F(PositionMethods, StoreKeysTwiceForTwoRotations) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("smollm3"), backend);  // some layers have no RoPE
  const auto tokens = some_tokens(kTokens, model.spec.vocab_size);
  const auto rotating = std::ranges::count_if(
      model.spec.layers, [](const LayerSpec& layer) { return layer.attention.rope == 0; });
  ASSERT_LT(rotating, std::ssize(model.spec.layers));
  const auto bytes_of = [&](const char* method) {
    SessionOptions options = f32_session();
    options.positions = parse_position_method(method, 64, 0);
    Session session(model, backend, options), decoding(model, backend, options);
    EXPECT_LE(max_abs_difference(all_logits(decoding, tokens, 1), all_logits(session, tokens, kTokens)), 1e-4)
        << method;
    EXPECT_EQ(session.pool().geometry().page_bytes,
              kKvPage * (session.pool().k_bytes_per_position() + session.pool().v_bytes_per_position()));
    return session.pool().k_bytes_per_position();
  };
  const size_t plain = bytes_of("none"), one = plain / model.spec.layers.size();
  EXPECT_EQ(bytes_of("dca/chunk=24/window=10"), plain);
  for (const char* method : {"self-extend/group=3/window=20", "rerope/window=20", "lm-infinite/window=20",
                             "jet-long/window=20/group=3", "jet-long-freq/window=20/factor=3"})
    EXPECT_EQ(bytes_of(method), plain + static_cast<size_t>(rotating) * one) << method;
}

TEST_F(PositionMethods, HaveTheirDistances) {
  std::vector<MethodCase> cases = method_cases();
  cases.push_back({"rerope/window=40/k=auto", [](int64_t i, int64_t j) {
                     return rerope_distance(40, std::max(static_cast<double>(i - 39) / 24, 1.0))(i, j);
                   }});
  for (const MethodCase& one : cases) {
    const PositionMethod method = parse_position_method(one.method, 64, 0);
    for (int64_t i = 0; i < 200; ++i) {
      for (int64_t j = 0; j <= i; ++j)
        ASSERT_NEAR(method.distance(i, j, static_cast<double>(i + 1)).value_or(-1),
                    one.distance(i, j).value_or(-1), 1e-12)
            << one.method << " " << i << " " << j;
      EXPECT_EQ(method.distance(i, i + 1, 1), std::nullopt);
    }
  }
  EXPECT_TRUE(is_position_method("dca") && is_position_method("sinks/x"));
  EXPECT_FALSE(is_position_method("none") || is_position_method("") || is_position_method("dcaa"));
}

TEST_F(PositionMethods, TemperatureFollowsTheTrainedLength) {
  const auto by_log = [](int64_t trained) {
    return parse_position_method("rerope/temperature=log", trained, 0).temperature(8, 1);
  };
  EXPECT_NEAR(by_log(3), 2, 1e-12);  // log 9 / log 3
  EXPECT_NEAR(by_log(2), std::log2(9), 1e-12);
  EXPECT_NEAR(by_log(1), std::log2(9), 1e-12) << "log 1 is no divisor";
}

TEST_F(PositionMethods, AreParsedFromNamesAndValues) {
  const auto name = [](const char* text, int64_t longest = 0) {
    return parse_position_method(text, 8192, longest).name;
  };
  EXPECT_EQ(name(""), "");
  EXPECT_EQ(name("none"), "");
  EXPECT_EQ(name("dca"), "dca/chunk=6144/window=2048");
  EXPECT_EQ(name("dca/window=512"), "dca/chunk=6144/window=512");
  EXPECT_EQ(name("dca/window=1/chunk=134217728"), "dca/chunk=134217728/window=1");
  EXPECT_EQ(name("rerope/window=9/temperature=100"), "rerope/window=9/temperature=100");
  EXPECT_EQ(name("rerope/window=9/temperature=1"), "rerope/window=9/temperature=1");
  EXPECT_EQ(parse_position_method("rerope", 3, 0).name, "rerope/window=1");
  EXPECT_EQ(name("string"), "string/shift=2730/window=128");
  EXPECT_EQ(name("string", 12288), "string/shift=4224/window=128");
  EXPECT_EQ(name("string", 100000), "string/shift=8192/window=128");
  EXPECT_EQ(name("string/shift=9/window=9"), "string/shift=9/window=9");
  EXPECT_EQ(parse_position_method("sinks", 3, 0).name, "sinks/sinks=4/window=1");
  EXPECT_EQ(name("sinks/sinks=1"), "sinks/sinks=1/window=8188");
  EXPECT_EQ(name("self-extend"), "self-extend/group=4/window=2048");
  EXPECT_EQ(name("self-extend", 12288), "self-extend/group=4/window=2048");
  EXPECT_EQ(name("self-extend", 6000), "self-extend/group=2/window=2048");
  EXPECT_EQ(name("self-extend", 12287), "self-extend/group=3/window=2048");
  EXPECT_EQ(parse_position_method("self-extend", 1, 100).name, "self-extend/group=100/window=1");
  EXPECT_EQ(name("rerope"), "rerope/window=2048");
  EXPECT_EQ(name("rerope/k=16"), "rerope/window=2048/k=16");
  EXPECT_EQ(name("lm-infinite"), "lm-infinite/sinks=10/window=8192");
  EXPECT_EQ(name("jet-long"), "jet-long/window=512/group=auto");
  EXPECT_EQ(name("jet-long/group=3"), "jet-long/window=512/group=3");
  EXPECT_EQ(name("jet-long-freq"), "jet-long-freq/window=512/far=yarn/factor=auto");
  EXPECT_EQ(name("jet-long-freq/factor=3/far=linear"), "jet-long-freq/window=512/far=linear/factor=3");
  EXPECT_EQ(name("jet-long-freq/factor=2.50"), "jet-long-freq/window=512/far=yarn/factor=2.5");
  EXPECT_EQ(parse_position_method("jet-long-freq/factor=2.5", 8192, 0).stretch(100), 2.5);
  EXPECT_EQ(name("rerope/temperature=log/window=9"), "rerope/window=9/temperature=log");
  const std::pair<const char*, const char*> wrong[] = {
      {"yarn", "yarn | none, dca, string, sinks, self-extend, rerope, lm-infinite, jet-long, jet-long-freq"},
      {"dca/", "dca | chunk, window"},
      {"dca/shift=3", "shift=3"},
      {"dca/chunk", "chunk=N | 1 | 134217728"},
      {"dca/chunk=", "chunk=N"},
      {"dca/chunk=0", "chunk=N"},
      {"dca/chunk=-5", "chunk=N"},
      {"dca/chunk=1e3", "chunk=N"},
      {"dca/chunk=99999999999999999999", "chunk=N"},
      {"dca/chunk=134217729", "chunk=N"},
      {"dca/chunk=9000/chunk=9000", "chunk"},
      {"dca/chunk=9/window=10", "window | chunk"},
      {"string/shift=9/window=10", "window | shift"},
      {"rerope/k=0", "k=N | 1 | 134217728 | auto"},
      {"rerope/window=auto", "window=N"},
      {"rerope/window=8192/k=auto", "auto | window | 8192"},
      {"jet-long-freq/window=8192", "auto | window | 8192"},
      {"jet-long-freq/factor=0.99", "factor=N | 1 | 134217728 | auto"},
      {"jet-long-freq/factor=nan", "factor=N"},
      {"jet-long-freq/factor=2,3", "factor=N"},
      {"jet-long-freq/window=2.5", "window=N | whole"},
      {"jet-long-freq/far=auto", "far=yarn or ntk or linear"},
      {"jet-long-freq/far=2", "far=yarn or ntk or linear or bands"},
      {"rerope/temperature", "temperature"},
      {"rerope/temperature=", "temperature=log | 100"},
      {"rerope/temperature=0", "temperature=log"},
      {"rerope/temperature=nan", "temperature=log"},
      {"rerope/temperature=1e3", "temperature=log"},
      {"rerope/temperature=2x", "temperature=log"},
      {"rerope/temperature=log/temperature=2", "temperature"}};
  for (const auto& [text, words] : wrong) {
    SCOPED_TRACE(text);
    expect_refused([&, text = text] { name(text); }, words);
  }
}

TEST_F(PositionMethods, RefuseIncompatibleModels) {
  const PositionMethod method = parse_position_method("dca", 64, 0);
  for (const char* name : {"bloom", "qwen2_vl", "deepseek_v2", "mistral_window", "gemma3"}) {
    const ModelSpec spec = load_config(checkpoint_dir(name));
    expect_refused([&] { check_position_method(method, spec); }, method.name);
  }
  ModelSpec window = model_.spec, rope = model_.spec;
  window.layers.back().attention.sliding_window = 1;
  rope.layers.back().attention.rope = 1;
  for (const ModelSpec& spec : {window, rope})
    expect_refused([&] { check_position_method(method, spec); }, method.name);
  SessionOptions options = f32_session();
  options.positions = method;
  Session session(model_, backend_, options);
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, some_tokens(9, model_.spec.vocab_size));
  session.observe([](const auto&...) {});
  expect_refused([&] { decode(session, sequence, 1); }, method.name);
  session.observe({});
  decode(session, sequence, 1);
  Session twice(model_, backend_, f32_session());
  const PositionMethod rerope = parse_position_method("rerope", 64, 0);
  expect_refused([&] { twice.new_sequence({.method = rerope}); }, rerope.name);
}

}  // namespace
}  // namespace lariat::test
