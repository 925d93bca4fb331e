// Continues a text with a checkpoint folder: generate DIR TEXT
#include "engine/generate.h"

#include <iostream>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/error.h"
#include "models/config.h"
#include "models/text/tokenizer.h"

int main(int argc, char** argv) try {
  if (argc != 3) throw lariat::Error("usage: generate DIR TEXT");
  const lariat::Tokenizer tokenizer = lariat::Tokenizer::load(argv[1]);
  lariat::CpuBackend backend(/*threads=*/0);  // every core
  const lariat::Model model =
      lariat::load_model(argv[1], lariat::load_config(argv[1]), backend, /*dtype=*/std::nullopt);
  lariat::Session session(model, backend, {.v_dtype = model.weights.embed.dtype});
  lariat::Sequence sequence = session.new_sequence();

  const std::vector<int32_t> prompt = tokenizer.encode(argv[2], tokenizer.adds_bos());
  lariat::StreamDecoder text(tokenizer);  // whole characters, as tokens come
  for (const int32_t id : prompt) text.push(id);
  lariat::GenerateOptions options{.max_new_tokens = 64, .eos_ids = model.spec.eos_token_ids};
  lariat::generate(session, sequence, prompt, options, [&](int32_t id) {
    std::cout << text.push(id) << std::flush;
    return true;
  });
  std::cout << text.flush() << "\n";
} catch (const std::exception& error) {
  std::cerr << "generate: " << error.what() << "\n";
  return 1;
}
