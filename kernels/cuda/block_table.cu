#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"

// The pointer arrays of the KV cache on the device.
namespace lariat {
namespace {

using namespace cuda;

constexpr int kPointersPerLaunch = 256;
constexpr size_t kMaxTables = 4096;  // beyond this many, those of caches that are long gone are dropped

using Pointers = ByValue<void*, kPointersPerLaunch>;

// One block; thread i stores pointer i. Sent as an argument, so nothing on the host has to wait for a copy.
__global__ void store_pointers_kernel(void** table, const __grid_constant__ Pointers pointers, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) table[i] = pointers.value[i];
}

}  // namespace

void* const* CudaBackend::device_blocks(void* const* host_blocks, int64_t n_positions) {
  const auto n_blocks = static_cast<size_t>(ceil_div(n_positions, kKvPage));
  ++table_clock_;
  if (block_tables_.size() >= kMaxTables) {
    std::erase_if(block_tables_,
                  [&](const auto& entry) { return entry.second.last_use + kMaxTables / 2 < table_clock_; });
  }
  BlockTable& table = block_tables_[host_blocks];
  table.last_use = table_clock_;
  if (table.device.bytes() < n_blocks * sizeof(void*)) {
    table.device = allocate(std::max<size_t>(2 * n_blocks, 16) * sizeof(void*));
    table.host.clear();
  }
  auto** device = static_cast<void**>(table.device.data());
  if (table.host.size() < n_blocks) table.host.resize(n_blocks, nullptr);
  const auto [changed, unused] = std::mismatch(host_blocks, host_blocks + n_blocks, table.host.begin());
  for (auto first = static_cast<size_t>(changed - host_blocks); first < n_blocks;
       first += kPointersPerLaunch) {
    const size_t count = std::min<size_t>(kPointersPerLaunch, n_blocks - first);
    launch(store_pointers_kernel, dim3(1), dim3(kPointersPerLaunch), 0, stream_, device + first,
           by_value<void*, kPointersPerLaunch>(host_blocks, first, count), static_cast<int>(count));
  }
  std::copy(changed, host_blocks + n_blocks, table.host.begin() + (changed - host_blocks));
  return device;
}

}  // namespace lariat
