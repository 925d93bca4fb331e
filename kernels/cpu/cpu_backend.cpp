#include "kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "hwy/targets.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/lay_out_rows.h"
#include "kernels/error.h"
#include "kernels/integers.h"
#include "kernels/limits.h"
#include "kernels/parallel.h"

namespace lariat {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

std::string cpu_path() {
  const int64_t best = hwy::SupportedTargets() & -hwy::SupportedTargets();
  return std::string(hwy::TargetName(best)) + (cpu::has_avx512_bf16() ? " + bf16" : "") +
         (cpu::has_amx_bf16() ? " + AMX" : "");
}

CpuBackend::CpuBackend(int threads) : threads_(threads > 0 ? threads : cores()) { start_team(threads_); }

std::string CpuBackend::description() const {
  const std::string plural = threads_ == 1 ? " thread, " : " threads, ";
  return cpu_model() + ", " + std::to_string(threads_) + plural + cpu_path();
}

Traits CpuBackend::traits() const { return {.copies_bf16 = cpu::has_amx_bf16()}; }

Buffer CpuBackend::allocate(size_t bytes) {
  // Large blocks use huge pages, for fewer page walks. The tail uses small pages: a page of a KV cache would
  // otherwise take up to 2 MiB more.
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : 64;
  const size_t rounded = round_up<size_t>(std::max<size_t>(bytes, 1), 64);
  void* data = nullptr;
  if (rounded < bytes || posix_memalign(&data, alignment, rounded) != 0) {
    const bool large = bytes >= size_t{1} << 20;
    throw Error("no memory for a block of " + std::to_string(bytes >> (large ? 20 : 10)) +
                (large ? " MiB" : " KiB") +
                "; use a shorter context, a smaller `prefill_chunk` or a smaller dtype");
  }
  // A failure is harmless.
  if (alignment == kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return {this, data, bytes};
}

void CpuBackend::release(void* data, size_t) noexcept { std::free(data); }

void* CpuBackend::at_least(Buffer& buffer, size_t bytes) {
  if (buffer.bytes() < bytes) {
    buffer = Buffer();  // frees the old block first
    buffer = allocate(bytes);
  }
  return buffer.data();
}

LoadedWeight CpuBackend::load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> formats,
                                     DType compute) {
  LoadedWeight loaded = lay_out_weight(*this, host, formats, compute, true, cpu::has_amx_bf16());
  for (size_t i = 0; i < host.size(); ++i) {
    const Matrix& to = loaded.weight.blocks[i].w;
    if (to.data != host[i].m.data) cpu::lay_out_rows(host[i], 0, to, threads_);
  }
  return loaded;
}

}  // namespace lariat
