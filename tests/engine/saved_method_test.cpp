#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <string>

#include "models/positions/parse_position_method.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

// Methods that store second keys, drop pages, or stretch between 900 and 1200 tokens; key frequencies that
// follow the length or not.
class MethodAway : public OnLlama, public testing::WithParamInterface<const char*> {};
class KeysAway : public MethodAway {};
class FarAway : public OnLlama {};

TEST_P(MethodAway, GoesOnAsIfItHadNotBeen) {
  const auto tokens = some_tokens(1200, model_.spec.vocab_size),
             head = std::vector(tokens.begin(), tokens.begin() + 900);
  const auto tail = std::span(tokens).subspan(900);
  for (const char* scaling : {"none", "dynamic-yarn"}) {
    SessionOptions options = scaled_session(model_, scaling);
    options.k_dtype = DType::kF16;
    options.positions = parse_position_method(GetParam(), 64, 0);
    Session session(model_, backend_, options);
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, std::span(head).first(800));
    decode_logits(session, sequence, std::span(head).subspan(800));
    save_context(session, sequence, head, dir_ / "context");
    const size_t bytes = sequence.cache().bytes();
    const auto expected = decode_logits(session, sequence, tail);
    Session later(model_, backend_, options);
    SavedContext context = load_context(later, dir_ / "context");
    EXPECT_EQ(context.sequence.cache().bytes(), bytes);
    EXPECT_EQ(decode_logits(later, context.sequence, tail), expected) << scaling;
    context.sequence.truncate(1150);
    sequence.truncate(1150);
    EXPECT_EQ(decode(later, context.sequence, 7)[0], decode(session, sequence, 7)[0]);
    if (bytes < 4 * session.pool().geometry().page_bytes) {
      SavedContext again = load_context(later, dir_ / "context");
      again.sequence.truncate(500);
      EXPECT_TRUE(names(error_of([&] { decode(later, again.sequence, 7); }), GetParam()));
    }
    for (const char* other : {"none", "sinks/sinks=4/window=61"}) {
      options.positions = parse_position_method(other, 64, 0);
      Session stranger(model_, backend_, options);
      const std::string error = error_of([&] { load_context(stranger, dir_ / "context"); });
      EXPECT_TRUE(names(error, "context | `position_method` " + std::string(GetParam())));
    }
  }
}

// Layer 0's keys, second ones included, depend on embeddings only.
TEST_P(KeysAway, ReRotatedLayer0EqualsANewPrefill) {
  const auto tokens = some_tokens(400, model_.spec.vocab_size);
  const bool none = std::string(GetParam()) == "none";
  for (const Change& change : kScalingChanges) {
    SCOPED_TRACE(std::string(change.from) + " " + change.to);
    SessionOptions from = scaled_session(model_, change.from, change.from_factor),
                   to = scaled_session(model_, change.to, change.to_factor);
    from.positions = to.positions = parse_position_method(GetParam(), 64, 0);
    Session before(model_, backend_, from), after(model_, backend_, to);
    Sequence sequence = before.new_sequence(), fresh = after.new_sequence();
    prefill(before, sequence, tokens);
    save_context(before, sequence, tokens, dir_ / "context");
    SavedContext context = load_context(after, dir_ / "context");
    prefill(after, fresh, tokens);
    for (Sequence* one : {&context.sequence, &fresh}) decode(after, *one, 7);
    EXPECT_EQ(context.sequence.cache().frequencies(), fresh.cache().frequencies());
    EXPECT_TRUE(!none || context.sequence.cache().rerotations().count == 1);
    const KvLayer& layer = after.pool().geometry().layers[0];
    const auto values = static_cast<size_t>(layer.n_kv_heads * kKvPage * layer.head_dim);
    for (const KvLayer& keys : {layer, layer.second_k_offset > 0 ? layer.with_second_keys() : layer}) {
      const auto of = [&](const Sequence& one) {
        return std::span(static_cast<const float*>(keys.keys(one.cache().pages()[0])), values);
      };
      EXPECT_LE(max_abs_difference(of(context.sequence), of(fresh)), none ? 2e-6 : 5e-6);
    }
  }
}

// Far frequencies are recomputed.
TEST_F(FarAway, OtherTrainedLengthIsRefused) {
  const auto tokens = some_tokens(100, model_.spec.vocab_size);
  SessionOptions options = f32_session();
  options.positions = parse_position_method("jet-long-freq/window=24/factor=3", 64, 0);
  const auto session_of = [&](int64_t trained) {
    options.rope = resolve_rope(model_.spec.rope(), {.scaling = "none", .original_ctx = trained});
    return std::make_unique<Session>(model_, backend_, options);
  };
  const auto session = session_of(64), other = session_of(32);
  Sequence sequence = session->new_sequence();
  prefill(*session, sequence, tokens);
  save_context(*session, sequence, tokens, dir_ / "context");
  const std::string error = error_of([&] { load_context(*other, dir_ / "context"); });
  EXPECT_TRUE(names(error, "context | original context 64 | 32"));
}

// The announced length decides the rotation of the loaded keys, so that they are not rotated there and back.
TEST_F(FarAway, KeysOfAnAnnouncedTextAreNotRotated) {
  const auto tokens = some_tokens(100, model_.spec.vocab_size);
  SessionOptions options = f32_session();
  options.positions = parse_position_method("jet-long/window=24/group=auto", 64, 0);
  Session session(model_, backend_, options);
  Sequence sequence = session.new_sequence();
  sequence.expect(1000);
  prefill(session, sequence, tokens);
  save_context(session, sequence, tokens, dir_ / "context");
  SavedContext context = load_context(session, dir_ / "context");
  EXPECT_EQ(context.sequence.expected(), 1000);
  EXPECT_EQ(context.sequence.positions().stretch(), sequence.positions().stretch());
  EXPECT_EQ(decode(session, context.sequence, 7), decode(session, sequence, 7));
  EXPECT_EQ(context.sequence.cache().rerotations().count, 0);
}

// Fills new memory with bytes that a page of zeros lacks.
class Filled final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Buffer allocate(size_t bytes) override {
    Buffer memory = inner_.allocate(bytes);
    std::memset(memory.data(), 0x5A, bytes);
    return memory;
  }
};

TEST_F(FarAway, UnwrittenSecondKeysAreSavedAsZeros) {
  const auto tokens = some_tokens(300, model_.spec.vocab_size);
  Filled filled(backend_);
  SessionOptions options = f32_session();
  options.positions = parse_position_method("jet-long/window=24", 64, 0);
  Session session(model_, filled, options);
  for (const char* method : {"none", "sinks/sinks=4/window=60", "jet-long/window=24"}) {
    Sequence sequence = session.new_sequence({.method = parse_position_method(method, 64, 0)});
    prefill(session, sequence, tokens);
    save_context(session, sequence, tokens, dir_ / "context");
    const auto second = float_tensor(open_safetensors_file(dir_ / "context"), "page.1.layer.1.second_keys");
    const bool zeros = std::ranges::all_of(second, [](float x) { return x == 0; });
    EXPECT_EQ(zeros, !std::string_view(method).starts_with("jet")) << method;
    const SequenceOptions own{.method = parse_position_method(method, 64, 0)};
    SavedContext context = load_context(session, dir_ / "context", own);
    EXPECT_EQ(decode(session, context.sequence, 7), decode(session, sequence, 7)) << method;
  }
}

constexpr const char* kMethods[] = {"none",
                                    "dca/chunk=48/window=16",
                                    "string/shift=40/window=16",
                                    "sinks/sinks=4/window=60",
                                    "self-extend/group=8/window=24",
                                    "self-extend/group=auto/window=24",
                                    "rerope/window=40/k=auto",
                                    "lm-infinite/sinks=4/window=60",
                                    "jet-long/window=24/group=8",
                                    "jet-long/window=24/group=auto",
                                    "jet-long-freq/window=24/far=linear/factor=8",
                                    "jet-long-freq/window=24/far=bands/factors=1,8",
                                    "jet-long-freq/window=24/far=yarn/factor=auto"};
INSTANTIATE_TEST_SUITE_P(Cases, MethodAway, testing::ValuesIn(kMethods + 1, std::end(kMethods)),
                         [](const auto& test) { return test_name(test.param); });
INSTANTIATE_TEST_SUITE_P(Cases, KeysAway, testing::ValuesIn(kMethods),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace lariat::test
