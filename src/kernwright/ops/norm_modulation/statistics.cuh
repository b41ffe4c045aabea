// Statistics: the mean and the deviation of a token, out of what its warps know of their parts.

#pragma once

#include "totals.cuh"
#include "work.cuh"

namespace kernwright {

namespace {

// A float32 mean far from zero is off by its own roundings, by more than the eager chain's where sums are as long as here.
// So in float32 what is left once values are centred is summed too; rounded to half that width nobody would see it.
constexpr bool kFine = kType == Type::kFloat32;

struct Statistics {
  float near, lacking;  // the mean is their sum
  float inverse;        // of the standard deviation, or of the root of the mean square

  // How far a number lies from the mean.
  __device__ __forceinline__ float from_mean(float value) const { return (value - near) - lacking; }
};

// What a warp knows of its part of a token: the sum of its values (kFine: of what centring left of them), what they were
// centred about, and their squares about that. For an RMS norm that is 0, and nobody looks at sum and count.
__device__ __forceinline__ float4 part_of(float sum, float about, float squares, int count) {
  return make_float4(sum, about, squares, static_cast<float>(count));
}

// A mean about which to centre need not be exact: what it is off by is accounted for.
__device__ __forceinline__ float about_mean(float sum, int count) {
  return count == 0 ? 0.f : __fdividef(sum, static_cast<float>(count));
}

// The whole out of its warps' parts, in each thread: squares about the parts' own means, and those means about the mean.
template <int kMostWarps>
__device__ __forceinline__ Statistics combined(const float4* parts, const Work& w) {
  constexpr int kLanes = kMostWarps <= 4 ? 4 : kMostWarps <= 8 ? 8 : kMostWarps <= 16 ? 16 : 32;
  const int lane = threadIdx.x % kLanes;
  const float4 own = lane < static_cast<int>(blockDim.x / 32) ? parts[lane] : make_float4(0.f, 0.f, 0.f, 0.f);
  const bool is_rms = w.problem.is_rms;
  Statistics of{0.f, 0.f, 0.f};
  if constexpr (kFine) {
    if (!is_rms) of.near = parts[0].y, of.lacking = lanes_total<kLanes>(fmaf(own.y - of.near, own.w, own.x)) * w.per_element;
    const float apart = of.from_mean(own.y);
    of.inverse = is_rms ? own.z : fmaf(apart, fmaf(apart, own.w, 2.f * own.x), own.z);
  } else {
    of.near = is_rms ? 0.f : mean_of(lanes_total<kLanes>(own.x), w.problem.width, w.per_element);
    const float apart = own.y - of.near;
    of.inverse = is_rms ? own.z : fmaf(apart * apart, own.w, own.z);
  }
  of.inverse = rsqrtf(lanes_total<kLanes>(of.inverse) * w.per_element + w.problem.eps);
  return of;
}

}  // namespace

}  // namespace kernwright
