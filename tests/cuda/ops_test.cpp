// Every op but linear and attention on the CUDA backend: the cases that every backend has to pass.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using CudaRows = OnCudaWith<RowCase>;
TEST_P(CudaRows, Embed) {
  for (float scale : {1.0F, 45.25483F}) check_embed(*cuda_, reference_, GetParam(), scale);
}
TEST_P(CudaRows, Norm) {
  for (NormKind kind : kNormKinds) {
    for (float scale : {1.0F, 1e-4F, 1e4F}) check_norm(*cuda_, reference_, GetParam(), kind, scale);
  }
}
TEST_P(CudaRows, AddNorm) {
  for (NormKind kind : kNormKinds) {
    for (float scale : {1.0F, 0.22F}) check_add_norm(*cuda_, reference_, GetParam(), kind, scale);
  }
}
TEST_P(CudaRows, Glu) {
  for (float scale : {3.0F, 50.0F}) check_glu(*cuda_, reference_, GetParam(), scale);
}
TEST_P(CudaRows, SoftCap) {
  check_soft_cap(*cuda_, reference_, GetParam(), 0.125F, 0.0F);
  check_soft_cap(*cuda_, reference_, GetParam(), 1.0F, 30.0F);
}
TEST_P(CudaRows, TokenNll) {
  for (float scale : {4.0F, 40.0F}) check_token_nll(*cuda_, reference_, GetParam(), scale);
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaRows, testing::ValuesIn(row_cases()));

using CudaOps = OnCuda;
TEST_F(CudaOps, NormOfALargeMean) { check_norm_large_mean(*cuda_, reference_); }
TEST_F(CudaOps, GluLargeAndSmall) {
  for (float scale : {1e-20F, 1e4F}) check_glu(*cuda_, reference_, {2, 515}, scale);
}
TEST_F(CudaOps, GeluEverywhere) { check_gelu_range(*cuda_, reference_); }
TEST_F(CudaOps, SoftCapOddities) { check_soft_cap_oddities(*cuda_); }
TEST_F(CudaOps, TokenNllOddities) { check_token_nll_oddities(*cuda_); }
TEST_F(CudaOps, TokenNllOfManyRows) {  // more than one launch holds
  check_token_nll(*cuda_, reference_, {.rows = 300, .cols = 11, .dtype = DType::kF32, .gap = 0});
}
TEST_F(CudaOps, EmbedOfManyTokens) {
  check_embed(*cuda_, reference_, {.rows = 600, .cols = 5, .dtype = DType::kBF16, .gap = 0});
}

using CudaDraw = OnCudaWith<DrawCase>;
TEST_P(CudaDraw, MatchesTheReference) { check_draw(*cuda_, reference_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, CudaDraw, testing::ValuesIn(draw_cases()));
TEST_F(CudaOps, DrawDistribution) { check_draw_distribution(*cuda_); }
TEST_F(CudaOps, DrawOddities) { check_draw_oddities(*cuda_); }
TEST_F(CudaOps, EmbedOfDrawn) { check_embed_of_drawn(*cuda_); }

using CudaRopeTable = OnCudaWith<RopeTableCase>;
TEST_P(CudaRopeTable, MatchesExactAngles) { check_rope_table(*cuda_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, CudaRopeTable, testing::ValuesIn(rope_table_cases()));
TEST_F(CudaOps, RopeTableSplit) { check_rope_table_split(*cuda_); }

TEST_F(CudaOps, RopeTableAxes) { check_rope_table_axes(*cuda_); }

using CudaQkv = OnCudaWith<QkvCase>;
TEST_P(CudaQkv, MatchesTheReference) { check_qkv_to_cache(*cuda_, reference_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, CudaQkv, testing::ValuesIn(qkv_cases()));
TEST_F(CudaOps, ClipKeepsNaN) { check_clip_keeps_nan(*cuda_); }

using CudaRerotate = OnCudaWith<RerotateCase>;
TEST_P(CudaRerotate, MatchesTheReference) { check_rerotate_keys(*cuda_, reference_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, CudaRerotate, testing::ValuesIn(rerotate_cases()));
TEST_F(CudaOps, RotationsCompose) {
  for (bool interleaved : {false, true}) {
    check_composition(*cuda_, interleaved, 64);
    check_composition(*cuda_, interleaved, 20);
    check_isometry(*cuda_, interleaved);
  }
}

}  // namespace
}  // namespace lariat::test
