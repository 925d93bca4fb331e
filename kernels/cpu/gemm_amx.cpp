#include "kernels/cpu/gemm.h"

#if defined(__x86_64__)
#include "kernels/cpu/amx_product.h"
#include "kernels/cpu/gemv.h"
#include "kernels/parallel.h"

namespace lariat::cpu {

namespace {

void multiply_on_tiles(const Matrix& x, std::span<const Product> products, void* scratch, int threads) {
  amx_product<AmxTiles>(x, products, scratch, threads,
                        [threads](int64_t count, const auto& body) { for_tasks(threads, count, body); });
}

}  // namespace

void (*gemm_amx)(const Matrix&, std::span<const Product>, void*, int) = multiply_on_tiles;

void (*gemv_amx)(const Matrix&, const Matrix&, const Matrix&, int64_t, int64_t) = multiply_few_rows<AmxTiles>;

double amx_multiply_adds(int64_t repetitions, float* sink) {
  alignas(64) char tile[kTileBytes];
  std::memset(tile, 0x3c, sizeof(tile));  // 0.0115
  AmxTiles::configure(full_tiles());
  AmxTiles::zero<0>();
  AmxTiles::zero<1>();
  AmxTiles::zero<2>();
  AmxTiles::zero<3>();
  AmxTiles::load<4>(tile, 64);
  AmxTiles::load<5>(tile, 64);
  AmxTiles::load<6>(tile, 64);
  AmxTiles::load<7>(tile, 64);
  const int64_t rounds = repetitions / 8;  // 64 cycles each; repetitions of other kernels take about ten
  for (int64_t r = 0; r < rounds; ++r) {
    AmxTiles::dot<0, 4, 6>();
    AmxTiles::dot<1, 4, 7>();
    AmxTiles::dot<2, 5, 6>();
    AmxTiles::dot<3, 5, 7>();
  }
  AmxTiles::store<0>(tile, 64);
  AmxTiles::release();
  std::memcpy(sink, tile, sizeof(float));
  return 2.0 * 4 * kTileRows * kTileRows * kTileColumns * static_cast<double>(rounds);
}

}  // namespace lariat::cpu

#endif
