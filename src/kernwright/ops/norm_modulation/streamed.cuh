// streamed: tokens too wide for a block's registers. kernel.cu includes this, and states its contract and its bytes.

#pragma once

#include "statistics.cuh"

namespace kernwright {

namespace {

// Three passes, the later ones out of the cache. What a thread reads of `sum` it wrote itself, so it waits for nobody.
template <int kVector>
__global__ void __launch_bounds__(kStreamedThreads) streamed(const __grid_constant__ Work w) {
  __shared__ float parts[64];
  BlockTotal block_total{parts, kStreamedThreads / 32};
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const int first = threadIdx.x * kVector, stride = blockDim.x * kVector;
  wait_for_turn();
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    float sum = 0.f;
    if (kResidual || !p.is_rms) {
      for (int column = first; column < p.width; column += stride) {
        auto raw = load_raw<kVector * kSize>(address(p.x, batch, token, column));
        if constexpr (kResidual) {
          float gate[kVector];
          load_gate(p, batch, token, column, gate);
          raw = summed<kVector>(raw, load_ahead<kVector * kSize>(address(p.residual, batch, token, column)), gate);
          store_raw(address(p.sum, batch, token, column), raw);
        }
        float values[kVector];
        widen<kType, kVector>(raw, values);
        sum += total_of<kVector>(values);
      }
    }
    const float near = p.is_rms ? 0.f : mean_of(block_total(sum), p.width, w.per_element);
    float lacking = 0.f;
    auto again = [&](int column, float(&values)[kVector]) {
      RawOf<kType, kVector> raw;
      if constexpr (kResidual) {
        raw = load_written<kVector * kSize>(address(p.sum, batch, token, column));
      } else {
        raw = load_raw<kVector * kSize>(address(p.x, batch, token, column));
      }
      widen<kType, kVector>(raw, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = (values[i] - near) - lacking;
    };
    float squares = 0.f, left = 0.f;
    for (int column = first; column < p.width; column += stride) {
      float values[kVector];
      again(column, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) squares = fmaf(values[i], values[i], squares);
      if constexpr (kFine) left += total_of<kVector>(values);
    }
    if (kFine && !p.is_rms) lacking = block_total(left) * w.per_element;
    const float inverse = rsqrtf(fmaf(-lacking, lacking, block_total(squares) * w.per_element) + p.eps);
    for (int column = first; column < p.width; column += stride) {
      float values[kVector];
      again(column, values);
      Affine<kVector> by;
      by.load(p, batch, token, column);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i] * inverse, by.gain[i], by.offset[i]);
      store_raw(address(p.y, batch, token, column), narrow(values));
    }
  }
}

}  // namespace

}  // namespace kernwright
