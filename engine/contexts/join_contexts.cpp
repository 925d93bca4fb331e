#include "engine/contexts/join_contexts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/contexts/memory_check.h"
#include "engine/runtime/request.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "kernels/step.h"
#include "models/io/json_fields.h"
#include "models/spec/rope.h"

namespace lariat {
namespace {

struct Part {
  const OpenedContext& context;
  size_t first = 0;               // first kept token
  std::vector<double> positions;  // original positions of all tokens

  const ContextRecord& record() const { return context.record; }
  int64_t tokens() const { return std::ssize(record().tokens) - static_cast<int64_t>(first); }
  int64_t cached() const { return std::max<int64_t>(record().length - static_cast<int64_t>(first), 0); }
};

struct Joint {
  std::vector<Part> parts;
  std::vector<int32_t> tokens;
  size_t axes = 1;                // positions per token: 3 with M-RoPE
  std::vector<double> positions;  // of all tokens, and M-RoPE positions of the last part's future tokens

  int64_t length() const {  // in RoPE positions
    const auto end = positions.begin() + static_cast<std::ptrdiff_t>(axes * tokens.size());
    return end == positions.begin() ? 0 : static_cast<int64_t>(*std::max_element(positions.begin(), end)) + 1;
  }
};

// Shifts each part after the largest position before it; distances within a part stay.
Joint lay_out(std::span<const OpenedContext> contexts, const JoinOptions& options,
              const std::vector<int32_t>& bos) {
  Joint joint;
  for (const OpenedContext& context : contexts) {
    joint.parts.push_back({context, 0, {}});
    if (!context.record.placed.empty()) joint.axes = 3;
  }
  for (size_t i = 0; i < contexts.size(); ++i) {
    Part& part = joint.parts[i];
    const std::vector<int32_t>& tokens = part.record().tokens;
    const bool drops = !options.keep_bos && !joint.tokens.empty();
    part.first = drops ? static_cast<size_t>(common_prefix(tokens, bos)) : 0;
    part.positions.assign(part.record().placed.begin(), part.record().placed.end());
    continue_positions(part.positions, joint.axes, tokens.size());
    std::span<const double> kept = part.positions;
    if (i + 1 < contexts.size()) kept = kept.first(joint.axes * tokens.size());
    kept = kept.subspan(joint.axes * part.first);
    if (kept.empty()) continue;
    const double moved = static_cast<double>(joint.length()) - *std::ranges::min_element(kept);
    if (*std::ranges::max_element(kept) + moved > kMaxPosition)
      throw Error(fmt::format("{}: its tokens would be placed beyond {}; join fewer contexts",
                              contexts[i].file.string(), kMaxPosition));
    for (const double position : kept) joint.positions.push_back(position + moved);
    joint.tokens.insert(joint.tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(part.first),
                        tokens.end());
  }
  return joint;
}

void copy_rows(Session& session, const ContextRecord& record, int64_t from, const KvCache& cache, int64_t to,
               int64_t n) {
  const KvGeometry& geometry = session.pool().geometry();
  for (int64_t end = from + n, run = 0; from < end; from += run, to += run) {
    run = std::min({end - from, kKvPage - from % kKvPage, kKvPage - to % kKvPage});
    const std::byte* source = record.pages.data() + static_cast<size_t>(from / kKvPage) * geometry.page_bytes;
    auto* target = static_cast<std::byte*>(cache.pages()[to / kKvPage]);
    for (const KvLayer& layer : geometry.layers) {
      for (const KvLayer::Rows& rows : layer.rows()) {
        const auto at = [&](int64_t head, int64_t place) {
          return rows.offset + static_cast<size_t>(kv_index(head, place, 0, 1)) * rows.bytes;
        };
        for (int64_t head = 0; head < layer.n_kv_heads; ++head)
          session.backend().copy_in(target + at(head, to), source + at(head, from),
                                    static_cast<size_t>(run) * rows.bytes);
      }
    }
  }
}

// Re-rotates each layer with its own frequencies: the sequence's, or a fixed RoPE's.
void rotate(Session& session, const KvCache& cache, const Part& part, const KeyRotation& rotation) {
  const ModelSpec& spec = session.model().spec;
  for (size_t table = 0; table < spec.ropes.size(); ++table) {
    std::vector<KvLayer> layers;
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      if (spec.layers[i].attention.rope == static_cast<int>(table))
        layers.push_back(session.pool().geometry().layers[i]);
    }
    const RopeFrequencies own = table == 0 ? cache.frequencies() : rope_frequencies(spec.ropes[table], 0);
    KeyRotation turned = rotation;
    turned.from.inv_freq =
        table == 0 ? std::span(part.record().frequencies.inv_freq) : std::span(own.inv_freq);
    turned.to.inv_freq = own.inv_freq;
    if (std::ranges::equal(turned.from.inv_freq, turned.to.inv_freq) &&
        std::ranges::equal(turned.from.positions, turned.to.positions))
      continue;
    session.backend().rerotate_keys({&turned, 1}, layers, spec.ropes[table].interleaved);
  }
}

// Appends n tokens of the part, from `first` on. Rotates whole pages: earlier tokens of the first page rotate
// by 0, which is bitwise identical.
void place(Session& session, KvCache& cache, const Joint& joint, const Part& part, int64_t first, int64_t n) {
  const int64_t begin = cache.length(), before = begin % kKvPage;
  copy_rows(session, part.record(), first, cache, begin, n);
  const auto positions = [&](const std::vector<double>& of, int64_t from) {
    std::vector<double> result(joint.axes * static_cast<size_t>(before), 0.0);
    const auto at = of.begin() + static_cast<std::ptrdiff_t>(joint.axes) * from;
    result.insert(result.end(), at, at + static_cast<std::ptrdiff_t>(joint.axes) * n);
    return result;
  };
  const std::vector<double> from = positions(part.positions, first), to = positions(joint.positions, begin);
  KeyRotation rotation{cache.pages() + begin / kKvPage, before + n, {{}, from}, {{}, to}};
  if (joint.axes > 1) rotation.axes = session.pool().mrope_axes();
  rotate(session, cache, part, rotation);
}

void check_join(const PositionMethod& method, const Session& session, const JoinOptions& options) {
  if (session.model().spec.learned_positions && !options.anew)
    throw UsageError("join: cached tokens cannot leave their learned positions; join with anew");
  if (!method.ranges.empty())
    throw UsageError("`position_method` " + method.name + ": not supported for joined contexts; remove it");
  if (session.options().stale_cache && !options.anew)
    throw UsageError(
        "`rope_cache` stale: joining re-rotates keys; use "
        "consistent, or join with anew");
}

}  // namespace

JoinOptions parse_join(std::string_view text) {
  JoinOptions options;
  const std::vector<std::string_view> words = split(text, '/');
  constexpr std::string_view kRecompute = "recompute=";
  bool known = words[0] == "rotate" || words[0] == "anew";
  options.anew = words[0] == "anew";
  if (words[0].starts_with(kRecompute)) {
    const char* const end = words[0].data() + words[0].size();
    const auto read = std::from_chars(words[0].data() + kRecompute.size(), end, options.recompute);
    known = read.ec == std::errc() && read.ptr == end && options.recompute > 0;
  }
  if (words.size() == 2) {
    options.keep_bos = words[1] == "bos=keep";
    known = known && (options.keep_bos || words[1] == "bos=drop");
  }
  if (!known || words.size() > 2)
    throw UsageError(fmt::format(
        "join method \"{}\": unknown; use rotate, recompute=N (N from 1) or anew, optionally with "
        "/bos=drop or /bos=keep",
        text));
  return options;
}

SavedContext join_contexts(Session& session, std::span<const std::filesystem::path> files,
                           const JoinOptions& options, const std::vector<int32_t>& bos,
                           const Session::ProgressFn& progress, const SequenceOptions& own) {
  Sequence sequence = session.new_sequence(own);
  check_join(sequence.method(), session, options);
  std::vector<OpenedContext> contexts;
  for (const std::filesystem::path& file : files) contexts.push_back(open_context(session, sequence, file));
  const Joint joint = lay_out(contexts, options, bos);
  check_length(session.options(), std::ssize(joint.tokens));
  check_memory(session, std::ssize(joint.tokens), 1,
               fmt::format("joined context of {}", counted(joint.tokens.size(), "token")));
  if (joint.axes > 1)
    sequence.set_mrope_positions(std::vector<int32_t>(joint.positions.begin(), joint.positions.end()));
  sequence.expect(joint.length());
  const auto read = [&](int64_t n) {
    const auto next = std::span(joint.tokens).subspan(static_cast<size_t>(sequence.length()));
    forward(session, {&sequence, next.first(static_cast<size_t>(n)), n}, {}, progress);
  };
  if (options.anew && !joint.parts.empty())
    read(std::ssize(joint.tokens) - joint.parts.back().tokens() + joint.parts.back().cached());
  for (size_t i = 0; !options.anew && i < joint.parts.size(); ++i) {
    const Part& part = joint.parts[i];
    const int64_t again = sequence.length() == 0 ? 0 : std::min(options.recompute, part.cached());
    if (again > 0) read(again);
    if (const int64_t n = part.cached() - again; n > 0) {
      session.extend(sequence, n, [&](KvCache& cache) {
        place(session, cache, joint, part, static_cast<int64_t>(part.first) + again, n);
      });
    }
    // Prefills a part's last token if it is not cached.
    if (const int64_t rest = part.tokens() - part.cached(); rest > 0 && i + 1 < joint.parts.size())
      read(rest);
  }
  sequence.expect(0);
  return {std::move(sequence), joint.tokens};
}

}  // namespace lariat
