// Statistics of a token in torch's own order, every bit of them: exactness.py says what that order is. exact_kernel.cu
// includes this.

#pragma once

#include <cuda_runtime.h>

namespace kernwright {
namespace {

// So many channels' mean, and the sum of their squares about it.
struct Part {
  float mean, squares, count;
};

__device__ __forceinline__ void take(Part* part, float value, float inverse_count) {
  const float apart = __fsub_rn(value, part->mean), mean = __fmaf_rn(apart, inverse_count, part->mean);
  part->squares = __fmaf_rn(apart, __fsub_rn(value, mean), part->squares);
  part->mean = mean;
}

// In torch's formula, fused as its compiler fuses it.
__device__ __forceinline__ Part met(const Part& own, const Part& other) {
  const float apart = __fsub_rn(own.mean, other.mean), count = __fadd_rn(other.count, own.count);
  if (!(count > 0.f)) return {0.f, 0.f, count};
  const float one = 1.f / count, of_other = __fmul_rn(other.count, one), of_own = __fmul_rn(own.count, one);
  const float mean = __fmaf_rn(of_other, other.mean, __fmul_rn(of_own, own.mean));
  const float between = __fmul_rn(__fmul_rn(apart, apart), other.count);
  return {mean, __fmaf_rn(between, of_own, __fadd_rn(other.squares, own.squares)), count};
}

// The same of two parts of kCount channels each, whose reciprocal and shares are known when this is compiled.
template <int kCount>
__device__ __forceinline__ Part met_alike(const Part& own, const Part& other) {
  constexpr float kOne = 1.f / static_cast<float>(2 * kCount);
  constexpr float kHalf = static_cast<float>(kCount) * kOne;  // or beside it
  const float apart = __fsub_rn(own.mean, other.mean);
  const float mean = __fmaf_rn(kHalf, other.mean, __fmul_rn(kHalf, own.mean));
  const float between = __fmul_rn(__fmul_rn(apart, apart), static_cast<float>(kCount));
  return {mean, __fmaf_rn(between, kHalf, __fadd_rn(other.squares, own.squares)), static_cast<float>(2 * kCount)};
}

template <int kCount>
__device__ __forceinline__ Part met_of(const Part& own, const Part& other) {
  if constexpr (kCount > 0) return met_alike<kCount>(own, other);
  else return met(own, other);
}

// Only what reaches a warp's first lane counts, and for that lane a shuffle across is torch's shuffle down.
template <int kCount, int kApart = 16>
__device__ __forceinline__ Part met_in_warp(const Part& own) {
  Part other{__shfl_xor_sync(~0u, own.mean, kApart), __shfl_xor_sync(~0u, own.squares, kApart), own.count};
  if constexpr (kCount == 0) other.count = __shfl_xor_sync(~0u, own.count, kApart);
  const Part both = met_of<kCount>(own, other);
  if constexpr (kApart > 1) return met_in_warp<2 * kCount, kApart / 2>(both);
  else return both;
}

struct Statistics {
  float mean, inverse;

  __device__ __forceinline__ float normed(float value) const { return __fmul_rn(inverse, __fsub_rn(value, mean)); }
};

// Over a block's four warps, the same in each thread. kCount: of the channels that every thread has taken; 0: not all have
// taken as many.
template <int kCount>
__device__ __forceinline__ Statistics statistics_of(const Part& part, Part* parts, float width, float eps) {
  const Part own = met_in_warp<kCount>(part);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
  __syncthreads();
  const Part first = met_of<32 * kCount>(parts[0], parts[2]), second = met_of<32 * kCount>(parts[1], parts[3]);
  const Part whole = met_of<64 * kCount>(first, second);
  return {whole.mean, rsqrtf(__fadd_rn(whole.squares / width, eps))};
}

}  // namespace
}  // namespace kernwright
