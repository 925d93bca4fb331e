#include "engine/runtime/ranks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <type_traits>

#include "kernels/integers.h"

namespace lariat {
namespace {

enum class Call : uint32_t {
  kEnd,
  kSaturated,
  kOpen,
  kClose,
  kForward,
  kLogits,
  kRerotate,
  kCopyPage,
  kFreePage,
  kReadPage,
  kWritePage
};

// The first broadcast of a message; a longer message needs a second one.
constexpr size_t kFirstBytes = 4096;

class Writer {
 public:
  explicit Writer(Call call) : bytes_(sizeof(uint64_t)) { put(call); }

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    const auto* const from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  template <class T>
  void put_all(std::span<const T> values) {
    put(uint64_t{values.size()});
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void send(Communicator& to) {
    const uint64_t size = bytes_.size();
    std::memcpy(bytes_.data(), &size, sizeof size);
    bytes_.resize(std::max(bytes_.size(), kFirstBytes));
    to.broadcast(bytes_.data(), kFirstBytes);
    if (size > kFirstBytes) to.broadcast(bytes_.data() + kFirstBytes, size - kFirstBytes);
  }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(Communicator& from) : bytes_(kFirstBytes) {
    from.broadcast(bytes_.data(), kFirstBytes);
    const auto size = get<uint64_t>();
    bytes_.resize(std::max(size, kFirstBytes));
    if (size > kFirstBytes) from.broadcast(bytes_.data() + kFirstBytes, size - kFirstBytes);
  }

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  template <class T>
  std::vector<T> get_all() {
    std::vector<T> values(get<uint64_t>());
    if (!values.empty()) std::memcpy(values.data(), bytes_.data() + at_, values.size() * sizeof(T));
    at_ += values.size() * sizeof(T);
    return values;
  }

 private:
  std::vector<std::byte> bytes_;
  size_t at_ = 0;
};

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

// A call to a session with values of fixed size; more may be added before it is sent.
template <class... Values>
Writer call_of(Call call, const KvPool& session, const Values&... values) {
  Writer message(call);
  message.put(id_of(session));
  (message.put(values), ...);
  return message;
}

std::span<void* const> pages_of(void* const* pages, int64_t positions) {
  return {pages, static_cast<size_t>(ceil_div(positions, kKvPage))};
}

// The ids of tokens that were drawn on rank 0's backend.
std::vector<int32_t> known_tokens(Backend& backend, std::span<const int32_t> tokens) {
  std::vector<int32_t> known(tokens.begin(), tokens.end());
  const auto least = tokens.empty() ? 0 : std::ranges::min(tokens);
  if (least >= 0) return known;
  std::vector<int32_t> drawn(static_cast<size_t>(-least));  // drawn_token(row) is -1 - row
  backend.read_drawn(drawn);
  for (int32_t& token : known)
    if (token < 0) token = token_of(drawn[static_cast<size_t>(-1 - token)]);
  return known;
}

void put_rope(Writer& to, const SequenceRope& rope) {
  to.put_all(rope.inv_freq);
  to.put(rope.q_scale);
  to.put_all(rope.positions);
  to.put_all(rope.axes);
  to.put_all(rope.whole_q_scale);
  to.put_all(rope.phases);
}

// Keeps received values alive while spans point to them.
class Kept {
 public:
  template <class T>
  std::span<const T> keep(std::vector<T> values) {
    const auto kept = std::make_shared<std::vector<T>>(std::move(values));
    all_.push_back(kept);
    return *kept;
  }

 private:
  std::vector<std::shared_ptr<const void>> all_;
};

SequenceRope get_rope(Reader& from, Kept& kept) {
  SequenceRope rope;
  rope.inv_freq = kept.keep(from.get_all<double>());
  rope.q_scale = from.get<float>();
  rope.positions = kept.keep(from.get_all<double>());
  rope.axes = kept.keep(from.get_all<uint8_t>());
  rope.whole_q_scale = kept.keep(from.get_all<float>());
  rope.phases = kept.keep(from.get_all<double>());
  return rope;
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

  void forward(Reader& from) {
    Kept kept;
    const auto tokens = from.get_all<int32_t>();
    std::vector<StepSequence> sequences(from.get<uint64_t>());
    for (StepSequence& sequence : sequences) {
      sequence.first_position = from.get<int64_t>();
      sequence.n_tokens = from.get<int64_t>();
      sequence.pages = own_pages(from, kept).data();
    }
    std::vector<std::vector<SequenceRope>> ropes(from.get<uint64_t>());
    for (auto& of_sequences : ropes)
      for (size_t i = 0; i < sequences.size(); ++i) of_sequences.push_back(get_rope(from, kept));
    std::vector<VisibleGroup> visible(from.get<uint64_t>());
    for (VisibleGroup& group : visible) {
      group.ranges = kept.keep(from.get_all<VisibleRange>());
      group.n_sequences = from.get<uint64_t>();
    }
    backend_.use_activations(activations_);
    hidden_ = decoder_.forward({tokens, sequences}, ropes, visible);
  }
  void logits(Reader& from) {
    const auto first = from.get<int64_t>();
    decoder_.logits(hidden_.row_range(first, from.get<int64_t>()));
  }
  void rerotate(Reader& from) {
    Kept kept;
    const bool second_keys = from.get<bool>(), interleaved = from.get<bool>();
    std::vector<KeyRotation> rotations(from.get<uint64_t>());
    for (KeyRotation& rotation : rotations) {
      rotation.n_positions = from.get<int64_t>();
      rotation.pages = own_pages(from, kept).data();
      for (KeyRotation::Angles* angles : {&rotation.from, &rotation.to}) {
        angles->inv_freq = kept.keep(from.get_all<double>());
        angles->positions = kept.keep(from.get_all<double>());
      }
      rotation.axes = kept.keep(from.get_all<uint8_t>());
    }
    backend_.rerotate_keys(rotations, pool_.rotated_layers(second_keys), interleaved);
  }
  void copy_page(Reader& from) {
    const auto* const to = from.get<const void*>();
    const auto page = pages_.find(from.get<const void*>());
    if (page == pages_.end()) return;  // of another rank
    backend_.copy(own_page(to), page->second->data(), pool_.geometry().page_bytes);
  }
  void free_page(Reader& from) { pages_.erase(from.get<const void*>()); }
  void read_page(Reader& from) {
    const int owner = from.get<int>();
    void* const page = owner == ranks_.rank() ? own_page(from.get<const void*>()) : nullptr;
    ranks_.gather(page, parts_of(ranks_, owner, pool_.geometry().page_bytes), nullptr);
  }
  void write_page(Reader& from) {
    std::vector<std::byte> content(pool_.geometry().page_bytes);
    const bool mine = from.get<int>() == ranks_.rank();
    ranks_.broadcast(content.data(), content.size());
    if (mine) backend_.copy_in(own_page(from.get<const void*>()), content.data(), content.size());
  }

 private:
  void* own_page(const void* page) {
    if (page == nullptr) return nullptr;
    std::shared_ptr<KvPool::Page>& own = pages_[page];
    if (own == nullptr) own = pool_.allocate(0);
    return own->data();
  }
  std::span<void* const> own_pages(Reader& from, Kept& kept) {
    std::vector<void*> own;
    for (const void* page : from.get_all<const void*>()) {
      own.push_back(place_.owns(std::ssize(own)) ? own_page(page) : nullptr);
    }
    return kept.keep(std::move(own));
  }

  Backend& backend_;
  Communicator& ranks_;
  const Place place_;
  int activations_;
  KvPool pool_;
  Decoder decoder_;
  std::map<const void*, std::shared_ptr<KvPool::Page>> pages_;  // by address on rank 0
  Matrix hidden_;
};

}  // namespace

Ranks::~Ranks() { Writer(Call::kEnd).send(communicator_); }

void Ranks::open(const KvPool& session, const SessionShape& shape) {
  call_of(Call::kOpen, session, shape).send(communicator_);
}

void Ranks::close(const KvPool& session) { call_of(Call::kClose, session).send(communicator_); }

Step Ranks::forward(const KvPool& session, const Step& step, std::span<const std::vector<SequenceRope>> ropes,
                    std::span<const VisibleGroup> visible) {
  own_.clear();
  Writer message = call_of(Call::kForward, session);
  message.put_all(std::span<const int32_t>(known_tokens(session.backend(), step.tokens)));
  message.put(uint64_t{step.sequences.size()});
  for (const StepSequence& sequence : step.sequences) {
    message.put(sequence.first_position);
    message.put(sequence.n_tokens);
    message.put_all(pages_of(sequence.pages, sequence.first_position + sequence.n_tokens));
  }
  message.put(uint64_t{ropes.size()});
  for (const auto& of_sequences : ropes)
    for (const SequenceRope& rope : of_sequences) put_rope(message, rope);
  message.put(uint64_t{visible.size()});
  for (const VisibleGroup& group : visible) {
    message.put_all(group.ranges);
    message.put(uint64_t{group.n_sequences});
  }
  message.send(communicator_);
  sequences_.assign(step.sequences.begin(), step.sequences.end());
  for (StepSequence& sequence : sequences_)
    sequence.pages = own(sequence.pages, sequence.first_position + sequence.n_tokens);
  return {step.tokens, sequences_};
}

void Ranks::logits(const KvPool& session, int64_t first, int64_t count) {
  call_of(Call::kLogits, session, first, count).send(communicator_);
}

void Ranks::rerotate(const KvPool& session, std::span<KeyRotation> rotations, bool second_keys,
                     bool interleaved) {
  own_.clear();
  Writer message = call_of(Call::kRerotate, session, second_keys, interleaved, uint64_t{rotations.size()});
  for (const KeyRotation& rotation : rotations) {
    message.put(rotation.n_positions);
    message.put_all(pages_of(rotation.pages, rotation.n_positions));
    for (const KeyRotation::Angles* angles : {&rotation.from, &rotation.to}) {
      message.put_all(angles->inv_freq);
      message.put_all(angles->positions);
    }
    message.put_all(rotation.axes);
  }
  message.send(communicator_);
  for (KeyRotation& keys : rotations) keys.pages = own(keys.pages, keys.n_positions);
}

Saturation Ranks::saturated() {
  Writer(Call::kSaturated).send(communicator_);
  return sum_of(communicator_, {});
}

void Ranks::copy_page(const KvPool& session, const void* to, const void* from) {
  call_of(Call::kCopyPage, session, to, from).send(communicator_);
}

void Ranks::free_page(const KvPool& session, const void* page) {
  call_of(Call::kFreePage, session, page).send(communicator_);
}

void* const* Ranks::own(void* const* pages, int64_t positions) {
  if (!place_.by_sequence) return pages;
  std::vector<void*>& own = own_.emplace_back();
  for (void* const page : pages_of(pages, positions))
    own.push_back(place_.owns(std::ssize(own)) ? page : nullptr);
  return own.data();
}

void Ranks::read_page(const KvPool& session, int64_t index, const void* page, std::span<std::byte> to) {
  const int owner = place_.owner_of(index);
  call_of(Call::kReadPage, session, owner, page).send(communicator_);
  communicator_.gather(nullptr, parts_of(communicator_, owner, to.size()), to.data());
}

void Ranks::write_page(const KvPool& session, int64_t index, const void* page,
                       std::span<const std::byte> from) {
  call_of(Call::kWritePage, session, place_.owner_of(index), page).send(communicator_);
  communicator_.broadcast(const_cast<std::byte*>(from.data()), from.size());  // sends
}

void follow(Communicator& communicator, const Model& model, Backend& backend) {
  std::map<uint64_t, std::unique_ptr<Follower>> sessions;  // by id_of
  while (true) {
    Reader message(communicator);
    const auto call = message.get<Call>();
    if (call == Call::kEnd) return;
    if (call == Call::kSaturated) {
      sum_of(communicator, backend.saturated());
      continue;
    }
    std::unique_ptr<Follower>& session = sessions[message.get<uint64_t>()];
    switch (call) {
      case Call::kOpen:
        session =
            std::make_unique<Follower>(model, backend, communicator, message.get<Ranks::SessionShape>());
        break;
      case Call::kClose:
        session.reset();
        break;
      case Call::kForward:
        session->forward(message);
        break;
      case Call::kLogits:
        session->logits(message);
        break;
      case Call::kRerotate:
        session->rerotate(message);
        break;
      case Call::kCopyPage:
        session->copy_page(message);
        break;
      case Call::kFreePage:
        if (session) session->free_page(message);
        break;
      case Call::kReadPage:
        session->read_page(message);
        break;
      case Call::kWritePage:
        session->write_page(message);
        break;
      default:
        break;
    }
  }
}

}  // namespace lariat
