#pragma once
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "engine/runtime/kv_cache.h"
#include "kernels/communicator.h"
#include "models/decoder.h"
#include "models/model.h"

// A model divided among several processes (models/split.h). Rank 0 runs the whole program; other ranks only
// repeat its calls to the decoder and its changes of cached keys, each with its own part of the model and its
// own pages.
namespace lariat {

// Rank 0's messages to the other ranks. Sessions are identified by their pools, pages by their addresses on
// rank 0.
class Ranks {
 public:
  // place: of rank 0.
  Ranks(Communicator& communicator, const Place& place) : communicator_(communicator), place_(place) {}
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();  // ends follow() on the other ranks

  Communicator& communicator() const { return communicator_; }
  const Place& place() const { return place_; }

  struct SessionShape {
    DType k_dtype, v_dtype;
    bool second_keys;
    int64_t chunk, latent_workspace;
    int activations;
  };
  void open(const KvPool& session, const SessionShape& shape);
  void close(const KvPool& session);
  // Returns rank 0's step, valid until the next call: pages of other ranks are null.
  Step forward(const KvPool& session, const Step& step, std::span<const std::vector<SequenceRope>> ropes,
               std::span<const VisibleGroup> visible);
  // Rows [first, first + count) of the last forward's states.
  void logits(const KvPool& session, int64_t first, int64_t count);
  // Then clears pages of other ranks.
  void rerotate(const KvPool& session, std::span<KeyRotation> rotations, bool second_keys, bool interleaved);
  Saturation saturated();  // sum of the other ranks
  void copy_page(const KvPool& session, const void* to, const void* from);
  void free_page(const KvPool& session, const void* page);
  // Copies page `index` of a sequence from and to the rank that owns it.
  void read_page(const KvPool& session, int64_t index, const void* page, std::span<std::byte> to);
  void write_page(const KvPool& session, int64_t index, const void* page, std::span<const std::byte> from);

 private:
  void* const* own(void* const* pages, int64_t positions);

  Communicator& communicator_;
  const Place place_;
  std::list<std::vector<void*>> own_;  // page tables with null for the pages of other ranks
  std::vector<StepSequence> sequences_;
};

// Repeats rank 0's calls until its Ranks is destroyed. Exceptions of the calls pass through.
void follow(Communicator& communicator, const Model& model, Backend& backend);

}  // namespace lariat
