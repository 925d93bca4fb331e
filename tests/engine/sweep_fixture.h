#pragma once
#include "engine/eval/run_log.h"
#include "engine/eval/sweep.h"
#include "tests/engine/engine_test_util.h"

// Shared by the tests of sweeps: records written by hand, and a small model that is measured.
namespace lariat::test {

using Json = nlohmann::ordered_json;

// The log of a sweep without a result.
inline SweepRecords empty_log(const std::vector<std::string>& scalings, const std::vector<int64_t>& lengths) {
  SweepRecords log;
  log.header =
      Json::parse(R"({"lariat_sweep":1,"model":{"name":"m"},"text":{"name":"text.txt"},"original_ctx":512,
    "growing":{"measured":false},"perplexity":{"measured":true,"method":"sliding","stride":256,"max_tokens":0},
    "passkey":{"measured":true,"depths":[0,0.5,1],"trials":5,"seed":0,"task":"passkey","needles":4,
    "haystack":{"name":"noise"}},"speed":{"measured":true},"options":{"backend":"cpu","dtype":"bf16","k_dtype":"f16",
    "v_dtype":"bf16","factor":null,"stale_cache":false}})");
  log.header["scalings"] = scalings;
  log.header["lengths"] = lengths;
  return log;
}

inline void add_record(SweepRecords& log, const char* kind, const std::string& scaling, int64_t length,
                       const Json& values) {
  log.records.push_back({{"kind", kind}, {"scaling", scaling}, {"length", length}});
  log.records.back().update(values);
}

// A record of a growing context, whose column the header then names.
inline void add_growing(SweepRecords& log, const std::string& column, int64_t length, const Json& values,
                        int64_t step) {
  add_record(log, "growing", column, length, values);
  log.header["growing"].update(Json{{"measured", true}, {"step", step}});
  log.header["growing"]["columns"].push_back(column);
}

inline std::string fox_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "The fox number " + std::to_string(i * i % 97) + " jumps over it.\n";
  return text;
}

class SmallSweep : public FolderTest {
 protected:
  SmallSweep(int64_t trained, const std::string& text) {
    engine_.options.kv_dtype = {DType::kF32, DType::kF32};
    engine_.tokenizer = Tokenizer::load(golden_dir() / "tokenizers" / "llama-mini");
    engine_.backend = std::make_unique<CpuBackend>(1);
    ModelSpec config = load_config(checkpoint_dir("llama_gqa"));
    config.vocab_size = engine_.tokenizer->vocab_size();
    config.rope().original_ctx = config.rope().max_position_embeddings = trained;
    engine_.model = random_model(config, *engine_.backend, DType::kF32, 5);
    put("text.txt", text);
    options_.text = dir_ / "text.txt";
  }

  // Goes on with a log that exists.
  SweepRecords run(const std::string& log_name) {
    Sweep measured(engine_, options_);
    measured.check();
    SweepLog log(dir_ / log_name, measured.header(), /*resume=*/true);
    EXPECT_TRUE(measured.run(log, {}));
    return log.contents();
  }

  Engine engine_;
  SweepOptions options_;
};

// The record of a measurement; null where the log has none.
inline Json find_record(const SweepRecords& log, const std::string& kind, const std::string& column,
                        std::optional<int64_t> length = {}) {
  for (const Json& one : log.records) {
    if (one["kind"] == kind && one["scaling"] == column && (!length || one["length"] == *length)) return one;
  }
  return nullptr;
}

}  // namespace lariat::test
