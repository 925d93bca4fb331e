#include "tests/faults/process.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

std::function<void()> with_address_space(int64_t mib) {
  return [mib] {
    const rlimit limit{static_cast<rlim_t>(mib) << 20, static_cast<rlim_t>(mib) << 20};
    setrlimit(RLIMIT_AS, &limit);
  };
}

// The dynamic linker needs this memory to load the program and its libraries.
int64_t smallest_start(const fs::path& dir) {
  int64_t fails = 1, works = 1 << 14;
  while (works - fails > 1) {
    const int64_t middle = (works + fails) / 2;
    Process version(dir, {"--version"}, with_address_space(middle));
    (version.wait().code == 0 ? works : fails) = middle;
  }
  return works;
}

class OutOfMemory : public testing::Test {
 protected:
  // Runs under rising limits, one error line each, until the memory suffices. Returns the lines.
  std::string errors(const std::vector<std::string>& arguments) {
    std::string lines;
    const fs::path dir = fresh_dir();
    const int64_t start = smallest_start(dir / "start");
    bool enough = false;
    for (int64_t more = 0; more < 2000 && !enough; more += 1 + more / 16) {
      Process process(dir / "run", arguments, with_address_space(start + more));
      const Outcome outcome = process.wait();
      enough = outcome.code == 0;
      if (enough) continue;
      SCOPED_TRACE(std::to_string(more) + " MiB more than the start needs");
      expect_one_line(outcome, "");
      lines += outcome.err;
    }
    EXPECT_TRUE(enough) << "2 GB must suffice";
    return lines;
  }
  static std::vector<std::string> generate(int prompt_words, const std::string& chunk) {
    std::string prompt;
    for (int i = 0; i < prompt_words; ++i) prompt += "word ";
    return with(words("generate --device cpu --threads 2 --max-new-tokens 2 --quiet"),
                {"--model", demo_model().string(), "--prefill-chunk", chunk, "--prompt", prompt});
  }
};

TEST_F(OutOfMemory, OfThreadsLoadingAndAShortPrompt) {
  const std::string lines = errors(generate(1, "512"));
  EXPECT_TRUE(names(lines, "1 of 2 | --threads"));
}

TEST_F(OutOfMemory, OfAGrowingCache) {
  const std::string lines = errors(generate(6000, "512"));
  EXPECT_TRUE(names(lines, "KV cache | 6002"));
}

TEST_F(OutOfMemory, OfAPrefillInOnePiece) {
  const std::string lines = errors(generate(4000, "0"));
  EXPECT_TRUE(names(lines, "--prefill-chunk"));
}

TEST_F(OutOfMemory, OfQuantising) {
  EXPECT_TRUE(names(errors(with(generate(1, "512"), {"--quantize", "q8"})), "--prefill-chunk"));
}

}  // namespace
}  // namespace lariat::test
