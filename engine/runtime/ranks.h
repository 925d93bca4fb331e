#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runtime/kv_cache.h"
#include "kernels/communicator.h"
#include "models/load/model.h"
#include "models/run/decoder.h"

// A model divided among several processes (models/load/split.h). Rank 0 runs the whole program; other ranks
// only repeat its calls to the decoder and its changes of cached keys, each with its own part of the model
// and its own pages.
namespace lariat {

class Sequence;

// Rank 0's messages to the other ranks. Sessions are identified by their pools, pages by their ids. A freed
// page needs no message: its memory on other ranks serves the next page of its id.
class Ranks {
 public:
  // place: of rank 0.
  Ranks(Communicator& communicator, const Place& place) : communicator_(communicator), place_(place) {}
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();  // ends follow() on the other ranks, unless broken()

  Communicator& communicator() const { return communicator_; }
  const Place& place() const { return place_; }
  // Whether an exception ended rank 0's part of a call (on_all_ranks). The other ranks still wait inside this
  // call, so every further message throws Error with the exception's reason; Communicator::abort ends them.
  bool broken() const { return *reason_ != 0; }
  void fail() noexcept;  // makes the ranks broken(); in the exception's handler

  struct SessionShape {
    DType k_dtype, v_dtype;
    bool second_keys;
    int64_t chunk, latent_workspace;
    int activations;
  };
  void open(const KvPool& session, const SessionShape& shape);
  void close(const KvPool& session) noexcept;
  // sequences, caches: theirs are all page tables of the step and of the rotations.
  void forward(const KvPool& session, const Step& step, std::span<Sequence* const> sequences,
               std::span<const std::vector<SequenceRope>> ropes, std::span<const VisibleGroup> visible);
  // Rows [first, first + count) of the last forward's states.
  void logits(const KvPool& session, int64_t first, int64_t count);
  void rerotate(const KvPool& session, std::span<const KeyRotation> rotations,
                std::span<KvCache* const> caches, bool second_keys, bool interleaved);
  Saturation saturated();  // sum of the other ranks
  // Page `index` of a sequence.
  void copy_page(const KvPool& session, int64_t index, int32_t to, int32_t from);
  // Copies it from and to the rank that owns it.
  void read_page(const KvPool& session, int64_t index, int32_t page, std::span<std::byte> to);
  void write_page(const KvPool& session, int64_t index, int32_t page, std::span<const std::byte> from);

 private:
  template <class Call>
  void send(Call call);

  Communicator& communicator_;
  const Place place_;
  char reason_[400] = "";  // of fail(), which may lack memory
};

// Rank 0's part of a call that the other ranks repeat. ranks: null for one process.
template <class Work>
auto on_all_ranks(Ranks* ranks, const Work& work) {
  try {
    return work();
  } catch (...) {
    if (ranks != nullptr) ranks->fail();
    throw;
  }
}

// Repeats rank 0's calls until its Ranks is destroyed. Exceptions of the calls pass through.
void follow(Communicator& communicator, const Model& model, Backend& backend);

}  // namespace lariat
