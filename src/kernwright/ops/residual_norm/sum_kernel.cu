// A sum of two and its norm for NVIDIA GPUs in the shapes of sum_variant.h, for one dtype of x: the kernel is lean.cuh's.
//
// Contract: close, as cuda_kernel.cu has it: the sum is rounded once, from the exact value, and has the eager chain's bits.
// Bytes a token of D elements of s bytes: 4 D s (x and residual in, both results out).
// Share of a copy's bandwidth, judged on an H200, of rows of 100 MB or more: fused_add_rms_norm_ 95 to 97 %. Row by row:
// tasks/add_norm/RESULTS.md.

#include <iterator>

#include "launching.cuh"
#include "norm_modulation/lean.cuh"
#include "sum_policy.h"

namespace kernwright {

namespace {

static_assert(kResidual, "the table that these are counted on from is that of sums");
constexpr int kShapesBefore = std::size(kLeanResidualShapes);  // these are counted on from there
template <>
constexpr LeanShape kLean<kShapesBefore> = kSumShapes[0];
template <>
constexpr LeanShape kLean<kShapesBefore + 1> = kSumShapes[1];
static_assert(std::size(kSumShapes) == 2, "each needs a line above");

template <int kShape = 0>
void (*sum_kernel_of(int shape))(Brief) {
  if constexpr (kSize == 2 && kShape < std::size(kSumShapes))
    return shape == kShape ? lean<kShapesBefore + kShape, false> : sum_kernel_of<kShape + 1>(shape);
  return nullptr;
}

}  // namespace

// 0, or CUDA's number for what went wrong.
int launch_sum(const Problem& p, int shape, int device, void* stream) {
  return on_device(device, [&] {
    const unsigned threads = 32 * kSumShapes[shape].warps;
    return launch_batches(sum_kernel_of(shape), p.tokens, p.batches, threads, brief_of<16>(p),
                          static_cast<cudaStream_t>(stream));
  });
}

}  // namespace kernwright
