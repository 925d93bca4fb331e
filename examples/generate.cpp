// Continues a text with a checkpoint folder: generate DIR TEXT
#include <iostream>

#include "engine/lariat.h"
#include "engine/text/generate.h"
#include "kernels/error.h"

int main(int argc, char** argv) try {
  if (argc != 3) throw lariat::Error("usage: generate DIR TEXT");
  const lariat::Engine engine = lariat::Engine::open(argv[1]);
  lariat::Session session = engine.session();
  lariat::SavedContext context{session.new_sequence(), {}};

  lariat::AnswerOptions options;
  options.generate.max_new_tokens = 64;
  options.generate.eos_ids = engine.eos_ids();
  lariat::Answer answer;
  lariat::continue_context(session, *engine.tokenizer, context,
                           lariat::prompt_tokens({}, *engine.tokenizer, argv[2]), options,
                           /*continues=*/true, answer,
                           [](const std::string& piece) { return bool(std::cout << piece << std::flush); });
  std::cout << "\n";
} catch (const std::exception& error) {
  std::cerr << "generate: " << error.what() << "\n";
  return 1;
}
