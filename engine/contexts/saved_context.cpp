#include "engine/contexts/saved_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/saved_context_file.h"
#include "engine/runtime/ranks.h"
#include "kernels/error.h"
#include "models/io/mapped_file.h"

namespace lariat {
namespace {

constexpr size_t kFilePage = 4096;  // alignment of the data: mappings begin at a page

ContextIdentity identity_of(const Session& session, const Sequence& sequence) {
  const RopeScaling& rope = sequence.rope();
  const Model& model = session.model();
  if (!model.files.tensors)
    throw Error(model.spec.file.string() + ": contexts with random weights cannot be saved");
  ContextIdentity identity;
  identity.model = model_fingerprint(model);
  identity.tokenizer = tokenizer_fingerprint(model.files.texts);
  identity.weights = name_of(model.weights.format.dtype);
  identity.keys = name_of(session.options().k_dtype);
  identity.values = name_of(session.options().v_dtype);
  identity.rope = !model.spec.has_rope() ? "no pairs"
                                         : fmt::format("{} pairs, {}", rope.rotary_dim / 2,
                                                       rope.interleaved ? "interleaved" : "half-split");
  if (sequence.method().far)  // loading recomputes the far frequencies
    identity.rope += fmt::format(", theta {}, original context {}", rope.theta, rope.original_ctx);
  identity.method = sequence.method().name;
  return identity;
}

std::string describe(const RopeScaling& rope) {
  return fmt::format("{}, factor {}, theta {}, original context {}", name_of(rope.type), rope.factor,
                     rope.theta, rope.original_ctx);
}

// Clears a page from position `filled` on. second_keys: whether the sequence writes them, else clears all.
void clear_rest(std::span<std::byte> page, const KvGeometry& geometry, int64_t filled, bool second_keys) {
  for (const KvLayer& layer : geometry.layers) {
    for (const auto& [offset, bytes] : layer.rows()) {
      const bool unwritten = !second_keys && layer.second_k_offset > 0 && offset == layer.second_k_offset;
      const int64_t first = unwritten ? 0 : filled;
      for (int64_t head = 0; head < layer.n_kv_heads; ++head)
        std::memset(page.data() + offset + static_cast<size_t>(kv_index(head, first, 0, 1)) * bytes, 0,
                    static_cast<size_t>(kKvPage - first) * bytes);
    }
  }
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

ContextRecord record_of(const Sequence& sequence, std::span<const int32_t> tokens) {
  const KvCache& cache = sequence.cache();
  return {{},
          {},
          sequence.expected(),
          cache.frequencies(),
          cache.length(),
          {tokens.begin(), tokens.end()},
          {sequence.positions().mrope().begin(), sequence.positions().mrope().end()},
          {},
          sequence.positions().stretch()};
}

void refuse_divided_heads(const Session& session) {
  const Ranks* const ranks = session.options().ranks;
  if (ranks != nullptr && !ranks->place().by_sequence)
    throw UsageError("`split` heads: a page lacks the heads of other processes; use `split` sequence");
}

// Copies the page of positions from `first` on; a dropped page is zeros.
void copy_page(Session& session, const Sequence& sequence, int64_t first, std::span<std::byte> page) {
  const KvCache& cache = sequence.cache();
  const int64_t index = first / kKvPage;
  const KvPool::Page* const held = cache.held_pages()[static_cast<size_t>(index)].get();
  const KvPool& pool = session.pool();
  if (held != nullptr && pool.owns(index)) {
    session.backend().copy_out(page.data(), held->data(), page.size());
  } else if (held != nullptr) {
    pool.ranks()->read_page(pool, index, held->id(), page);
  }
  const int64_t filled = held == nullptr ? 0 : std::min(cache.length() - first, kKvPage);
  clear_rest(page, pool.geometry(), filled, second_keys_of(sequence.method().ranges) > 0);
}

}  // namespace

void save_context(Session& session, const Sequence& sequence, std::span<const int32_t> tokens,
                  const std::filesystem::path& file, const std::string& note) {
  refuse_divided_heads(session);
  const KvCache& cache = sequence.cache();
  if (const int64_t unread = std::ssize(tokens) - cache.length(); unread != 0 && unread != 1)
    throw Error(fmt::format("{}: {} tokens for a cache of {}; pass the cached tokens", file.string(),
                            tokens.size(), cache.length()));
  if (!cache.consistent())
    throw Error(file.string() +
                ": a stale cache cannot be saved, as its keys have several RoPE frequencies; use "
                "`rope_cache` consistent");
  ContextRecord record = record_of(sequence, tokens);
  record.identity = identity_of(session, sequence);
  record.scaling = describe(sequence.rope());
  record.note = note;
  const KvGeometry& geometry = session.pool().geometry();
  SafetensorsWriter writer(file, context_tensors(geometry, record, file),
                           {context_metadata(record), kFilePage});
  std::vector<std::byte> page(geometry.page_bytes);
  std::vector<uint64_t> checksums;
  for (int64_t first = 0; first < cache.length(); first += kKvPage) {
    copy_page(session, sequence, first, page);
    checksums.push_back(checksum(page));
    writer.append(page);
  }
  checksums.push_back(context_checksum(record));
  writer.append(bytes_of(record.frequencies.inv_freq));
  writer.append(std::as_bytes(std::span(&record.frequencies.attention_factor, 1)));
  writer.append(bytes_of(checksums));
  writer.append(bytes_of(record.tokens));
  writer.append(bytes_of(record.placed));
  writer.finish(true);
}

OpenedContext open_context(Session& session, const Sequence& sequence, const std::filesystem::path& file) {
  const auto mapped =
      std::make_shared<MappedFile>(file, session.backend().traits().host_memory ? MappedFile::Access::kPrivate
                                                                                : MappedFile::Access::kRead);
  mapped->prefetch();
  const KvPool& pool = session.pool();
  const ContextExpectations expected = {identity_of(session, sequence),
                                        pool.geometry(),
                                        sequence.cache().frequencies().inv_freq.size(),
                                        session.model().spec.vocab_size,
                                        session.options().max_ctx,
                                        !pool.mrope_axes().empty()};
  return {file, mapped, parse_saved_context({mapped->data(), mapped->size()}, file, expected)};
}

SavedContext load_context(Session& session, const std::filesystem::path& file, const SequenceOptions& own) {
  refuse_divided_heads(session);
  Sequence sequence = session.new_sequence(own);
  auto [name, bytes, record] = open_context(session, sequence, file);
  const auto mapped = std::static_pointer_cast<MappedFile>(bytes);
  KvPool& pool = sequence.cache().pool();
  const size_t page_bytes = pool.geometry().page_bytes;
  KvCache::Contents contents{{}, record.length, std::move(record.frequencies)};
  const auto is_zero = [](std::byte byte) { return byte == std::byte{}; };
  for (size_t at = 0; at < record.pages.size(); at += page_bytes) {
    // Dropped pages are zeros; only a position method drops pages.
    const std::span<const std::byte> content = record.pages.subspan(at, page_bytes);
    const int64_t index = std::ssize(contents.pages);
    if (!record.identity.method.empty() && std::ranges::all_of(content, is_zero)) {
      contents.pages.emplace_back();
    } else if (!pool.owns(index)) {
      contents.pages.push_back(pool.allocate(index));
      pool.ranks()->write_page(pool, index, contents.pages.back()->id(), content);
    } else if (session.backend().traits().host_memory) {
      std::byte* page = mapped->writable_data() + (record.pages.data() - mapped->data()) + at;
      contents.pages.push_back(std::make_shared<KvPool::Page>(pool, page, mapped));
    } else {
      contents.pages.push_back(pool.allocate(index));
      session.backend().copy_in(contents.pages.back()->data(), content.data(), page_bytes);
    }
  }
  sequence.expect(record.expected);  // first, as the frequencies of the keys follow it
  session.restore(sequence, std::move(contents), record.placed, record.stretch);
  return {std::move(sequence), std::move(record.tokens), std::move(record.note)};
}

}  // namespace lariat
