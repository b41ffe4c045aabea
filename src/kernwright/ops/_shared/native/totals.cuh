// Totals in CUDA: of numbers in a thread, over lanes of a warp, and over a block.

#pragma once

#include <cuda_runtime.h>

namespace kernwright {

// As a tree, so that no addition waits for all before it.
template <int kCount>
__device__ __forceinline__ float total_of(const float* values) {
  if constexpr (kCount == 1) return values[0];
  else return total_of<kCount / 2>(values) + total_of<kCount - kCount / 2>(values + kCount / 2);
}

template <int kLanes>
__device__ __forceinline__ float lanes_total(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// total / width, where `per_element` is 1 / width as a float32 has it. Their product alone is off by roundings of the mean, and
// all that is left of a token of equal elements would be these: so what the product left of the total is shared out too.
__device__ __forceinline__ float mean_of(float total, int width, float per_element) {
  const float near = total * per_element;
  return fmaf(fmaf(-near, static_cast<float>(width), total), per_element, near);
}

// Over a block's threads, the same in each of them. Two buffers in turn: whoever writes one again has passed the barrier of the
// other, and so has everybody who read the first.
struct BlockTotal {
  float* parts;  // [2][32], shared
  int warps;
  int turn = 0;

  __device__ __forceinline__ float operator()(float value) {
    value = lanes_total<32>(value);
    float* own = parts + 32 * turn;
    turn ^= 1;
    const int lane = threadIdx.x % 32;
    if (lane == 0) own[threadIdx.x / 32] = value;
    __syncthreads();
    return lanes_total<32>(lane < warps ? own[lane] : 0.f);
  }
};

}  // namespace kernwright
