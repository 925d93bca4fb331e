#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "engine/eval/passkey_prompt.h"
#include "engine/eval/sweep_results.h"
#include "models/text/tokenizer.h"
#include "tools/common.h"

// What perplexity, passkey and sweep share on the command line.
namespace lariat {

// The BOS that the model's texts begin with; unset when the tokenizer puts none there.
std::optional<int32_t> text_bos(const Tokenizer& tokenizer);

// Encodes as prompts are, BOS included.
TextCodec prompt_codec(const Tokenizer& tokenizer);

// Time left, from the share that is done: "1:05 left", or "" while too little is done to tell.
class Eta {
 public:
  std::string left(double done) const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A table for a terminal: columns aligned right (the first: left), two spaces between.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);

std::string fixed(double value, int digits);

// A share as a block, darker for more, with the counts: "█ 5/5", "▒ 2/5".
std::string heat_block(const RetrievalValue& value);

// Passkeys found by depth (rows) and length (columns) under one scaling, for a terminal.
std::string heat_map(const SweepTable& table, const std::string& scaling);

}  // namespace lariat
