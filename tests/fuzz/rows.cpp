// The first line is a row of a benchmark, the rest an answer, which every metric scores.
#include "engine/eval/measure/rows.h"

#include "models/io/json_fields.h"
#include "models/text/unicode.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(rows) {
  using namespace lariat;
  static const Tokenizer tokenizer =
      Tokenizer::load(std::filesystem::path(LARIAT_SOURCE_DIR "/tests/golden/tokenizers/byte-mini"));
  static const TextCodec codec = prompt_codec(tokenizer);
  const size_t end = std::min(input.find('\n'), input.size());
  const std::string answer = valid_utf8(input.substr(std::min(end + 1, input.size())));
  for (const MetricRow& metric : kMetrics) {
    fuzz::accepted([&] {
      const nlohmann::json object = parse_json_object(std::string(input.substr(0, end)), "rows: line 1");
      const RowOptions options{.metric = find_metric(metric.name).value()};
      const JsonFields fields(object, "rows: line 1", "", JsonFields::with_key);
      const BenchmarkRow row = benchmark_row(fields, {.file = "rows", .line = 1}, codec, tokenizer, options);
      fuzz::require(!row.prompt.empty() && row.max_new_tokens > 0, "a row asks something");
      const double score = row_score(row, options.metric, answer);
      fuzz::require(score >= 0 && score <= 1, "a score is from 0 to 1");
      if (is_binary(options.metric, row.references.size()))
        fuzz::require(score == 0 || score == 1, "binary scores are 0 or 1");
    });
  }
}
