#pragma once
#include "kernels/communicator.h"

// Tests of several processes. Every rank runs every test; only rank 0 prints what passes, every rank prints
// what fails. A test that ends early on one rank (ASSERT, an exception) ends all ranks, as they may wait for
// it.
namespace lariat::test {

Communicator& ranks();  // of this run: one without mpirun

}  // namespace lariat::test
