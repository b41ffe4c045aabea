// Statistics of a token in CUDA, out of the registers of a warp or of a block.
//
// In float32, centred before they are squared. Threads of a token meet once: each warp centres its own part about its own
// mean, and the parts are combined, which is as exact as centring all about one mean.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "totals.cuh"

namespace kernwright {

struct TokenStatistics {
  float near = 0.f, lacking = 0.f;  // the mean is their sum
  float inverse = 0.f;              // of the standard deviation, or of the root of the mean square

  // The difference first: a product with the mean would be off by its own rounding, which is more than a float32 result may
  // be off by, and more than any may where the deviation is as good as none.
  template <bool kFine, int kVector>
  __device__ __forceinline__ void norm(float (&values)[kVector], bool is_rms) const {
    const float from = is_rms ? 0.f : near, rest = -lacking * inverse;  // where near is 0 anyway, to say so saves registers
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float apart = values[i] - from;
      values[i] = kFine && !is_rms ? fmaf(apart, inverse, rest) : apart * inverse;
    }
  }
};

// 1 / sqrt(value). kFine: nearer than the GPU's own, by a step of Newton's, where that does not overflow.
template <bool kFine>
__device__ __forceinline__ float inverse_root(float value) {
  const float near = rsqrtf(value);
  if (!kFine || !(value > 1e-30f && value < 1e30f)) return near;
  return fmaf(0.5f * near, fmaf(-value * near, near, 1.f), near);
}

// Of what this thread has: values about `about`, and their squares. `holds(i)` says whether there is a vector i.
template <int kVectors, int kVector, typename Holds>
__device__ __forceinline__ void add_up(const float (&values)[kVectors][kVector], const Holds& holds, float about,
                                       float* sum, float* squares) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float apart[kVector], two[2] = {0.f, 0.f};
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      apart[j] = values[i][j] - about;
      two[j % 2] = fmaf(apart[j], apart[j], two[j % 2]);
    }
    *squares += holds(i) ? two[0] + two[1] : 0.f;
    *sum += holds(i) ? total_of<kVector>(apart) : 0.f;
  }
}

template <int kVectors, int kVector>
__device__ __forceinline__ float plain_sum(const float (&values)[kVectors][kVector]) {
  float sum = 0.f;  // vectors that are not there are zeros
#pragma unroll
  for (int i = 0; i < kVectors; ++i) sum += total_of<kVector>(values[i]);
  return sum;
}

// Of a token that one warp has.
template <bool kFine, int kVectors, int kVector, typename Holds>
__device__ __forceinline__ TokenStatistics warp_statistics(const float (&values)[kVectors][kVector], const Holds& holds,
                                                           bool is_rms, int width, float per_element, float eps) {
  TokenStatistics of;
  if (!is_rms) of.near = mean_of(lanes_total<32>(plain_sum(values)), width, per_element);
  float left = 0.f, squares = 0.f;
  add_up(values, holds, of.near, &left, &squares);
  if (kFine && !is_rms) of.lacking = lanes_total<32>(left) * per_element;
  const float mean = lanes_total<32>(squares) * per_element;
  of.inverse = inverse_root<kFine>(fmaf(-of.lacking, of.lacking, mean) + eps);
  return of;
}

// Of a token that all warps of a block have, `count` elements of it this one. `parts` are shared, one a warp, and not used
// by a norm before: nobody waits until they were read. `fill(values, with)` makes what a thread holds beside the token a
// number: zero to begin with, and here what the warp centres about, so that it counts as nothing.
//
// A float32 mean far from zero is off by its own roundings, by more than the eager chain's where sums are as long as here.
// So in float32 what is left once values are centred is summed too; rounded to half that width nobody would see it.
template <bool kFine, int kMostWarps, int kVectors, int kVector, typename Holds, typename Fill>
__device__ __forceinline__ TokenStatistics block_statistics(float (&values)[kVectors][kVector], const Holds& holds,
                                                            const Fill& fill, int count, bool is_rms, int width,
                                                            float per_element, float eps, float4* parts) {
  constexpr int kLanes = kMostWarps <= 4 ? 4 : kMostWarps <= 8 ? 8 : kMostWarps <= 16 ? 16 : 32;
  const float counted = static_cast<float>(count);
  float about = 0.f, sum = 0.f, left = 0.f, squares = 0.f;
  if (!is_rms) {
    sum = lanes_total<32>(plain_sum(values));
    about = count == 0 ? 0.f : __fdividef(sum, counted);  // need not be exact: what it is off by is accounted for
    fill(values, about);
  }
  add_up(values, holds, about, &left, &squares);
  squares = lanes_total<32>(squares);
  if (kFine && !is_rms) left = lanes_total<32>(left);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float4(kFine ? left : sum, about, squares, counted);
  __syncthreads();
  const int lane = threadIdx.x % kLanes;
  const float4 own = lane < static_cast<int>(blockDim.x / 32) ? parts[lane] : make_float4(0.f, 0.f, 0.f, 0.f);
  TokenStatistics of;
  float whole = own.z;
  if (!is_rms) {
    if constexpr (kFine) {
      of.near = parts[0].y;
      of.lacking = lanes_total<kLanes>(fmaf(own.y - of.near, own.w, own.x)) * per_element;
      const float apart = (own.y - of.near) - of.lacking;
      whole = fmaf(apart, fmaf(apart, own.w, 2.f * own.x), whole);
    } else {
      of.near = mean_of(lanes_total<kLanes>(own.x), width, per_element);
      const float apart = own.y - of.near;
      whole = fmaf(apart * apart, own.w, whole);
    }
  }
  of.inverse = inverse_root<kFine>(lanes_total<kLanes>(whole) * per_element + eps);
  return of;
}

}  // namespace kernwright
