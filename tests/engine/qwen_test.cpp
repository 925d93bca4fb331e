// Qwen 1 beyond seq_length vs its formulas in float64 (tools/lab/golden/qwen_formulas.py).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/io/json_file.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

struct Prefill {
  int64_t n;
  bool ntk, logn;
};

class QwenBeyond : public testing::TestWithParam<Prefill> {};

TEST_P(QwenBeyond, PrefillsFollowTheFormulas) {
  const auto& [n, ntk, logn] = GetParam();
  const auto dir = checkpoint_dir("qwen");
  const Tensors golden = open_safetensors_file(dir / "beyond.safetensors");
  std::vector<int32_t> tokens = int_tensor(golden, "tokens");
  tokens.resize(static_cast<size_t>(n));
  const std::vector<float> expected = float_tensor(golden, fmt::format("{}.{:d}.{:d}", n, ntk, logn));
  nlohmann::json config = read_json(dir / "config.json");
  config["use_dynamic_ntk"] = ntk;
  config["use_logn_attn"] = logn;
  CpuBackend backend(2);
  const Model model = load_model(dir, parse_config(config.dump(), dir / "config.json"), backend, DType::kF32);
  const double largest = max_abs_difference(expected, std::vector<float>(expected.size()));
  for (const int64_t chunk : {0, 320}) {
    SessionOptions options = f32_session();
    options.prefill_chunk = chunk;
    Session session(model, backend, options);
    const std::vector<float> all = all_logits(session, tokens, tokens.size());
    const std::vector<float> last(all.end() - std::ssize(expected), all.end());
    EXPECT_LE(max_abs_difference(last, expected), 2e-5 * largest) << "chunks of " << chunk;
  }
}

std::string name_of_prefill(const testing::TestParamInfo<Prefill>& info) {
  return fmt::format("Of{}{}{}", info.param.n, info.param.ntk ? "Ntk" : "", info.param.logn ? "Logn" : "");
}

INSTANTIATE_TEST_SUITE_P(Lengths, QwenBeyond,
                         testing::Values(Prefill{1025, true, true}, Prefill{2049, true, true},
                                         Prefill{4097, true, true}, Prefill{2049, false, true},
                                         Prefill{2049, true, false}, Prefill{2049, false, false}),
                         name_of_prefill);

}  // namespace
}  // namespace lariat::test
