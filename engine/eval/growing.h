#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/eval/perplexity.h"
#include "engine/eval/token_source.h"
#include "engine/session.h"

namespace lariat {

// The perplexity of a text that a growing context reads, as a conversation or a long generation lives it: a
// BOS, when the model has one (ctx counts it), and the text from its first token on, `step` tokens at a time
// until the context holds the longest of options.ctx. Each token is scored once, from what the cache holds at
// that moment: nothing knows how long the text will become, so the frequencies of a dynamic scale follow the
// length, and cached keys are rotated again (or left, under SessionOptions::stale_cache). Windows of
// measure_perplexity are read on the frequencies of their whole length and cannot see this.
//
// A step ends early where a dynamic scale moves, so that every token is read on the frequencies of its own
// length: any step gives the losses of step 1 within the rounding of prefill chunks (Session::prefill). With
// rope_steps 0 the scale moves at every token, and a step's tokens share the frequencies of its end.
//
// A text limited to n times what a context holds (TokenSource's max_tokens) is read in n such stretches, each
// from an empty context, together as far as memory allows; a rest is dropped. Without a limit it is one.
//
// One result for each of options.ctx: the positions below it. Of the options stride and method do not count.
// progress(tokens read, of all). Throws as measure_perplexity does, and Error when the step is less than 1.
std::vector<PerplexityResult> measure_growing(
    Session& session, TokenSource& text, const std::string& text_name, const PerplexityOptions& options,
    const std::function<void(int64_t done, int64_t of)>& progress = {});

}  // namespace lariat
