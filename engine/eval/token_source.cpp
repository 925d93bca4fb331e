#include "engine/eval/token_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <utility>

#include "kernels/error.h"
#include "models/io/text_file.h"
#include "models/text/unicode.h"

namespace lariat {

std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where) {
  std::vector<int32_t> tokens;
  const char* separators = ", \t\r\n";
  for (size_t at = text.find_first_not_of(separators); at != std::string_view::npos;
       at = text.find_first_not_of(separators, at)) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0) {
      throw Error(fmt::format("{}: '{}' is not a token id; give numbers separated by commas or spaces", where,
                              text.substr(at, std::min<size_t>(end - at, 40))));
    }
    tokens.push_back(id);
    at = end;
  }
  if (tokens.empty()) throw Error(where + ": no token ids");
  return tokens;
}

std::optional<int32_t> text_bos(const Tokenizer& tokenizer) {
  return tokenizer.adds_bos() ? tokenizer.bos_id() : std::nullopt;
}

TokenSource::TokenSource(Reader reader, int64_t max_tokens)
    : reader_(std::move(reader)), max_tokens_(max_tokens) {}

TokenSource::TokenSource(std::vector<int32_t> tokens)
    : TokenSource([](std::vector<int32_t>&) { return false; }) {
  tokens_ = std::move(tokens);
}

bool TokenSource::has(int64_t index) {
  while (index >= known() && !ended_) {
    ended_ = !reader_(tokens_);
    if (max_tokens_ > 0 && known() >= max_tokens_) {
      tokens_.resize(static_cast<size_t>(max_tokens_ - first_));
      ended_ = true;
    }
  }
  return index < known();
}

int64_t TokenSource::count(int64_t limit) {
  if (limit > 0) has(limit - 1);
  return std::min(known(), limit);
}

std::span<const int32_t> TokenSource::range(int64_t begin, int64_t end) const {
  return std::span(tokens_).subspan(static_cast<size_t>(begin - first_), static_cast<size_t>(end - begin));
}

void TokenSource::forget(int64_t before) {
  const int64_t gone = std::min(before, known()) - first_;
  if (gone < static_cast<int64_t>(tokens_.size() / 2)) return;  // moved seldom enough to cost nothing
  tokens_.erase(tokens_.begin(), tokens_.begin() + gone);
  first_ += gone;
}

FileTokens::FileTokens(std::filesystem::path file, const Tokenizer& tokenizer, size_t piece_bytes)
    : name_(input_name(file)), encoder_(tokenizer, false), in_(&opened_), piece_(piece_bytes, '\0') {
  std::error_code ec;
  if (file == "-") {
    in_ = &std::cin;
  } else {
    if (std::filesystem::is_directory(file, ec)) throw Error(name_ + ": is a folder; name a text file");
    opened_.open(file, std::ios::binary);
    if (!opened_) throw Error(name_ + ": cannot be read; check the name and its permissions");
    bytes_ = std::filesystem::file_size(file, ec);
    if (ec) bytes_ = 0;
  }
  head_.resize(kTextHead);
  in_->read(head_.data(), kTextHead);
  head_.resize(static_cast<size_t>(in_->gcount()));
  refuse_lfs_pointer(head_, name_);
  bytes_read_ = head_.size() - without_bom(head_, name_).size();
  head_.erase(0, bytes_read_);
  if (head_.empty()) throw Error(name_ + ": the file is empty; name one with text in it");
}

bool FileTokens::read(std::vector<int32_t>& tokens) {
  if (!*in_ && head_.empty()) return false;
  in_->read(piece_.data(), static_cast<std::streamsize>(piece_.size()));
  if (in_->bad()) throw Error(name_ + ": reading failed");
  std::string_view piece(piece_.data(), static_cast<size_t>(in_->gcount()));
  std::string begun;  // of the first piece
  if (!head_.empty()) piece = begun = std::exchange(head_, {}).append(piece);
  refuse_invalid(piece, !*in_);
  bytes_read_ += piece.size();
  encoder_.push(piece, tokens);
  if (!*in_) encoder_.finish(tokens);
  return true;
}

void FileTokens::refuse_invalid(std::string_view piece, bool last) {
  const uintmax_t begin = bytes_read_ - unfinished_.size();
  const std::string text = unfinished_ + std::string(piece);
  unfinished_.clear();
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind == Utf8Step::kIncomplete && !last) {
      unfinished_ = text.substr(at);
      return;
    }
    if (step.kind != Utf8Step::kChar) {
      throw Error(fmt::format(
          "{}: byte {} is not UTF-8; convert the file (iconv -f latin1 -t utf-8, if that is what it is)",
          name_, begin + at));
    }
    at += step.length;
  }
}

namespace {

// How many tokens the text has, up to max_tokens: a guess from those that are known and the bytes they took;
// of a pipe those that are known.
int64_t guess_tokens(const TokenSource& source, const FileTokens& file) {
  if (source.ended()) return source.known();
  auto total = static_cast<double>(source.known());
  if (file.bytes() > 0 && file.bytes_read() > 0)
    total *= static_cast<double>(file.bytes()) / static_cast<double>(file.bytes_read());
  if (source.max_tokens() > 0) total = std::min(total, static_cast<double>(source.max_tokens()));
  return std::llround(total);
}

}  // namespace

double share_of_text(int64_t position, const TokenSource& source, const FileTokens& file) {
  const int64_t total = guess_tokens(source, file);
  return total > 0 ? std::min(1.0, static_cast<double>(position) / static_cast<double>(total)) : 0.0;
}

}  // namespace lariat
