#include "tests/count_allocations.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

TEST(Allocation, DecodeStepsAllocateNothing) {
  const int64_t none = allocations();
  int* volatile one_int = new int;  // volatile keeps the pair
  delete one_int;
  if (allocations() == none) LARIAT_SKIP("a sanitizer has its own operator new");
  const std::pair<std::filesystem::path, DType> cases[] = {{demo_dir(), DType::kBF16},
                                                           {demo_dir(), DType::kQ8},
                                                           {checkpoint_dir("mixtral"), DType::kBF16},
                                                           {checkpoint_dir("qwen3_moe"), DType::kQ8},
                                                           {checkpoint_dir("deepseek_v2"), DType::kF32}};
  for (const auto& [dir, dtype] : cases) {
    CpuBackend backend(2);
    const Model model = load_model(dir, load_config(dir), backend, dtype);
    Session session(model, backend, {});
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, std::vector<int32_t>(300, 7));
    const auto step = [&](int32_t token) {
      backend.draw(forward(session, {&sequence, {&token, 1}}), {}, {});
      backend.read_drawn({&token, 1});
      return token_of(token);
    };
    int32_t token = step(9);                                       // scratch memory grows
    while (sequence.length() % kKvPage != 1) token = step(token);  // the cache grows
    const int64_t before = allocations();
    while (sequence.length() % kKvPage != 0) token = step(token);
    EXPECT_EQ(allocations() - before, 0) << dir << " " << name_of(dtype);
  }
}

}  // namespace
}  // namespace lariat::test
