// The counter of memory traffic, on a kernel whose traffic is known, and what it says of a model's steps.
#include "tests/simt/traffic.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/engine_test_util.h"
#include "tests/kernels/tensors.h"
#include "tests/simt/checked.h"
#include "tests/simt/planted.h"

extern "C" {
extern const char __executable_start;
}

namespace simt {
namespace {

using namespace lariat;

class SimtTraffic : public testing::Test {
 protected:
  void SetUp() override {
    if (!hooks_linked()) GTEST_SKIP() << "this build does not check every access";
  }
  void TearDown() override { count_traffic(false); }
};

// 2 blocks of 64 threads: 4 warps. Each loads 16 bytes per lane side by side, 4 bytes per lane 8 apart, and
// one word for all, and stores 4 bytes per lane side by side from 4 beyond a sector's beginning on.
TEST_F(SimtTraffic, OfAKnownKernel) {
  count_traffic(true);
  run_known_traffic();
  const std::vector<Traffic> all = traffic();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].launches, 1U);
  EXPECT_EQ(all[0].accesses, 4U * 4);
  EXPECT_EQ(all[0].sectors, 4U * (16 + 8 + 1 + 5));
  EXPECT_EQ(all[0].ideal, 4U * (16 + 4 + 1 + 4));
  // The first two read the same 2 KiB, and the one word lies in them: 64 sectors. Of what is stored,
  // neighbouring warps share a sector: 17.
  EXPECT_EQ(all[0].distinct, 64U + 17);
}

// To the file that LARIAT_SIMT_TRAFFIC names, for scripts/traffic_ledger.py: step, the kernel's place in the
// program, and the figures.
void append_traffic(const char* step, const std::vector<Traffic>& all) {
  const char* path = std::getenv("LARIAT_SIMT_TRAFFIC");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "a");
  ASSERT_NE(file, nullptr) << path;
  for (const Traffic& t : all) {
    const auto place = static_cast<const char*>(t.kernel) - &__executable_start;
    std::fprintf(file, "%s %tx %lu %lu %lu %lu %lu\n", step, place, t.launches, t.accesses, t.sectors,
                 t.ideal, t.distinct);
  }
  std::fclose(file);
}

// configs/demo in bf16, 4 layers of 256 dimensions: one token behind 64, and 64 tokens at once. A kernel
// whose lanes read side by side asks for one sector per 32 bytes; gemv_kernel's take the floats of x by
// halves, 16 of 32 bytes, so that a step as a whole asks for half as many again (docs/gpu/traffic.md).
TEST_F(SimtTraffic, OfTheDemoModel) {
  CudaBackend backend;
  const std::filesystem::path dir = std::filesystem::path(LARIAT_SOURCE_DIR) / "configs" / "demo";
  const Model model = load_model(dir, load_config(dir), backend, DType::kBF16);
  Session session(model, backend, SessionOptions());
  Sequence sequence = session.new_sequence();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 64; ++i) tokens.push_back((i * 37 + 11) % 2048);
  count_traffic(true);
  session.prefill_last(sequence, tokens);
  backend.synchronize();
  const std::vector<Traffic> prefill = traffic();
  append_traffic("64", prefill);
  count_traffic(true);
  session.decode(sequence, 5);
  const std::vector<Traffic> decode = traffic();
  append_traffic("1", decode);
  for (const auto& step : {prefill, decode}) {
    uint64_t sectors = 0, ideal = 0;
    for (const Traffic& t : step) {
      sectors += t.sectors;
      ideal += t.ideal;
    }
    EXPECT_GT(ideal, 1000U);
    EXPECT_LT(static_cast<double>(sectors), 1.4 * static_cast<double>(ideal));
  }
}

// A prefill of a bf16 model: what makes an x writes it in the dtype that its products read, and the kernel
// that would convert it, which a product of f32 is made to launch here, never runs.
TEST_F(SimtTraffic, APrefillConvertsNothing) {
  CudaBackend backend;
  const test::Tensor x(backend, std::vector<float>(17 * 8, 1.0F), 17, 8);
  const test::Tensor w(backend, std::vector<float>(8 * 8, 1.0F), 8, 8, DType::kBF16), out(backend, 17, 8);
  count_traffic(true);
  multiply(backend, x.view(), w.view(), {}, DType::kBF16, out.view());
  backend.synchronize();
  const std::vector<Traffic> product = traffic();
  ASSERT_EQ(product.size(), 1U);
  EXPECT_EQ(product[0].launches, 1U);

  const std::filesystem::path dir = std::filesystem::path(LARIAT_SOURCE_DIR) / "configs" / "demo";
  const Model model = load_model(dir, load_config(dir), backend, std::nullopt);
  ASSERT_EQ(model.compute, DType::kBF16);
  Session session(model, backend, SessionOptions());
  Sequence sequence = session.new_sequence();
  count_traffic(true);
  session.prefill_last(sequence, std::vector<int32_t>(20, 7));
  backend.synchronize();
  EXPECT_GT(traffic().size(), 5U);
  for (const Traffic& t : traffic()) EXPECT_NE(t.kernel, product[0].kernel) << t.launches << " launches";
}

// A layer of Llama-3.1-8B, all its widths divided by 8, and 128 tokens: what its kernels move grows in
// proportion to both. Once with one layer and once with two, so that what belongs to the model is known
// from what belongs to a layer.
TEST_F(SimtTraffic, OfAnEighthOfLlama8B) {
  uint64_t moved[2] = {};
  for (const size_t n_layers : {1U, 2U}) {
    CudaBackend backend;
    ModelSpec spec = load_config(std::filesystem::path(LARIAT_SOURCE_DIR) / "configs" / "llama-3.1-8b.json");
    spec.vocab_size = 256;
    spec.hidden_size /= 8;
    spec.layers.resize(n_layers);
    for (LayerSpec& layer : spec.layers) {
      layer.attention.head_dim /= 8;
      layer.feed_forward.intermediate_size /= 8;
    }
    spec.rope().head_dim = spec.rope().rotary_dim = spec.layers[0].attention.head_dim;
    const Model model = random_model(spec, backend, DType::kBF16, 1);
    SessionOptions options;
    options.v_dtype = DType::kBF16;
    Session session(model, backend, options);
    Sequence sequence = session.new_sequence();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 128; ++i) tokens.push_back((i * 37 + 11) % 256);
    count_traffic(true);
    session.prefill_last(sequence, tokens);
    backend.synchronize();
    append_traffic(n_layers == 1 ? "one-layer" : "two-layers", traffic());
    for (const Traffic& t : traffic()) moved[n_layers - 1] += t.distinct * 32;
  }
  // Bytes for each token and unit of width; docs/gpu/traffic.md has those of the whole layer.
  const double layer = static_cast<double>(moved[1] - moved[0]) / 128 / 512;
  // Were gate and up f32, it would be 57; were the residual read and written by add_norm and not by the
  // products, 59.
  EXPECT_GT(layer, 40);
  EXPECT_LT(layer, 47);
}

}  // namespace
}  // namespace simt
