#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "engine/contexts/fingerprint.h"
#include "engine/eval/measure/sweep.h"
#include "engine/interrupt.h"
#include "engine/runtime/session.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/limits.h"
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/options.h"
#include "tools/signals.h"

namespace lariat {
namespace {

struct BenchCommand {
  CommonOptions common;
  std::filesystem::path config;
  bool json = false;
  int64_t gen = 128, reps = 3;
  std::vector<int64_t> prompts{512}, depths{0};
};

struct BenchResult {
  std::string test;  // "pp": prefill of n tokens, "tg": decoding n tokens
  int64_t n = 0, depth = 0;
  std::vector<double> tokens_per_second;
  double bytes_per_token = 0;              // "tg": weights and cache read per token
  RerotationStats rerotations;             // of one repetition
  double seconds = 0;                      // of the same repetition
  std::string logits_hash{};               // of the last token, same repetition
  double read_before = 0, read_after = 0;  // memory bandwidth, bytes per second
  double waited = 0;                       // waiting for a core, as a share of thread time

  double read_limit() const { return (read_before + read_after) / 2; }
  // A shared machine's bandwidth may change during a test.
  bool limit_moved() const { return std::abs(read_after - read_before) > 0.15 * read_limit(); }
  double slowest() const { return *std::min_element(tokens_per_second.begin(), tokens_per_second.end()); }
  double fastest() const { return *std::max_element(tokens_per_second.begin(), tokens_per_second.end()); }
  double median() const {
    std::vector<double> sorted = tokens_per_second;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// A decode step reads every projection and the whole cache.
double bytes_read(const Session& session, double length) {
  const KvPool& pool = session.pool();
  const auto per_position = static_cast<double>(pool.k_bytes_per_position() + pool.v_bytes_per_position());
  return static_cast<double>(session.model().weights.token_bytes) + per_position * length;
}

// Depths are measured in rising order.
void fill(const BenchCommand& command, Session& session, Sequence& sequence, int64_t depth) {
  Progress progress("bench: filling the cache", depth, command.common.quiet);
  const int64_t before = sequence.length();
  const std::vector<int32_t> tokens = some_tokens(depth - before, session.model().spec.vocab_size);
  forward(session, {&sequence, tokens}, {}, [&](int64_t done) {
    stop_if(&interrupted());
    progress.update(before + done);
  });
}

// Decodes like a greedy generation: only the argmax leaves the backend, and each step is queued before the
// previous token is read. Returns the last logits.
Matrix decode_one_by_one(Session& session, Sequence& sequence, std::span<const int32_t> tokens) {
  size_t fed = 0;
  Matrix logits;
  const auto step = [&] { logits = forward(session, {&sequence, tokens.subspan(fed++, 1)}); };
  step();
  for (size_t drawn = 1; drawn <= tokens.size(); ++drawn) {
    stop_if(&interrupted());
    session.backend().draw(logits, {}, {});
    if (drawn < tokens.size()) step();
    int32_t id = 0;
    session.backend().read_drawn({&id, 1});
  }
  return logits;
}

struct TestRun {
  Sequence sequence;
  double seconds;
  std::string logits_hash;
};
TestRun run_test(Session& session, const Sequence& context, const std::string& test, int64_t n) {
  const std::vector<int32_t> tokens = some_tokens(n, session.model().spec.vocab_size);
  Sequence sequence = session.fork(context, context.length());
  session.backend().synchronize();  // excludes copying the context
  const auto start = Stopwatch::now();
  const Matrix logits =
      test == "pp" ? forward(session, {&sequence, tokens}, {}, [](int64_t) { stop_if(&interrupted()); })
                   : decode_one_by_one(session, sequence, tokens);
  session.backend().synchronize();
  const double seconds = seconds_since(start);
  const std::vector<float> host = to_host(session.backend(), logits);
  return {std::move(sequence), seconds, fmt::format("{:016x}", checksum(std::as_bytes(std::span(host))))};
}

// Allocates memory and starts threads, untimed.
void warm_up(Session& session, const Sequence& context, const BenchResult& result) {
  const int64_t chunk = session.options().prefill_chunk;
  const int64_t enough = result.test == "tg" ? 4 : chunk > 0 ? chunk : result.n;
  run_test(session, context, result.test, std::min(result.n, enough));
}

void repeat(Session& session, const Sequence& context, BenchResult& result) {
  const Model& model = session.model();
  const auto [sequence, seconds, logits_hash] = run_test(session, context, result.test, result.n);
  result.seconds = seconds;
  result.logits_hash = logits_hash;
  result.tokens_per_second.push_back(static_cast<double>(result.n) / seconds);
  result.rerotations = sequence.cache().rerotations();
  const double mean_length = static_cast<double>(result.depth) + static_cast<double>(result.n) / 2;
  result.bytes_per_token = result.test == "tg"
                               ? bytes_read(session, mean_length)
                               : static_cast<double>(model.weights.bytes) / static_cast<double>(result.n);
}

nlohmann::ordered_json to_json(const BenchResult& r) {
  nlohmann::ordered_json json = {{"test", r.test},
                                 {"n", r.n},
                                 {"depth", r.depth},
                                 {"reps", r.tokens_per_second.size()},
                                 {"tok_s_median", r.median()},
                                 {"tok_s_min", r.slowest()},
                                 {"tok_s_max", r.fastest()},
                                 {"gb_s", r.median() * r.bytes_per_token / 1e9},
                                 {"limit_gb_s", {r.read_before / 1e9, r.read_after / 1e9}},
                                 {"logits_hash", r.logits_hash},
                                 {"waited_for_cores", r.waited}};
  json["rerotations"] = {{"count", r.rerotations.count},
                         {"positions", r.rerotations.positions},
                         {"seconds", r.rerotations.seconds},
                         {"share_of_time", r.rerotations.seconds / r.seconds}};
  return json;
}

void print_heading(DType dtype, const Backend& backend, const Limits& limits) {
  fmt::print(std::cout, "{}\nmachine: read {:.2f} GB/s, {} GEMM {:.3f} TFLOP/s\n", backend.description(),
             limits.read_bytes_per_second / 1e9, name_of(dtype), limits.flops_per_second / 1e12);
  std::cout << "test        tok/s (min .. max)          GB/s  of the machine's" << std::endl;
}

void print_row(const BenchResult& r, const Model& model, const Limits& limits) {
  const double gb_s = r.median() * r.bytes_per_token / 1e9;
  const std::string name = fmt::format("{}{}{}", r.test, r.n, r.depth > 0 ? fmt::format("@{}", r.depth) : "");
  fmt::print(std::cout, "{:<12}{:9.2f} ({:.2f} .. {:.2f})  {:8.2f}  ", name, r.median(), r.slowest(),
             r.fastest(), gb_s);
  if (r.test == "tg") {
    fmt::print(std::cout, "{:.1f}% of read bandwidth", 100 * gb_s * 1e9 / r.read_limit());
    if (r.limit_moved()) {
      fmt::print(std::cout, ", which changed from {:.1f} to {:.1f} GB/s", r.read_before / 1e9,
                 r.read_after / 1e9);
    }
  } else {
    // Two operations per weight and token, without attention.
    const double flops = r.median() * 2 * static_cast<double>(model.weights.values);
    const double share = flops / limits.flops_per_second;
    fmt::print(std::cout, "{} ({:.3f} TFLOP/s)",
               share <= 1 ? fmt::format("{:.1f}% of GEMM peak", 100 * share)
                          : "more than the GEMM peak, whose measurement was disturbed",
               flops / 1e12);
  }
  if (r.rerotations.count > 0) {
    fmt::print(std::cout, "; {}, {:.2f}% of the time", counted(r.rerotations.count, "re-rotation"),
               100 * r.rerotations.seconds / r.seconds);
  }
  if (r.waited > 0.1) {
    fmt::print(std::cout, "; the load exceeds the cores, which the threads waited for {:.0f} % of the time",
               100 * r.waited);
  }
  std::cout << "; logits " << r.logits_hash << std::endl;
}

void print_results(const std::vector<BenchResult>& results, const Engine& engine, const Limits& limits) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& result : results) rows.push_back(to_json(result));
  print_json({{"results", rows},
              {"device", engine.backend->description()},
              {"dtype", name_of(engine.model.weights.format.dtype)},
              {"quantize", engine.model.quantization()},
              {"activations", activations_json(engine.model, engine.session_options)},
              {"limits",
               {{"read_gb_s", limits.read_bytes_per_second / 1e9},
                {"gemm_tflop_s", limits.flops_per_second / 1e12}}}});
}

// Seconds for which threads were runnable without a core; 0 if the system does not report it.
double waited_for_cores() {
  double nanoseconds = 0;
  std::error_code none;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", none)) {
    double ran = 0, ready = 0;
    std::ifstream(task.path() / "schedstat") >> ran >> ready;
    nanoseconds += ready;
  }
  return 1e-9 * nanoseconds;
}

std::vector<BenchResult> wanted_results(const BenchCommand& command) {
  std::vector<int64_t> depths = command.depths;
  std::sort(depths.begin(), depths.end());  // each context continues the previous one
  std::vector<BenchResult> wanted;
  for (const int64_t depth : depths) {
    for (const int64_t prompt : command.prompts) {
      if (prompt > 0) wanted.push_back({"pp", prompt, depth, {}, 0, {}});
    }
    if (command.gen > 0) wanted.push_back({"tg", command.gen, depth, {}, 0, {}});
  }
  return wanted;
}

void run(BenchCommand& command) {
  const bool random = command.common.open.random_weights, config = !command.config.empty();
  if (random != config || random != command.common.model.empty()) {
    throw UsageError(
        "--model: the model is unclear; give --model DIR, or --config FILE with --random-weights");
  }
  if (random) command.common.model = command.config;
  const Engine engine = open_engine(command.common, Reads::kTokens);
  const auto* cpu = dynamic_cast<const CpuBackend*>(engine.backend.get());
  const DType weights = engine.model.product_dtype();
  // A GPU multiplies prompts by quantized weights in bf16.
  const DType dtype = cpu == nullptr && is_quantized(weights) ? DType::kBF16 : weights;
  const auto measure = [&] {
    return cpu != nullptr ? measure_cpu_limits(cpu->threads(), dtype)
                          : measure_cuda_limits(*engine.backend, dtype);
  };
  Limits limits = measure();
  double bandwidth = limits.read_bytes_per_second;
  Session session = engine.session();
  Sequence context = session.new_sequence();
  const int threads = cpu != nullptr ? cpu->threads() : 1;
  std::vector<BenchResult> results;
  bool complete = true;
  if (!command.json) print_heading(dtype, *engine.backend, limits);
  try {
    for (BenchResult& result : wanted_results(command)) {
      if (result.depth > context.length()) fill(command, session, context, result.depth);
      warm_up(session, context, result);
      const double waited = waited_for_cores();
      const auto start = Stopwatch::now();
      for (int64_t i = 0; i < command.reps; ++i) repeat(session, context, result);
      result.waited = (waited_for_cores() - waited) / (threads * seconds_since(start));
      result.read_before = bandwidth;
      const Limits after = measure();
      result.read_after = bandwidth = after.read_bytes_per_second;
      limits.flops_per_second = std::max(limits.flops_per_second, after.flops_per_second);
      if (!command.json) print_row(result, engine.model, limits);
      results.push_back(std::move(result));
    }
  } catch (const Interrupted&) {
    complete = false;
  }
  if (command.json) print_results(results, engine, limits);
  if (!complete)
    throw Error(fmt::format("interrupted; {} finished", counted(results.size(), "test was", "tests were")));
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto command = std::make_shared<BenchCommand>();
  CLI::App& sub =
      add_command(app, "bench", "Prefill and decode throughput vs the machine's limits", kMeasureCommands,
                  "lariat bench --config configs/tinyllama-1.1b.json --random-weights --gen 64");
  set_usage(sub, "--model DIR [options]\n--config FILE --random-weights [options]");
  add_model_option(sub, command->common, /*required=*/false);
  sub.add_option("--config", command->config, "config.json of a random model");
  sub.add_flag("--random-weights", command->common.open.random_weights, "random weights for --config");
  sub.add_option("-p,--prompt", command->prompts, "prompt lengths to prefill; 0: none")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 24));
  sub.add_option("-n,--gen", command->gen, "tokens to decode; 0: none")->check(CLI::Range(0, 1 << 24));
  sub.add_option("--depth", command->depths, "tokens already in the cache")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 24));
  sub.add_option("--reps", command->reps, "repetitions of each test")->check(CLI::Range(1, 1000));
  sub.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
