// lean: one token a block, in registers, for elements of two bytes and rows of modulation of the same dtype.
// kernel.cu includes this, and states its contract and its bytes.
//
// The token is under way before anything waits, out of few arguments and with few instructions: behind a gated residual 3072
// wide in bfloat16 350, where `held` had 476. Scale and shift are asked for with it here, but for sm_90 ptxas (CUDA 13.0) moves
// their loads to behind the thread's own sums, to save registers.

#pragma once

#include "pivot.cuh"

namespace kernwright {

namespace {

template <int kShape>
constexpr LeanShape kLean = kResidual ? kLeanResidualShapes[kShape] : kLeanShapes[kShape];

template <int kShape, bool kGate>
__global__ void __launch_bounds__(32 * kLean<kShape>.warps, kLean<kShape>.least_blocks)
    lean(const __grid_constant__ Brief w) {
  constexpr int kVectors = kLean<kShape>.vectors, kWarps = kLean<kShape>.warps;
  constexpr uint32_t kApart = 32 * kWarps * 16;
  __shared__ float4 parts[(kWarps + 1) / 2];
  const uint32_t batch = batch_of_block(), token = blockIdx.x, own = threadIdx.x * 16;
  if (batch >= w.batches) return;
  // A token fills its threads but for their last vectors.
  const bool is_last_there = own + (kVectors - 1) * kApart < static_cast<uint32_t>(w.width) * 2;
  auto holds = [&](int i) { return i < kVectors - 1 || is_last_there; };
  auto start = [&](const BriefRows& of) { return start_of<16>(of, batch, token); };

  Raw<16> x[kVectors], residual[kResidual ? kVectors : 1], gates[kGate ? kVectors : 1];
  Raw<16> gains[kVectors], offsets[kVectors];
  const char* const from = start(w.x);
  const char* const before = kResidual ? start(w.residual) : nullptr;
  const char* const gate = kGate ? start(w.gate) : nullptr;
  wait_for_turn();
  const float pivot = pivot_of<kGate>(w, from, before, gate);
  auto load = [&](const char* row, Raw<16>(&to)[kVectors]) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i == kVectors - 1) to[i] = Raw<16>{};
      if (holds(i)) to[i] = load_ahead<16>(row + own + i * kApart);
    }
  };
  auto load_row = [&](const char* row, Raw<16>(&to)[kVectors], bool is_there) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!kModulated || i == kVectors - 1) to[i] = Raw<16>{};
      if (is_there && holds(i)) to[i] = load_ahead<16>(row + own + i * kApart);
    }
  };
  load(from, x);
  if constexpr (kResidual) load(before, residual);
  if constexpr (kGate) load_row(gate, gates, true);
  load_row(start(w.gain), gains, kModulated || w.gain.data != nullptr);
  load_row(start(w.offset), offsets, kModulated || w.offset.data != nullptr);

  if (kInPlace && !w.is_rms) __syncthreads();  // every thread has the pivot
  float values[kVectors][8];
  Moments moments;
  char* const sum = kResidual ? start(w.sum) + own : nullptr;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if constexpr (kResidual) {
      x[i] = summed_once<kGate>(x[i], residual[i], gates[kGate ? i : 0]);
      if (holds(i)) store_raw(sum + i * kApart, x[i]);
    }
    widen<kHalf, 8>(x[i], values[i]);
    const float about = holds(i) ? pivot : 0.f;  // zeros stand where nothing is
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i][j] -= about;
    moments.add(values[i]);
  }
  const Line line = line_of<kWarps>(moments, parts, w);

  const float constant = kModulated || w.gain.data == nullptr ? 1.f : 0.f;
  char* const y = start(w.y) + own;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    keep_narrow(&gains[i]), keep_narrow(&offsets[i]);
    if (holds(i)) store_raw(y + i * kApart, finished(values[i], line, gains[i], offsets[i], constant));
  }
}

}  // namespace

}  // namespace kernwright
