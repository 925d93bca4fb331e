// Perplexity of a text in windows of N tokens: perplexity DIR FILE N
#include <iomanip>
#include <iostream>
#include <string>

#include "engine/eval/measure/perplexity.h"
#include "engine/lariat.h"
#include "kernels/error.h"

int main(int argc, char** argv) try {
  if (argc != 4) throw lariat::Error("usage: perplexity DIR FILE N");
  const lariat::Engine engine = lariat::Engine::open(argv[1]);
  lariat::Session session = engine.session();
  const lariat::TokenSource text = lariat::read_tokens(argv[2], *engine.tokenizer, /*max_tokens=*/0);

  lariat::PerplexityOptions options;
  options.ctx = {std::stoll(argv[3])};
  options.bos = lariat::text_bos(*engine.tokenizer);
  const auto results = lariat::measure_perplexity(session, text, options);
  std::cout << std::fixed << std::setprecision(4) << results[0].ppl() << "\n";
} catch (const std::exception& error) {
  std::cerr << "perplexity: " << error.what() << "\n";
  return 1;
}
