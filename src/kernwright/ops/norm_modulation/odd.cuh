// odd: tokens that start anywhere, or have an odd end; one a block, through shared memory.
// kernel.cu includes this, and states its contract and its bytes.

#pragma once

#include "statistics.cuh"

namespace kernwright {

namespace {

// Whole vectors of 16 bytes, wherever they lie in a token, come to shared memory, and each thread takes its elements out of
// it: those that lie beside each other go to threads beside each other. What a vector at either end shares with another
// token is read element by element, and so is a residual.
template <int kMostThreads, int kLeastBlocks>
__global__ void __launch_bounds__(kMostThreads, kLeastBlocks) odd(const __grid_constant__ Work w) {
  constexpr int kCount = kElementsOfOdd, kChunk = kWidestVector;
  constexpr int kChunks = kCount / kChunk + 1;  // a thread: as many as its elements fill, and one at each end of a token
  using Element = RawOf<kType, 1>;
  __shared__ uint4 window[kMostThreads * kCount / kChunk + 2];
  __shared__ float4 parts[kMostThreads / 32];
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block(), token = blockIdx.x;
  if (batch >= p.batches) return;
  const int thread = threadIdx.x, threads = blockDim.x;
  auto column_of = [&](int i) { return i * threads + thread; };
  const char* start = address(p.x, batch, token, 0);
  const int phase = static_cast<int>(reinterpret_cast<uintptr_t>(start) % 16 / kSize);  // not this token's
  Raw<16> chunks[kChunks];
  wait_for_turn();
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int column = column_of(i) * kChunk - phase;
    chunks[i] = Raw<16>{};
    if (column >= 0 && column + kChunk <= p.width) {
      chunks[i] = load_ahead<16>(start + column * kSize);
    } else {
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        if (column + j < 0 || column + j >= p.width) continue;
        const Element one = load_raw<kSize>(start + (column + j) * kSize);
        chunks[i].words[j * kSize / 4] |= one.words[0] << (j * kSize % 4 * 8);
      }
    }
  }
  Element x[kCount], residual[kResidual ? kCount : 1];
  if constexpr (kResidual) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column_of(i) < p.width)
        residual[i] = load_raw<kSize>(address(p.residual, batch, token, column_of(i)));
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i)
    if (column_of(i) * kChunk < phase + p.width) store_raw(window + column_of(i), chunks[i]);
  __syncthreads();
  char* const here = reinterpret_cast<char*>(window) + phase * kSize;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    x[i] = Element{};
    if (column_of(i) < p.width) x[i] = load_written<kSize>(here + column_of(i) * kSize);
  }
  if constexpr (kResidual) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column_of(i) >= p.width) continue;
      float gate[1];
      load_gate(p, batch, token, column_of(i), gate);
      x[i] = summed<1>(x[i], residual[i], gate);
      store_raw(address(p.sum, batch, token, column_of(i)), x[i]);
      store_raw(here + column_of(i) * kSize, x[i]);
    }
  }

  float values[kCount][1], sum = 0.f, about = 0.f, left = 0.f, squares = 0.f;
  int count = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int left = p.width - i * threads - thread / 32 * 32;
    count += left < 0 ? 0 : left > 32 ? 32 : left;
    widen<kType, 1>(x[i], values[i]);
    sum += values[i][0];
  }
  if (!p.is_rms) {
    sum = lanes_total<32>(sum);
    about = about_mean(sum, count);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i][0] -= about;
    squares = column_of(i) < p.width ? fmaf(values[i][0], values[i][0], squares) : squares;
    if constexpr (kFine) left += column_of(i) < p.width ? values[i][0] : 0.f;
  }
  squares = lanes_total<32>(squares);
  if (kFine && !p.is_rms) sum = lanes_total<32>(left);
  if (thread % 32 == 0) parts[thread / 32] = part_of(sum, about, squares, count);
  __syncthreads();
  const Statistics of = combined<kMostThreads / 32>(parts, w);

  if (kModulated && w.rows == RowKind::kOwn && !w.is_affine) {  // all loads are under way at once: no branch is between them
    const float rest = of.from_mean(about) * of.inverse;
    const int64_t scale = row_start(p.scale, batch, token), shift = row_start(p.shift, batch, token);
    Affine<1> by[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column_of(i) >= p.width) continue;
      load_channels<kType, 1>(p.scale.data, scale + column_of(i), by[i].gain);
      load_channels<kType, 1>(p.shift.data, shift + column_of(i), by[i].offset);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column_of(i) >= p.width) continue;
      const float result[1] = {
          fmaf(fmaf(values[i][0], of.inverse, rest), 1.f + by[i].gain[0], by[i].offset[0])};
      store_raw(address(p.y, batch, token, column_of(i)), narrow(result));
    }
    return;
  }
#pragma unroll 1
  for (int column = thread; column < p.width; column += threads) {
    Affine<1> by;
    by.load(p, batch, token, column);
    float value[1];
    widen<kType, 1>(load_written<kSize>(here + column * kSize), value);
    value[0] = fmaf(of.from_mean(value[0]) * of.inverse, by.gain[0], by.offset[0]);
    store_raw(address(p.y, batch, token, column), narrow(value));
  }
}

}  // namespace

}  // namespace kernwright
