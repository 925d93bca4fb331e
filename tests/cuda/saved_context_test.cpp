#include "engine/contexts/saved_context.h"

#include "tests/cuda/cuda_fixture.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

struct CudaContext : OnCuda {
  const TempFolder folder_;
  const std::filesystem::path file_ = folder_.path / "context";
};

// The run crosses a scale step; device and host files are the same.
TEST_F(CudaContext, ContinuesBitwiseIdentically) {
  const auto dir = checkpoint_dir("llama_gqa");
  const Model model = open_f32(dir, *cuda_), on_host = open_f32(dir, reference_);
  const auto tokens = some_tokens(30, model.spec.vocab_size);
  const auto head = std::span(tokens).first(20), tail = std::span(tokens).subspan(20);
  SessionOptions options = scaled_session(model, "dynamic-yarn");
  options.rope->original_ctx = 16;
  Session session(model, *cuda_, options), host_session(on_host, reference_, options);
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, head);
  save_context(session, sequence, head, file_);
  const auto expected = decode_logits(session, sequence, tail);
  SavedContext context = load_context(session, file_);
  EXPECT_EQ(decode_logits(session, context.sequence, tail), expected);
  EXPECT_GT(context.sequence.cache().rerotations().count, 0);
  SavedContext host_context = load_context(host_session, file_);
  EXPECT_LE(max_abs_difference(decode_logits(host_session, host_context.sequence, tail), expected), 1e-4);
}

}  // namespace
}  // namespace lariat::test
