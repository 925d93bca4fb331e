#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/eval/tasks/sized.h"

namespace lariat {
namespace {

using Texts = std::vector<std::string>;

// A person goes to a place, for facts_2 takes a thing and goes to another, for facts_3 to a third: the
// question needs one to three of these facts. Four facts are about other people.
TaskPrompt facts_prompt(TaskState& state, int64_t words) {
  constexpr const char *kPeople[] = {"Anna", "Boris", "Clara", "David"},
                       *kPlaces[] = {"attic", "cellar", "garden", "kitchen", "office", "stable"},
                       *kThings[] = {"apple", "lamp", "letter"};
  const int needed = state.options.task.back() - '0';
  const auto below = [&](size_t limit) -> size_t { return state.python.below(limit); };
  const auto goes = [&](size_t who, size_t place) {
    return fmt::format("{} went to the {}.", kPeople[who], kPlaces[place]);
  };
  const size_t person = below(4);
  const char* const thing = kThings[below(3)];
  const std::vector<size_t> places = state.python.sample(std::size(kPlaces), 3);
  Texts facts = {goes(person, places[0])};
  if (needed > 1) facts.push_back(fmt::format("{} picked up the {} there.", kPeople[person], thing));
  facts.push_back(goes(person, places[1]));
  if (needed > 2) facts.push_back(goes(person, places[2]));
  for (int i = 0; i < 4; ++i) {
    const std::string other = goes((person + 1 + below(3)) % 4, below(std::size(kPlaces)));
    facts.insert(facts.begin() + static_cast<std::ptrdiff_t>(below(facts.size() + 1)), other);
  }
  std::string question = fmt::format("Where is {}?", kPeople[person]);
  if (needed == 2) question = fmt::format("Where is the {}?", thing);
  if (needed == 3)
    question = fmt::format("Where was the {} before it was in the {}?", thing, kPlaces[places[2]]);
  return {fmt::format("Sentences about Anna, Boris, Clara and David stand in the text below, in the order of "
                      "events. Answer the question about them with one word.\n\n{}\n\nQuestion: {}",
                      essay_hay(state, words, facts), question),
          " Answer: In the",
          {kPlaces[places[1]]}};
}

// Two pairs are given as examples.
TaskPrompt json_prompt(TaskState& state, int64_t size) {
  if (size < 3) throw CannotDraw("json_kv: too few pairs");
  std::vector<std::pair<std::string, std::string>> pairs;
  nlohmann::ordered_json object;
  while (std::ssize(pairs) < size) {
    std::string key = state.python.uuid();
    object[key] = pairs.emplace_back(key, state.python.uuid()).second;
  }
  std::string text = fmt::format("Look up keys in the JSON object below.\n\n{}\n", object.dump(1));
  const std::vector<size_t> asked = state.python.sample(pairs.size(), 3);
  for (const size_t at : {asked[0], asked[1]})
    text += fmt::format("\nKey: {}\nValue: {}\n", pairs[at].first, pairs[at].second);
  return {text + fmt::format("\nKey: {}\n", pairs[asked[2]].first), "Value:", {pairs[asked[2]].second}};
}

// Links of one family line in random order.
TaskPrompt family_prompt(TaskState& state, int64_t size) {
  constexpr const char* kRelations[] = {"father", "mother", "grandfather", "grandmother"};
  Texts names, links;
  std::set<std::string> known;
  while (std::ssize(names) <= size) {
    std::string name = state.python.letters('A', 6);
    if (known.insert(name).second) names.push_back(std::move(name));
  }
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    const char* const relation = kRelations[state.python.below(std::size(kRelations))];
    links.push_back(state.python.below(2) == 0
                        ? fmt::format("{} is the {} of {}.", names[i + 1], relation, names[i])
                        : fmt::format("{} has a {} called {}.", names[i], relation, names[i + 1]));
  }
  state.python.shuffle(links);
  return {fmt::format("These sentences describe one family line:\n\n{}\n\nQuestion: Which of these people is "
                      "the earliest "
                      "ancestor of {}?",
                      fmt::join(links, "\n"), names.front()),
          fmt::format(" Answer: The earliest ancestor of {} is", names.front()),
          {names.back()}};
}

// Nodes at a distance of exactly `steps` from a node.
std::set<size_t> nodes_at(const std::vector<std::set<size_t>>& edges, size_t from, int64_t steps) {
  std::set<size_t> seen = {from}, layer = seen;
  for (; steps > 0; --steps) {
    std::set<size_t> next;
    for (const size_t node : layer) next.insert(edges[node].begin(), edges[node].end());
    std::erase_if(next, [&](size_t node) { return !seen.insert(node).second; });
    layer = std::move(next);
  }
  return layer;
}

// Parents of a node, or the nodes at a depth of a breadth-first search: 1 to 10 nodes.
TaskPrompt graph_prompt(TaskState& state, int64_t size) {
  constexpr size_t kMostNodes = 10;
  const auto count = static_cast<size_t>(size) / 2 + 2;
  const auto below = [&](size_t limit) -> size_t { return state.python.below(limit); };
  Texts names, lines;
  while (names.size() < count)
    names.push_back(fmt::format("{:05x}{:05x}", state.python.bits(20), state.python.bits(20)));
  std::vector<std::set<size_t>> edges(count), parents(count);
  for (int64_t i = 0; i < size; ++i) {
    const size_t from = below(count), to = (from + 1 + below(count - 1)) % count;
    if (!edges[from].insert(to).second) continue;
    parents[to].insert(from);
    lines.push_back(names[from] + " -> " + names[to]);
  }
  for (int tries = 0; tries < 100; ++tries) {
    const size_t node = below(count);
    const auto steps = static_cast<int64_t>(below(4));  // 0: parents
    const std::set<size_t> found = steps == 0 ? parents[node] : nodes_at(edges, node, steps);
    if (found.empty() || found.size() > kMostNodes) continue;
    const std::string question =
        steps == 0 ? fmt::format("Which nodes have an edge to {}?", names[node])
                   : fmt::format("Which nodes does a breadth-first search from {} find at depth {} exactly?",
                                 names[node], steps);
    Texts answers;
    for (const size_t at : found) answers.push_back(names[at]);
    return {fmt::format("A directed graph has the edges below.\n\n{}\n\n{} End the answer with a line such "
                        "as \"Final Answer: [a, b]\".",
                        fmt::join(lines, "\n"), question),
            "", answers};
  }
  throw CannotDraw("graphwalks: no node with an answer");
}

}  // namespace

const std::vector<OwnTask> kOwnTasks = {
    {"facts_1", "BABILong's qa1", 20, 100, facts_prompt, true},
    {"facts_2", "BABILong's qa2", 20, 100, facts_prompt, true},
    {"facts_3", "BABILong's qa3", 20, 100, facts_prompt, true},
    {"json_kv", "HELMET's json_kv", 100, 5, json_prompt},
    {"atc", "NeedleBench's Ancestral Trace Challenge", 32, 5, family_prompt},
    {"graphwalks", "GraphWalks", 256, 5, graph_prompt},
};

}  // namespace lariat
