// shared_rows: two tokens a block, in registers, for elements of two bytes whose scale and shift are float32 rows that all tokens
// of a batch have in common. kernel.cu includes this, and states its contract and its bytes.
//
// Such rows are twice as long as a token, and each block reads both, out of the cache: one token a block waits for four times
// its own bytes. Two tokens share each vector of them, which is asked for when the sums are there.

#pragma once

#include "pivot.cuh"

namespace kernwright {

// What a kernel gets; steps are in vectors of eight elements.
struct SharedCall {
  BriefRows x, gain, offset, y;
  uint32_t tokens, batches;
  int32_t width;
  uint32_t is_rms;
  float per_element, eps;  // 1 / width
};

namespace {

constexpr bool kHasSharedRows = kModulated && !kResidual && kSize == 2;

inline SharedCall shared_call_of(const Problem& p) {
  const Brief own = brief_of<16>(p);
  return {own.x, own.gain, own.offset, own.y, static_cast<uint32_t>(p.tokens), own.batches, own.width, own.is_rms, own.per_element,
          own.eps};
}

template <int kShape>
constexpr LeanShape kShared = kSharedShapes[kShape];

template <int kShape>
__global__ void __launch_bounds__(32 * kShared<kShape>.warps, kShared<kShape>.least_blocks)
    shared_rows(const __grid_constant__ SharedCall w) {
  constexpr int kVectors = kShared<kShape>.vectors, kWarps = kShared<kShape>.warps, kTokens = kTokensOfShared;
  constexpr uint32_t kThreads = 32 * kWarps, kApart = kThreads * 16;
  __shared__ float4 parts[kWarps];  // of each warp: sum and squares of one token, and of the other
  static_assert(kTokens == 2, "what a part has room for");
  const uint32_t batch = batch_of_block(), first = blockIdx.x * kTokens, own = threadIdx.x * 16;
  if (batch >= w.batches) return;
  // A token fills its threads but for their last vectors, and a batch its blocks but for the last token.
  const bool is_last_there = own + (kVectors - 1) * kApart < static_cast<uint32_t>(w.width) * 2;
  auto holds = [&](int i) { return i < kVectors - 1 || is_last_there; };
  auto is_there = [&](int n) { return n == 0 || first + n < w.tokens; };

  Raw<16> x[kTokens][kVectors];
  float pivot[kTokens];
  wait_for_turn();
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    const char* const from = start_of<16>(w.x, batch, first + n);
    pivot[n] = 0.f;
    if (is_there(n) && !w.is_rms) pivot[n] = first_of(from);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      x[n][i] = Raw<16>{};
      if (is_there(n) && holds(i)) x[n][i] = load_ahead<16>(from + own + i * kApart);
    }
  }

  // The token stays as it was loaded, and is widened anew for each pass: two of them take registers.
  auto values_of = [&](int n, int i, float(&values)[8]) {
    widen<kHalf, 8>(x[n][i], values);
    const float about = holds(i) ? pivot[n] : 0.f;  // zeros stand where nothing is
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] -= about;
  };
  Moments moments[kTokens];
#pragma unroll
  for (int n = 0; n < kTokens; ++n)
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float values[8];
      values_of(n, i, values);
      moments[n].add(values);
    }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) moments[n].add_lanes<32>();
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32] = make_float4(moments[0].sum, moments[0].squares, moments[1].sum, moments[1].squares);
  __syncthreads();
  moments[0] = moments[1] = Moments{};
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    const float4 part = parts[i];
    moments[0].sum += part.x, moments[0].squares += part.y, moments[1].sum += part.z, moments[1].squares += part.w;
  }
  const Line lines[kTokens] = {line_through(moments[0], w), line_through(moments[1], w)};

  const char* const gain_row = start_of<32>(w.gain, batch, 0);
  const char* const offset_row = start_of<32>(w.offset, batch, 0);
  char* const y = start_of<16>(w.y, batch, first) + own;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!holds(i)) continue;
    float gain[8], offset[8];
    widen<Type::kFloat32, 8>(load_ahead<32>(gain_row + 2 * (own + i * kApart)), gain);
    widen<Type::kFloat32, 8>(load_ahead<32>(offset_row + 2 * (own + i * kApart)), offset);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (!is_there(n)) continue;
      keep_narrow(&x[n][i]);
      float values[8];
      values_of(n, i, values);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        values[j] = fmaf(fmaf(values[j], lines[n].inverse, lines[n].rest), gain[j] + 1.f, offset[j]);
      store_raw(y + n * static_cast<uint64_t>(w.y.token_step) * 16 + i * kApart, narrow_to<kHalf, 8>(values));
    }
  }
}

}  // namespace

}  // namespace kernwright
