// small: several tokens a block, in registers. kernel.cu includes this, and states its contract and its bytes.

#pragma once

#include "statistics.cuh"

namespace kernwright {

namespace {

// A group of kLanes threads has kTokens tokens, as far apart as a block has groups. With vectors a thread has one of each
// token; where only single elements can be loaded, kSteps of them.
template <int kVector, int kSteps, int kLanes, int kTokens>
__global__ void __launch_bounds__(kThreadsOfSmall, kResidual ? kBlocksOfSmallResidual : kBlocksOfSmall)
    small(const __grid_constant__ Work w) {
  constexpr int kGroups = kThreadsOfSmall / kLanes;
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const int lane = threadIdx.x % kLanes;
  const uint32_t first = blockIdx.x * (kGroups * kTokens) + threadIdx.x / kLanes;
  auto column = [&](int i) { return (i * kLanes + lane) * kVector; };
  auto is_there = [&](int n, int i) { return first + n * kGroups < p.tokens && column(i) < p.width; };

  RawOf<kType, kVector> x[kTokens][kSteps], residual[kResidual ? kTokens : 1][kResidual ? kSteps : 1];
  wait_for_turn();
#pragma unroll
  for (int n = 0; n < kTokens; ++n)
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      x[n][i] = RawOf<kType, kVector>{};
      if (!is_there(n, i)) continue;
      const uint32_t token = first + n * kGroups;
      x[n][i] = load_ahead<kVector * kSize>(address(p.x, batch, token, column(i)));
      if constexpr (kResidual)
        residual[n][i] = load_ahead<kVector * kSize>(address(p.residual, batch, token, column(i)));
    }
  // With several tokens they have these in common.
  Affine<kVector> by[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    if (is_there(0, i)) by[i].load(p, batch, first, column(i));

#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    const uint32_t token = first + n * kGroups;
    float values[kSteps][kVector], sum = 0.f, mean = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if constexpr (kResidual) {
        if (is_there(n, i)) {
          float gate[kVector];
          load_gate(p, batch, token, column(i), gate);
          x[n][i] = summed<kVector>(x[n][i], residual[n][i], gate);
          store_raw(address(p.sum, batch, token, column(i)), x[n][i]);
        }
      }
      widen<kType, kVector>(x[n][i], values[i]);
      sum += total_of<kVector>(values[i]);
    }
    if (!p.is_rms) mean = mean_of(lanes_total<kLanes>(sum), p.width, w.per_element);
    if (kFine && !p.is_rms) {
      float left = 0.f;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[i][j] -= mean;
        left += column(i) < p.width ? total_of<kVector>(values[i]) : 0.f;
      }
      mean = lanes_total<kLanes>(left) * w.per_element;  // of what the first one left
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        values[i][j] -= mean;
        squares = column(i) < p.width ? fmaf(values[i][j], values[i][j], squares) : squares;
      }
    const float inverse = rsqrtf(lanes_total<kLanes>(squares) * w.per_element + p.eps);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (!is_there(n, i)) continue;
      float result[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) result[j] = fmaf(values[i][j] * inverse, by[i].gain[j], by[i].offset[j]);
      store_raw(address(p.y, batch, token, column(i)), narrow(result));
    }
  }
}

}  // namespace

}  // namespace kernwright
