#include "models/text/detokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/error.h"
#include "models/text/bpe.h"

namespace lariat::tok {
namespace {

using DecodeKind = DecodeStep::Kind;
// Most bytes of one token: a chain of replacements could double it repeatedly.
constexpr size_t kMaxReplaced = size_t{1} << 20;

// Byte of a token <0xNN>; -1: another token.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(&token[3], &token[5], byte, 16);
  return error == std::errc() && end == &token[5] ? static_cast<int>(byte) : -1;
}

// An added token outside the byte alphabet stays as text.
std::string alphabet_bytes(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Utf8Step c = utf8_step(token, at);
    const int byte = alphabet_to_byte(c.value);
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
    at += c.length;
  }
  return bytes;
}

}  // namespace

DecodeChain::DecodeChain(const std::vector<DecodeStep>& steps) {
  bool fused = false;
  for (const DecodeStep& step : steps) {
    states_.push_back(
        {.step = &step, .fused = fused, .strip_left = step.start, .utf8 = Utf8Assembler(step.bad_bytes)});
    fused |= step.kind == DecodeKind::kFuse || step.kind == DecodeKind::kByteLevel;
  }
}

void DecodeChain::feed(size_t index, std::string_view token, std::string& out) {
  if (index == states_.size()) {
    out += token;
    return;
  }
  State& state = states_[index];
  switch (state.step->kind) {
    case DecodeKind::kReplace: {
      const bool drop = state.step->drop_first && state.seen++ == 0;
      const std::string text = replace_all(token, state.step->pattern, drop ? "" : state.step->content);
      if (text.size() > std::max(kMaxReplaced, token.size())) {
        throw Error(
            fmt::format("the decoder expands a token to {} bytes; use another tokenizer.json", text.size()));
      }
      return feed(index + 1, text, out);
    }
    case DecodeKind::kByteFallback:
      return byte_fallback(index, token, out);
    case DecodeKind::kFuse:
      return feed(index + 1, token, out);
    case DecodeKind::kStrip:
      return state.fused ? strip_stream(index, token, out) : strip_token(index, token, out);
    case DecodeKind::kByteLevel:
      return push_bytes(index, alphabet_bytes(token), out);
    case DecodeKind::kJoin:
      if (state.seen++ > 0) feed(index + 1, state.step->content, out);
      return feed(index + 1, token, out);
  }
}

void DecodeChain::finish(std::string& out) {
  for (size_t i = 0; i < states_.size(); ++i) end_bytes(i, out);
}

void DecodeChain::push_bytes(size_t index, std::string_view bytes, std::string& out) {
  std::string text;
  states_[index].utf8.push(bytes, text);
  if (!text.empty()) feed(index + 1, text, out);
}

void DecodeChain::end_bytes(size_t index, std::string& out) {
  State& state = states_[index];
  const size_t bytes = state.utf8.held();
  if (bytes == 0) return;
  std::string text;
  state.utf8.finish(text);
  // An invalid run of bytes becomes one token U+FFFD per byte.
  const bool bad_run = state.step->bad_bytes == Utf8Assembler::Replace::kWhole && text.size() > bytes;
  const size_t size = bad_run ? text.size() / bytes : text.size();
  for (size_t at = 0; at < text.size(); at += size)
    feed(index + 1, std::string_view(text).substr(at, size), out);
}

void DecodeChain::byte_fallback(size_t index, std::string_view token, std::string& out) {
  const int byte = fallback_byte(token);
  if (byte < 0) {
    end_bytes(index, out);
    return feed(index + 1, token, out);
  }
  const char c = static_cast<char>(byte);
  push_bytes(index, {&c, 1}, out);
}

void DecodeChain::strip_token(size_t index, std::string_view token, std::string& out) {
  const DecodeStep& step = *states_[index].step;
  const size_t size = step.content.size();
  for (size_t i = 0; i < step.start && token.starts_with(step.content); ++i) token.remove_prefix(size);
  for (size_t i = 0; i < step.stop && token.ends_with(step.content); ++i) token.remove_suffix(size);
  feed(index + 1, token, out);
}

// The token arrives in pieces: its front is stripped at once, its possible end is held back.
void DecodeChain::strip_stream(size_t index, std::string_view text, std::string& out) {
  State& state = states_[index];
  const DecodeStep& step = *state.step;
  for (; state.strip_left > 0 && text.starts_with(step.content); --state.strip_left)
    text.remove_prefix(step.content.size());
  if (text.empty()) return;
  state.strip_left = 0;
  size_t ending = 0;
  std::string_view body = text;
  while (body.ends_with(step.content)) {
    body.remove_suffix(step.content.size());
    ++ending;
  }
  std::string ready;
  if (!body.empty()) {
    for (; state.held > 0; --state.held) ready += step.content;
    ready += body;
  }
  state.held += ending;
  // finish() drops the last `stop`.
  for (; state.held > step.stop; --state.held) ready += step.content;
  if (!ready.empty()) feed(index + 1, ready, out);
}

std::string token_bytes(const std::vector<DecodeStep>& steps, std::string_view token) {
  const auto has = [&](DecodeKind kind) {
    return std::any_of(steps.begin(), steps.end(), [&](const DecodeStep& step) { return step.kind == kind; });
  };
  if (token.empty() || has(DecodeKind::kByteLevel)) return alphabet_bytes(token);
  const int byte = has(DecodeKind::kByteFallback) ? fallback_byte(token) : -1;
  if (byte >= 0) return {static_cast<char>(byte)};
  constexpr std::string_view kBefore = "a";  // the token is then not the first
  DecodeChain chain(steps);
  std::string out;
  chain.push(kBefore, out);
  chain.push(token, out);
  chain.finish(out);
  return out.substr(std::min(kBefore.size(), out.size()));
}

}  // namespace lariat::tok
