// Pivot: a number near a token's mean, about which sum and squares are taken in one pass, so that threads meet once.
//
// Each thread knows it without asking another: it is the token's first element. The error of the variance grows with the
// square of its distance from the mean: at worst, where it holds all of the token's variance, by as many roundings of a
// float32 as the token is wide. That is 1e-4 of the output at 3072, a twentieth of what rounding to bfloat16 takes, and
// a half of what float16 takes. Float32 tokens are centred as in statistics.cuh.

#pragma once

#include "brief.cuh"
#include "statistics.cuh"

namespace kernwright {

namespace {

// normed = (value - pivot) * inverse + rest
struct Line {
  float inverse, rest;
};

template <bool kGate>
__device__ __forceinline__ float pivot_of(const Brief& w, const char* x, const char* residual, const char* gate) {
  if (w.is_rms) return 0.f;
  float own[1] = {first_of(x)};
  if constexpr (kResidual) {  // rounded as all sums are, so that nothing is left of those that equal it
    own[0] = fmaf(own[0], kGate ? first_of(gate) : 1.f, first_of(residual));
    widen<kHalf, 1>(narrow_to<kHalf, 1>(own), own);
  }
  return own[0];
}

// Sum and squares of values less the pivot.
struct Moments {
  float sum = 0.f, squares = 0.f;

  __device__ __forceinline__ void add(const float (&values)[8]) {
    float two[2] = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < 8; ++i) two[i % 2] = fmaf(values[i], values[i], two[i % 2]);
    squares += two[0] + two[1];
    sum += total_of<8>(values);
  }

  template <int kLanes>
  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      const float other_sum = __shfl_xor_sync(~0u, sum, step), other_squares = __shfl_xor_sync(~0u, squares, step);
      sum += other_sum, squares += other_squares;
    }
  }
};

template <typename Call>
__device__ __forceinline__ Line line_through(const Moments& all, const Call& w) {
  const float mean = w.is_rms ? 0.f : all.sum * w.per_element;
  const float variance = fmaf(-mean, mean, all.squares * w.per_element);
  const float inverse = rsqrtf((variance < 0.f ? 0.f : variance) + w.eps);  // what is not a number stays none
  return {inverse, -mean * inverse};
}

// Of all threads of a block. `parts` is shared: two floats for each warp. kWarps: 0 where only the launch knows them.
template <int kWarps>
__device__ __forceinline__ Line line_of(Moments own, float4* parts, const Brief& w) {
  float* const each = reinterpret_cast<float*>(parts);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  own.add_lanes<32>();
  if (kWarps != 1) {
    if (lane == 0) each[2 * warp] = own.sum, each[2 * warp + 1] = own.squares;
    __syncthreads();
    own = Moments{};
    if constexpr (kWarps == 0) {
      if (lane < static_cast<int>(blockDim.x / 32)) own.sum = each[2 * lane], own.squares = each[2 * lane + 1];
      own.add_lanes<32>();
    } else {
#pragma unroll
      for (int i = 0; i < kWarps / 2; ++i) {
        const float4 two = parts[i];
        own.sum += two.x + two.z, own.squares += two.y + two.w;
      }
      if constexpr (kWarps % 2) own.sum += each[2 * kWarps - 2], own.squares += each[2 * kWarps - 1];
    }
  }
  return line_through(own, w);
}

// A scale has one added; a weight has not, but where there is none it is one.
__device__ __forceinline__ Raw<16> finished(const float (&values)[8], const Line& of, const Raw<16>& gains,
                                            const Raw<16>& offsets, float constant) {
  float gain[8], offset[8], result[8];
  widen<kHalf, 8>(gains, gain);
  widen<kHalf, 8>(offsets, offset);
#pragma unroll
  for (int i = 0; i < 8; ++i) result[i] = fmaf(fmaf(values[i], of.inverse, of.rest), gain[i] + constant, offset[i]);
  return narrow_to<kHalf, 8>(result);
}

}  // namespace

}  // namespace kernwright
