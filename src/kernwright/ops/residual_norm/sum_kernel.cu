// A sum of two and its norm for NVIDIA GPUs in the shapes of sum_policy.h, for one dtype of x, by the kernel of lean.cuh.
//
// Contract: close, as in norm_modulation/kernel.cu: the sum is rounded once, from the exact value, and has the eager chain's bits.
// Bytes per token of D elements of s bytes: 4 D s (x and residual in, both results out).
// Share of a copy's bandwidth on an H200 for rows of 100 MB or more: fused_add_rms_norm_ 96 to 97 %. tasks/add_norm/RESULTS.md has
// every row.

#include <iterator>

#include "launching.cuh"
#include "norm_modulation/lean.cuh"
#include "sum_policy.h"

namespace kernwright {

namespace {

static_assert(kResidual, "shapes are numbered after those of a residual");
constexpr int kShapesBefore = std::size(kLeanResidualShapes);  // the shapes below are numbered from here
template <>
constexpr LeanShape kLean<kShapesBefore> = kSumShapes[0];
template <>
constexpr LeanShape kLean<kShapesBefore + 1> = kSumShapes[1];
static_assert(std::size(kSumShapes) == 2, "each shape needs a specialization above");

template <int kShape = 0>
void (*sum_kernel_of(int shape))(Brief) {
  if constexpr (kSize == 2 && kShape < std::size(kSumShapes))
    return shape == kShape ? lean<kShapesBefore + kShape, false> : sum_kernel_of<kShape + 1>(shape);
  return nullptr;
}

}  // namespace

// Returns 0, or CUDA's number of the error.
int launch_sum(const Problem& p, int shape, int device, void* stream) {
  return on_device(device, [&] {
    const unsigned threads = 32 * kSumShapes[shape].warps;
    return launch_batches(sum_kernel_of(shape), p.tokens, p.batches, threads, brief_of<16>(p),
                          static_cast<cudaStream_t>(stream));
  });
}

}  // namespace kernwright
