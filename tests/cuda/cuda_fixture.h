#pragma once
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/skip.h"

namespace lariat::test {

// The backend of a GPU (gpu_test) or of the SIMT shim (simt_test).
class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = cuda_unavailable_reason();
    if (!reason.empty()) LARIAT_SKIP(reason);
    cuda_ = make_cuda_backend();
  }

  std::unique_ptr<Backend> cuda_;
  ReferenceBackend reference_;
};

template <class Case>
class OnCudaWith : public OnCuda, public testing::WithParamInterface<Case> {};

}  // namespace lariat::test
