#include "tools/json_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <iostream>

#include "engine/eval/measure/token_source.h"
#include "engine/interrupt.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "models/io/text_file.h"
#include "tools/output.h"
#include "tools/signals.h"

namespace lariat {
namespace {

bool next_line(std::istream& in, const std::string& name, std::string& line) {
  line.clear();
  for (int c = in.get(); c != EOF && c != '\n'; c = in.get()) {
    line += static_cast<char>(c);
    if (line.size() > size_t{1} << 30) throw Error(name + ": a line exceeds 1 GiB; split it");
  }
  return !in.eof() || !line.empty();
}

}  // namespace

void for_lines(const std::filesystem::path& file,
               const std::function<bool(int64_t number, const std::string& line)>& read) {
  const std::string name = input_name(file);
  check_text(file);
  std::ifstream opened;
  if (file != "-") opened.open(file, std::ios::binary);
  std::istream& in = file == "-" ? std::cin : opened;
  int64_t number = 0;
  for (std::string line; next_line(in, name, line);) {
    stop_if(&interrupted());
    if (++number == 1) line.erase(0, line.size() - without_bom(line, name).size());
    if (line.find_first_not_of(" \t\r") != std::string::npos && !read(number, line)) return;
  }
}

std::string say_refusal(const Error& error, const std::string& place) {
  std::string text = with_options(error.what());
  if (!text.starts_with(place)) text = place + ": " + text;
  say(text);
  return text;
}

void answer_lines(const std::filesystem::path& file, bool quiet, const LineWork& work) {
  const std::string name = input_name(file);
  Progress progress("answering", 0, quiet);
  struct Line {
    nlohmann::ordered_json answer;
    std::string error;  // reason of a refusal
  };
  std::vector<Line> group;
  int64_t answered = 0, bad = 0;
  const auto read = [&](int64_t number, const std::string& line) {
    auto& [begin, error] = group.emplace_back();
    begin["line"] = number;
    const std::string place = fmt::format("{}: line {}", name, number);
    try {
      const nlohmann::json object = parse_json_object(line, place);
      const JsonFields fields(object, place, "", JsonFields::with_key);
      if (const auto* id = fields.find("id")) begin["id"] = *id;
      for (const std::string& key : fields.keys()) {
        if (key != "id" && !has_name(work.keys, key))
          fields.fail(key, fmt::format("unknown; use id, {}, or an option for all lines",
                                       fmt::join(split(work.keys, ' '), ", ")));
      }
      work.read(fields);
    } catch (const Error& e) {
      error = say_refusal(e, place);
      ++bad;
    }
  };
  const auto answer = [&] {
    const std::vector<nlohmann::ordered_json> answers = work.answer();
    progress.clear();
    auto next = answers.begin();
    for (auto& [json, error] : group) {
      json.update(error.empty() ? *next++ : nlohmann::ordered_json{{"error", error}});
      print_json(json);
    }
    answered += std::ssize(answers);
    group.clear();
    progress.update(0, counted(answered, "line"));
  };
  const bool complete = uninterrupted([&] {
    for_lines(file, [&](int64_t number, const std::string& line) {
      read(number, line);
      if (group.size() == work.at_once) answer();
      return std::cout.good();
    });
    answer();
    stop_if(&interrupted());
  });
  progress.clear();
  if (!quiet && answered > 0) say(work.summary(answered));
  if (!complete) throw Error(fmt::format("interrupted after {} of {}", counted(answered, "line"), name));
  if (bad > 0)
    throw Error(fmt::format("{}: {} failed, the other lines were answered; correct the failed lines", name,
                            counted(bad, "line")));
  if (answered == 0) throw Error(name + ": has no lines; give one JSON object per line");
}

nlohmann::ordered_json to_json(const std::vector<TokenLogprob>& top) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [token, logprob] : top) list.push_back({{"token", token}, {"logprob", logprob}});
  return list;
}

}  // namespace lariat
