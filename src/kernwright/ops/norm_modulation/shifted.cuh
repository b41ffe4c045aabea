// shifted: tokens that start anywhere, or have an odd end, in registers, for elements of two bytes and rows of modulation
// of the same dtype. One token a block. kernel.cu includes this, and states its contract and its bytes.
//
// A thread has vectors of 16 bytes as they lie in memory, and stores such: x, residual and outputs must lie alike. Rows of
// modulation are shifted to them. A vector at either end of a row is read whole, and so are up to 14 bytes beside the row,
// which nothing looks at; the host has seen that they are there (allocation.cuh). None are written.

#pragma once

#include "pivot.cuh"

namespace kernwright {

namespace {

template <int kShape>
constexpr LeanShape kShifted = kResidual ? kShiftedResidualShapes[kShape] : kShiftedShapes[kShape];

// A row of modulation, seen from a token whose first vector starts `phase` elements ahead of the token.
struct ShiftedRow {
  const char* vectors;  // whole ones, from the one on in which the token's first vector would start
  uint32_t from, first, end;  // where in it that would be, in elements; where the row begins and ends, in bytes

  __device__ __forceinline__ ShiftedRow(const char* row, uint32_t phase, int width) {
    const uint32_t into = (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row)) - phase * 2) % 16;
    from = into / 2;
    first = phase * 2 + into;
    vectors = row - first;
    end = row == nullptr ? 0 : first + width * 2;
  }

  // Zeros where there is nothing of the row.
  __device__ __forceinline__ Raw<16> whole(uint32_t number) const {
    const uint32_t at = number * 16;
    Raw<16> piece{};
    if (at + 16 > first && at < end) piece = load_ahead<16>(vectors + at);
    return piece;
  }
};

template <int kVectors>
struct ShiftedPieces {
  Raw<16> low[kVectors], high[kVectors];

  __device__ __forceinline__ void load(const ShiftedRow& of, int i) {
    const uint32_t number = i * blockDim.x + threadIdx.x;
    low[i] = of.whole(number), high[i] = Raw<16>{};
    if (of.from != 0) high[i] = of.whole(number + 1);
  }
  __device__ __forceinline__ Raw<16> operator()(const ShiftedRow& of, int i) const {
    return eight_from(of.from, low[i], high[i]);
  }
};

template <int kShape, bool kGate>
__global__ void __launch_bounds__(32 * kShifted<kShape>.warps, kShifted<kShape>.least_blocks)
    shifted(const __grid_constant__ Brief w) {
  constexpr int kVectors = kShifted<kShape>.vectors, kMostWarps = kShifted<kShape>.warps;
  constexpr bool kEarly = !kResidual;  // rows are asked for ahead of the sums
  __shared__ float4 parts[(kMostWarps + 1) / 2];
  const uint32_t batch = batch_of_block(), token = blockIdx.x;
  if (batch >= w.batches) return;
  const int width = w.width;
  auto start = [&](const BriefRows& of) { return start_of<2>(of, batch, token); };
  const char* const from = start(w.x);
  const char* const before = kResidual ? start(w.residual) : nullptr;
  const char* const gate_start = kGate ? start(w.gate) : nullptr;
  const uint32_t phase = reinterpret_cast<uintptr_t>(from) % 16 / 2;
  const ShiftedRow gate(gate_start, phase, width);
  const ShiftedRow gain(w.gain.data ? start(w.gain) : nullptr, phase, width);
  const ShiftedRow offset(w.offset.data ? start(w.offset) : nullptr, phase, width);
  auto column = [&](int i) { return static_cast<int>((i * blockDim.x + threadIdx.x) * 8 - phase); };  // from -7 on
  auto is_whole = [&](int i) { return column(i) >= 0 && column(i) + 8 <= width; };
  auto is_inside = [&](int one) { return one >= 0 && one < width; };

  wait_for_turn();
  const float pivot = pivot_of<kGate>(w, from, before, gate_start);
  Raw<16> x[kVectors], residual[kResidual ? kVectors : 1];
  ShiftedPieces<kVectors> gates, gains, offsets;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    x[i] = Raw<16>{};
    if (column(i) < width) x[i] = load_ahead<16>(from + column(i) * 2);
  }
  if constexpr (kResidual) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      residual[i] = Raw<16>{};
      if (column(i) < width) residual[i] = load_ahead<16>(before + column(i) * 2);
      if constexpr (kGate) gates.load(gate, i);
    }
  }
  if constexpr (kEarly) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) gains.load(gain, i), offsets.load(offset, i);
  }
  auto store = [&](char* row, int i, const Raw<16>& eight) {
    char* const to = row + column(i) * 2;
    if (is_whole(i)) {
      store_raw(to, eight);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (is_inside(column(i) + j)) store_raw(to + j * 2, Raw<2>{{eight.words[j / 2] >> (j % 2 * 16)}});
    }
  };

  if (kInPlace && !w.is_rms) __syncthreads();  // every thread has the pivot
  float values[kVectors][8];
  Moments moments;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if constexpr (kResidual) {
      Raw<16> factors{};
      if constexpr (kGate) factors = gates(gate, i);
      x[i] = summed_once<kGate>(x[i], residual[i], factors);
      store(start(w.sum), i, x[i]);
    }
    widen<kHalf, 8>(x[i], values[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i][j] -= pivot;
    if (!is_whole(i)) {
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i][j] = is_inside(column(i) + j) ? values[i][j] : 0.f;
    }
    moments.add(values[i]);
    if constexpr (kEarly) {
      gains.low[i] = gains(gain, i), offsets.low[i] = offsets(offset, i);
      keep_narrow(&gains.low[i]), keep_narrow(&offsets.low[i]);
    }
  }
  const Line line = line_of<0>(moments, parts, w);

  const float constant = kModulated || w.gain.data == nullptr ? 1.f : 0.f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column(i) >= width) break;
    if constexpr (!kEarly) {
      gains.load(gain, i), offsets.load(offset, i);
      gains.low[i] = gains(gain, i), offsets.low[i] = offsets(offset, i);
    }
    store(start(w.y), i, finished(values[i], line, gains.low[i], offsets.low[i], constant));
  }
}

}  // namespace

}  // namespace kernwright
