#include <cublas_v2.h>
#include <dlfcn.h>

#include "kernels/cuda/runtime.h"
#include "kernels/error.h"

// cuBLAS, loaded at first use: a linked program would not start without the library.
namespace lariat::cuda {
namespace {

// Selects one of two declarations in the header.
using GemmEx = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const void*, const void*, cudaDataType, int, const void*, cudaDataType, int,
                              const void*, void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);

// Functions under their library names (cublas_v2.h renames some).
struct Cublas {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  decltype(static_cast<GemmEx*>(&cublasGemmEx)) gemm_ex = nullptr;
  decltype(&cublasGetStatusString) status_string = nullptr;
  std::string missing;  // reason if cuBLAS is unusable, or empty
};

Cublas load() {
  const std::string major = std::to_string(CUBLAS_VER_MAJOR), name = "libcublas.so." + major;
  Cublas cublas;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // default search path of libraries
  const char* error = library == nullptr ? dlerror() : nullptr;
  const std::string why = error == nullptr ? "" : error;
  if (library == nullptr) library = dlopen(("/usr/local/cuda/lib64/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    cublas.missing = "cuBLAS " + major + ": loading failed (" + why + "); install libcublas-" + major + "-" +
                     std::to_string(CUBLAS_VER_MINOR) +
                     " (NVIDIA packages) or add its folder to LD_LIBRARY_PATH";
    return cublas;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr)
      cublas.missing = name + ": no symbol " + symbol + "; install another build of cuBLAS " + major;
  };
  find(cublas.create, "cublasCreate_v2");
  find(cublas.destroy, "cublasDestroy_v2");
  find(cublas.set_stream, "cublasSetStream_v2");
  find(cublas.set_math_mode, "cublasSetMathMode");
  find(cublas.gemm_ex, "cublasGemmEx");
  find(cublas.status_string, "cublasGetStatusString");
  return cublas;
}

const Cublas& cublas() {
  static const Cublas loaded = load();
  return loaded;
}

void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error("cuBLAS: " + std::string(what) + ": " + cublas().status_string(status));
  }
}

cudaDataType_t blas_type(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

}  // namespace

std::string blas_unavailable_reason() { return cublas().missing; }

Blas blas_create(Stream stream) {
  if (!cublas().missing.empty()) throw Error(cublas().missing);
  cublasHandle_t blas = nullptr;
  require(cublas().create(&blas), "starting cuBLAS");
  require(cublas().set_stream(blas, stream), "starting cuBLAS");
  // f32 products stay f32: no TF32, no 16-bit intermediate sums.
  const auto mode =
      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  require(cublas().set_math_mode(blas, mode), "starting cuBLAS");
  return blas;
}

void blas_destroy(Blas blas) noexcept { cublas().destroy(blas); }

void gemm(Blas blas, const Matrix& x, const Matrix& w, const Matrix& out, const Scales& scales) {
  // cuBLAS is column-major and sees out transposed: out^T [m, n] = w [m, k] x^T [k, n].
  require(cublas().gemm_ex(blas, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(w.rows), static_cast<int>(x.rows),
                           static_cast<int>(x.cols), &scales.alpha, w.data, blas_type(w.dtype),
                           static_cast<int>(w.stride), x.data, blas_type(x.dtype), static_cast<int>(x.stride),
                           &scales.beta, out.data, blas_type(out.dtype), static_cast<int>(out.stride),
                           CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "matrix product");
}

}  // namespace lariat::cuda
