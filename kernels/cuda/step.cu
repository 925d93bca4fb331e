#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr int kWordsPerLaunch = 256;
constexpr size_t kSequenceWords = sizeof(Sequence) / sizeof(uint64_t);

using Words = ByValue<uint64_t, kWordsPerLaunch>;

// One block; thread i stores word i.
__global__ void store_words_kernel(uint64_t* to, const __grid_constant__ Words words, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = words.value[i];
}

}  // namespace

void CudaBackend::reserve(Mirror& mirror, size_t words) {
  if (mirror.host.size() >= words) return;
  words = std::bit_ceil(std::max<size_t>(words, kWordsPerLaunch));
  mirror.device = Buffer();
  mirror.device = allocate(words * sizeof(uint64_t));
  mirror.host.assign(words, ~uint64_t{0});  // copy of the device memory, word for word
  fill_bytes(mirror.device.data(), 0xff, mirror.device.bytes(), stream());
}

void CudaBackend::send(Mirror& mirror, size_t at, const void* words, size_t count) {
  const auto* bytes = static_cast<const std::byte*>(words);
  const auto word = [&](size_t i) {
    uint64_t value = 0;
    std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
    return value;
  };
  size_t first = 0, end = count;
  while (first < end && word(first) == mirror.host[at + first]) ++first;
  while (end > first && word(end - 1) == mirror.host[at + end - 1]) --end;
  for (; first < end; first += kWordsPerLaunch) {
    Words chunk = {};
    const size_t n = std::min<size_t>(kWordsPerLaunch, end - first);
    for (size_t i = 0; i < n; ++i) chunk.value[i] = mirror.host[at + first + i] = word(first + i);
    launch(store_words_kernel, dim3(1), dim3(kWordsPerLaunch), 0, stream(),
           static_cast<uint64_t*>(mirror.device.data()) + at + first, chunk, static_cast<int>(n));
  }
}

void CudaBackend::send_sequences(SequenceTables& tables, std::span<const StepSequence> sequences) {
  std::vector<Sequence> described;
  int64_t rows = 0, longest = 0, length = kKvPage;
  for (const StepSequence& s : sequences) {
    described.push_back({s.first_position, rows, s.n_tokens});
    rows += s.n_tokens;
    longest = std::max(longest, s.n_tokens);
    length = std::max(length, s.first_position + s.n_tokens);
  }
  tables.count = static_cast<int64_t>(sequences.size());
  tables.rows = rows;
  tables.longest = longest;
  // Rounded to a power of two: a record lasts until the sequence has doubled.
  tables.planned_length = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
  tables.pitch = std::max(tables.pitch, tables.planned_length / kKvPage);
  reserve(tables.sequences, sequences.size() * kSequenceWords);
  send(tables.sequences, 0, described.data(), sequences.size() * kSequenceWords);
  const auto pitch = static_cast<size_t>(tables.pitch);
  reserve(tables.pages, sequences.size() * pitch);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].pages == nullptr) continue;  // the step needs no pages
    const int64_t positions = sequences[i].first_position + sequences[i].n_tokens;
    send(tables.pages, i * pitch, sequences[i].pages, static_cast<size_t>(ceil_div(positions, kKvPage)));
  }
}

DeviceStep CudaBackend::on_device(const SequenceTables& tables) {
  return {static_cast<const Sequence*>(tables.sequences.device.data()),
          static_cast<void* const*>(tables.pages.device.data()), tables.pitch, tables.count};
}

const CudaBackend::SequenceTables& CudaBackend::enter(const Step& step) {
  send_sequences(step_, step.sequences);
  return step_;
}

const double* CudaBackend::send_frequencies(std::span<const double> words) {
  const auto holds = [&](const Mirror& mirror) {
    return mirror.host.size() >= words.size() &&
           std::memcmp(mirror.host.data(), words.data(), words.size_bytes()) == 0;
  };
  // The latest used mirror moves to the front.
  const auto found = std::ranges::find_if(frequencies_, holds);
  const auto used = found == frequencies_.end() ? found - 1 : found;
  std::rotate(frequencies_.begin(), used, used + 1);
  Mirror& mirror = frequencies_.front();
  if (!holds(mirror)) {
    reserve(mirror, words.size());
    send(mirror, 0, words.data(), words.size());
  }
  return static_cast<const double*>(mirror.device.data());
}

}  // namespace lariat
