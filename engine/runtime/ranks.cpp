#include "engine/runtime/ranks.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "engine/runtime/sequence.h"
#include "kernels/error.h"
#include "kernels/integers.h"

namespace lariat {
namespace {

// The first broadcast of a message; a longer message needs a second one.
constexpr size_t kFirstBytes = 4096;

// Writes or reads a message. Both ends run the same fields() below, the only description of a message.
class Archive {
 public:
  Archive() : bytes_(sizeof(uint64_t)), reads_(false) {}
  explicit Archive(Communicator& from) : bytes_(kFirstBytes), reads_(true) {
    from.broadcast(bytes_.data(), kFirstBytes);
    const size_t size = *reinterpret_cast<const uint64_t*>(bytes_.data());
    bytes_.resize(std::max(size, kFirstBytes));
    if (size > kFirstBytes) from.broadcast(bytes_.data() + kFirstBytes, size - kFirstBytes);
  }

  void send(Ranks& to) {
    const uint64_t size = bytes_.size();
    *reinterpret_cast<uint64_t*>(bytes_.data()) = size;
    bytes_.resize(std::max(bytes_.size(), kFirstBytes));
    on_all_ranks(&to, [&] {
      to.communicator().broadcast(bytes_.data(), kFirstBytes);
      if (size > kFirstBytes) to.communicator().broadcast(bytes_.data() + kFirstBytes, size - kFirstBytes);
    });
  }

  template <class... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }

 private:
  // A value that contains a span or a vector needs fields().
  template <class T>
  void one(T& value) {
    if constexpr (requires { fields(*this, value); }) {
      fields(*this, value);
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      std::span<const T> values(&value, 1);
      elements(values, 1);
      value = values.front();
    }
  }
  template <class T>
  void one(std::span<const T>& values) {
    uint64_t n = values.size();
    one(n);
    elements(values, n);
  }
  template <class T>
  void one(std::vector<T>& values) {
    uint64_t n = values.size();
    one(n);
    values.resize(n);
    for (T& value : values) one(value);
  }

  // A span that is read points into the message, where every value is aligned.
  template <class T>
  void elements(std::span<const T>& values, size_t n) {
    const size_t begin = at_;
    at_ += round_up(n * sizeof(T), sizeof(uint64_t));
    if (!reads_) bytes_.resize(at_);
    std::byte* const at = bytes_.data() + begin;
    if (reads_) {
      values = {reinterpret_cast<const T*>(at), n};
    } else {
      std::ranges::copy(std::as_bytes(values), at);
    }
  }

  std::vector<std::byte> bytes_;  // the size, then the fields
  size_t at_ = sizeof(uint64_t);
  bool reads_;
};

void fields(Archive& a, StepSequence& s) { a(s.first_position, s.n_tokens); }
void fields(Archive& a, VisibleGroup& g) { a(g.ranges, g.n_sequences); }
void fields(Archive& a, SequenceRope& r) {
  a(r.inv_freq, r.q_scale, r.positions, r.axes, r.whole_q_scale, r.phases);
}
void fields(Archive& a, KeyRotation::Angles& g) { a(g.inv_freq, g.positions); }
void fields(Archive& a, KeyRotation& r) { a(r.n_positions, r.from, r.to, r.axes); }

using PageTable = std::vector<int32_t>;  // ids

struct End {};
struct Saturated {};
struct Open {
  uint64_t session;
  Ranks::SessionShape shape;
};
struct Close {
  uint64_t session;
};
struct Forward {
  uint64_t session;
  std::span<const int32_t> tokens;
  std::vector<StepSequence> sequences;
  std::vector<PageTable> pages;
  std::vector<std::vector<SequenceRope>> ropes;
  std::vector<VisibleGroup> visible;
};
void fields(Archive& a, Forward& m) { a(m.session, m.tokens, m.sequences, m.pages, m.ropes, m.visible); }
struct Logits {
  uint64_t session;
  int64_t first, count;
};
struct Rerotate {
  uint64_t session;
  bool second_keys, interleaved;
  std::vector<KeyRotation> rotations;
  std::vector<PageTable> pages;
};
void fields(Archive& a, Rerotate& m) { a(m.session, m.second_keys, m.interleaved, m.rotations, m.pages); }
struct CopyPage {
  uint64_t session;
  int64_t index;  // of both pages in their sequences
  int32_t to, from;
};
struct ReadPage {
  uint64_t session;
  int64_t index;
  int32_t page;
};
struct WritePage {
  uint64_t session;
  int64_t index;
  int32_t page;
};

using Message =
    std::variant<End, Saturated, Open, Close, Forward, Logits, Rerotate, CopyPage, ReadPage, WritePage>;

template <class... Calls>
void fields(Archive& a, std::variant<Calls...>& message) {
  const size_t written = message.index();
  size_t call = written, i = 0;
  a(call);
  ((i++ == call && call != written ? void(message = Calls{}) : void()), ...);
  std::visit([&](auto& m) { a(m); }, message);
}

// Sum over all ranks.
Saturation sum_of(Communicator& ranks, const Saturation& own) {
  std::vector<Saturation> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather(&own, std::vector<size_t>(all.size(), sizeof own), all.data());
  Saturation sum;
  for (const Saturation& one : all) sum.keys += one.keys, sum.values += one.values;
  return sum;
}

// Identifies a session on all ranks.
uint64_t id_of(const KvPool& session) { return reinterpret_cast<uintptr_t>(&session); }

// Ids of the pages of each part, whose table is one of the caches'; -1: dropped.
template <class Part>
std::vector<PageTable> page_ids(std::span<const Part> parts, const std::vector<const KvCache*>& caches) {
  std::vector<PageTable> all;
  for (const Part& part : parts) {
    const auto cache = std::ranges::find(caches, part.pages, &KvCache::pages);
    PageTable& ids = all.emplace_back();
    for (const auto& page : (*cache)->held_pages()) ids.push_back(page == nullptr ? -1 : page->id());
  }
  return all;
}

// Sizes of a gather from one rank.
std::vector<size_t> parts_of(const Communicator& ranks, int from, size_t bytes) {
  std::vector<size_t> parts(static_cast<size_t>(ranks.size()));
  parts[static_cast<size_t>(from)] = bytes;
  return parts;
}

// A session of rank 0 on another rank.
class Follower {
 public:
  Follower(const Model& model, Backend& backend, Communicator& ranks, const Ranks::SessionShape& shape)
      : backend_(backend),
        ranks_(ranks),
        place_(model.split),
        activations_(shape.activations),
        pool_(model.cache_spec(), backend, shape.k_dtype, shape.v_dtype, shape.second_keys),
        decoder_(model.own_spec(), model.weights, model.spec.ropes, pool_.geometry(), backend, shape.chunk,
                 shape.latent_workspace, model.split, &ranks) {}

  void run(Forward& call) {
    set_pages(call.sequences, call.pages);
    backend_.use_activations(activations_);
    hidden_ = decoder_.forward({call.tokens, call.sequences}, call.ropes, call.visible);
  }
  void run(const Logits& call) { decoder_.logits(hidden_.row_range(call.first, call.count)); }
  void run(Rerotate& call) {
    set_pages(call.rotations, call.pages);
    backend_.rerotate_keys(call.rotations, pool_.rotated_layers(call.second_keys), call.interleaved);
  }
  void run(const CopyPage& call) {
    const void* const from = own_page(call.index, call.from);
    void* const to = own_page(call.index, call.to);
    if (to != nullptr) backend_.copy(to, from, pool_.geometry().page_bytes);
  }
  void run(const ReadPage& call) {
    const auto parts = parts_of(ranks_, place_.owner_of(call.index), pool_.geometry().page_bytes);
    ranks_.gather(own_page(call.index, call.page), parts, nullptr);
  }
  void run(const WritePage& call) {
    std::vector<std::byte> content(pool_.geometry().page_bytes);
    ranks_.broadcast(content.data(), content.size());
    void* const page = own_page(call.index, call.page);
    if (page != nullptr) backend_.copy_in(page, content.data(), content.size());
  }

 private:
  // Page `index` of a sequence; null for a dropped page or another rank's, which frees an earlier page of
  // this id.
  void* own_page(int64_t index, int32_t page) {
    if (page < 0) return nullptr;
    const auto id = static_cast<size_t>(page);
    if (id >= pages_.size()) pages_.resize(id + 1);
    if (!place_.owns(index)) {
      pages_[id] = nullptr;
    } else if (pages_[id] == nullptr) {
      pages_[id] = pool_.allocate(0);
    }
    return pages_[id] == nullptr ? nullptr : pages_[id]->data();
  }
  template <class Part>
  void set_pages(std::vector<Part>& parts, std::span<const PageTable> ids) {
    tables_.assign(parts.size(), {});
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const int32_t id : ids[i]) tables_[i].push_back(own_page(std::ssize(tables_[i]), id));
      parts[i].pages = tables_[i].data();
    }
  }

  Backend& backend_;
  Communicator& ranks_;
  const Place place_;
  int activations_;
  KvPool pool_;
  Decoder decoder_;
  std::vector<std::shared_ptr<KvPool::Page>> pages_;  // by id
  std::vector<std::vector<void*>> tables_;            // of the call
  Matrix hidden_;
};

}  // namespace

template <class Call>
void Ranks::send(Call call) {
  if (broken()) throw Error(reason_);
  Message message = std::move(call);
  Archive archive;
  archive(message);
  archive.send(*this);
}

void Ranks::fail() noexcept {
  if (broken()) return;
  try {
    throw;
  } catch (const std::exception& e) {
    std::snprintf(reason_, sizeof reason_, "%s", *e.what() != 0 ? e.what() : "failed");
  } catch (...) {
    std::snprintf(reason_, sizeof reason_, "interrupted");
  }
}

Ranks::~Ranks() {
  if (broken()) return;
  try {
    send(End());
  } catch (const std::exception&) {  // the other ranks would wait for ever
    communicator_.abort(1);
  }
}

void Ranks::open(const KvPool& session, const SessionShape& shape) { send(Open{id_of(session), shape}); }

void Ranks::close(const KvPool& session) noexcept {
  try {
    send(Close{id_of(session)});
  } catch (const std::exception&) {
    return;  // the next message fails, or the other ranks keep the session's memory
  }
}

void Ranks::forward(const KvPool& session, const Step& step, std::span<Sequence* const> sequences,
                    std::span<const std::vector<SequenceRope>> ropes, std::span<const VisibleGroup> visible) {
  std::vector<const KvCache*> caches;
  for (const Sequence* sequence : sequences) caches.push_back(&sequence->cache());
  send(Forward{id_of(session),
               step.tokens,
               {step.sequences.begin(), step.sequences.end()},
               page_ids(step.sequences, caches),
               {ropes.begin(), ropes.end()},
               {visible.begin(), visible.end()}});
}

void Ranks::logits(const KvPool& session, int64_t first, int64_t count) {
  send(Logits{id_of(session), first, count});
}

void Ranks::rerotate(const KvPool& session, std::span<const KeyRotation> rotations,
                     std::span<KvCache* const> caches, bool second_keys, bool interleaved) {
  send(Rerotate{id_of(session),
                second_keys,
                interleaved,
                {rotations.begin(), rotations.end()},
                page_ids(rotations, {caches.begin(), caches.end()})});
}

Saturation Ranks::saturated() {
  send(Saturated());
  return on_all_ranks(this, [&] { return sum_of(communicator_, {}); });
}

void Ranks::copy_page(const KvPool& session, int64_t index, int32_t to, int32_t from) {
  send(CopyPage{id_of(session), index, to, from});
}

void Ranks::read_page(const KvPool& session, int64_t index, int32_t page, std::span<std::byte> to) {
  const std::vector<size_t> parts = parts_of(communicator_, place_.owner_of(index), to.size());
  send(ReadPage{id_of(session), index, page});
  on_all_ranks(this, [&] { communicator_.gather(nullptr, parts, to.data()); });
}

void Ranks::write_page(const KvPool& session, int64_t index, int32_t page, std::span<const std::byte> from) {
  send(WritePage{id_of(session), index, page});
  on_all_ranks(this, [&] {
    communicator_.broadcast(const_cast<std::byte*>(from.data()), from.size());  // sends
  });
}

void follow(Communicator& communicator, const Model& model, Backend& backend) {
  std::map<uint64_t, std::unique_ptr<Follower>> sessions;  // by id_of
  while (true) {
    Archive archive(communicator);
    Message message;
    archive(message);
    if (std::holds_alternative<End>(message)) return;
    std::visit(
        [&]<class Call>(Call& call) {
          if constexpr (std::is_same_v<Call, Saturated>) {
            sum_of(communicator, backend.saturated());
          } else if constexpr (std::is_same_v<Call, Open>) {
            sessions[call.session] = std::make_unique<Follower>(model, backend, communicator, call.shape);
          } else if constexpr (std::is_same_v<Call, Close>) {
            sessions.erase(call.session);
          } else if constexpr (!std::is_same_v<Call, End>) {
            sessions.at(call.session)->run(call);
          }
        },
        message);
  }
}

}  // namespace lariat
