// norm_scale_shift (and, with KERNWRIGHT_RESIDUAL, residual_norm_scale_shift) for NVIDIA GPUs with the bits of the eager chain:
// LayerNorm without weight and bias, for one dtype of x.
//
// Contract: exact where the device shows that torch norms as these kernels do (exactness.py says in what order that is). Ahead
// of the norm and behind it every step rounds where the chain rounds (exact_policy.h), and products and sums are the
// instructions that a compiler does not fuse.
// Bytes a token of D elements of s bytes: 2 D s (x in, y out), behind a residual 4 D s; modulations per token add their own D
// elements each, all others are read by each block out of the cache. Tokens over 8192 wide, those whose start asks for single
// elements, and those whose modulations are numbers or of mixed dtypes are read twice, the second time out of the cache.
// Share of a copy's bandwidth: not measured of these kernels as they are now. Of an earlier form, when memory was read and
// written with words to the caches (elements.cuh) and no launch came early (launching.cuh), on an H200 for bfloat16, by graph
// replay out of a cold cache: 3072 wide 0.96 for 27,030 tokens (83.3 us, as the close kernel), 0.82 for 4,096 (15.2 us), 195 took
// 2.8 us; 4096 wide 0.92 for 7,904 tokens (35.8 us); 5120 wide 0.95 for 44,100 (227 us), with float32 rows 0.96 for 37,800 (193
// us; the close kernel of that time 213). With rows of each token's own 1.02 for 8,640 tokens 5120 wide (83.5 us), in float32
// 1.03 for 18,144 tokens 3072 wide (153 us). Behind a gated residual 0.95 for 27,030 tokens 3072 wide (166 us), 195 took 3.4 us.
// In that run all 72 production rows, and 558 calls of a grid of sizes, dtypes and distributions, had torch's bits.
//
// Four warps a token, as torch has them, and one meeting: each thread then puts the four warps' parts together by itself,
// where torch's meet twice more.

#include <cuda_runtime.h>

#include "elements.cuh"
#include "exact_statistics.cuh"
#include "exact_policy.h"
#include "launching.cuh"

namespace kernwright {

// Rows of tokens or of modulation, null where there are none; steps are in groups of four elements.
struct ExactRows {
  char* data;
  uint32_t token_step, batch_step;
};

// What a kernel gets that holds a token: all of it lies in two lines of 64 bytes, which a block waits for before its first load.
struct ExactBrief {
  ExactRows x, scale, shift, y;
  uint32_t groups, batches;
  float width, eps;
  ExactRows residual, gate, sum;
};
static_assert(sizeof(ExactBrief) == 128, "two lines");

namespace {

constexpr Type kType = Type::KERNWRIGHT_TYPE;
constexpr bool kResidual = KERNWRIGHT_RESIDUAL;
constexpr int kSize = kType == Type::kFloat32 ? 4 : 2;
using Piece = RawOf<kType, kGroup>;

// ---- one rounding a step --------------------------------------------------------------------------------------------

// factor * value + summand, with a factor and a summand of x's dtype, or of float32. No factor: the sum.
template <Type kFactor, Type kSummand>
__device__ __forceinline__ Piece multiplied(const Piece& value, const RawOf<kFactor, kGroup>* factor, float constant,
                                            const RawOf<kSummand, kGroup>& summand) {
  if constexpr (kType != Type::kFloat32 && kFactor == kType && kSummand == kType) {
    const float constants[2] = {constant, constant};
    const uint32_t added = narrow_to<kType, 2>(constants).words[0];
    Piece result = value;
#pragma unroll
    for (int i = 0; i < kGroup / 2; ++i) {
      if (factor) {
        const uint32_t gain = constant != 0.f ? two_sums<kType>(factor->words[i], added) : factor->words[i];
        result.words[i] = two_products<kType>(result.words[i], gain);
      }
      result.words[i] = two_sums<kType>(result.words[i], summand.words[i]);
    }
    return result;
  } else {
    static_assert(kFactor == Type::kFloat32, "which rounds nowhere");
    float values[kGroup], gain[kGroup], offset[kGroup];
    widen<kType, kGroup>(value, values);
    widen<kSummand, kGroup>(summand, offset);
    if (factor) widen<kFactor, kGroup>(*factor, gain);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (factor) values[i] = __fmul_rn(values[i], constant != 0.f ? __fadd_rn(constant, gain[i]) : gain[i]);
      values[i] = __fadd_rn(values[i], offset[i]);
    }
    return narrow_to<kType, kGroup>(values);
  }
}

// Keeps a piece as it was loaded up to here: widened for the sum, it would be kept so, in twice the registers.
__device__ __forceinline__ void keep_narrow(Piece* piece) {
#ifdef __CUDACC__
  if constexpr (kSize == 2) asm volatile("" : "+r"(piece->words[0]), "+r"(piece->words[1]));
#endif
}

// ---- tokens held in registers ---------------------------------------------------------------------------------------

template <int kShape>
struct Shaped {
  static constexpr ExactShape kOf = exact_shapes_of(kType, kResidual).first[kShape];
  static constexpr int kGroups = kOf.groups, kLeastBlocks = kOf.least_blocks;
  static constexpr bool kFull = kOf.is_full, kEarly = kOf.is_early;
  static constexpr Type kRow = kOf.has_float_rows ? Type::kFloat32 : kType;
  static constexpr int kStep = kThreads * kGroup * kSize;  // from one group of a thread to its next, in bytes
  static constexpr int kRowStep = kThreads * kGroup * (kRow == Type::kFloat32 ? 4 : 2);
  using Row = RawOf<kRow, kGroup>;
};

// This thread's first group.
template <int kBytes>
__device__ __forceinline__ char* start_of(const ExactRows& of, uint32_t batch) {
  const uint64_t group = static_cast<uint64_t>(blockIdx.x) * of.token_step + static_cast<uint64_t>(batch) * of.batch_step;
  return of.data + (group + threadIdx.x) * (kGroup * kBytes);
}

template <int kShape>
__global__ void __launch_bounds__(kThreads, Shaped<kShape>::kLeastBlocks) held(const __grid_constant__ ExactBrief p) {
  using Own = Shaped<kShape>;
  using Row = typename Own::Row;
  constexpr int kGroups = Own::kGroups, kRowSize = Own::kRow == Type::kFloat32 ? 4 : 2;
  constexpr bool kEarly = Own::kEarly;
  __shared__ Part parts[kThreads / 32];
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  auto holds = [&](int i) { return Own::kFull || i * kThreads + threadIdx.x < p.groups; };

  // All that a token needs is under way before any of it is looked at.
  Piece x[kGroups], residual[kResidual ? kGroups : 1];
  Row scales[kEarly ? kGroups : 1], shifts[kEarly ? kGroups : 1], gates[kResidual && kEarly ? kGroups : 1];
  const char *from = start_of<kSize>(p.x, batch), *scale = start_of<kRowSize>(p.scale, batch);
  const char *shift = start_of<kRowSize>(p.shift, batch), *beside = from, *gate = from;
  if constexpr (kResidual) beside = start_of<kSize>(p.residual, batch), gate = start_of<kRowSize>(p.gate, batch);
  const bool is_gated = kResidual && p.gate.data != nullptr;
  wait_for_turn();
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    if (!holds(i)) continue;
    x[i] = load_ahead<kGroup * kSize>(from + i * Own::kStep);
    if constexpr (kResidual) residual[i] = load_ahead<kGroup * kSize>(beside + i * Own::kStep);
  }
  if constexpr (kEarly) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (!holds(i)) continue;
      if (is_gated) gates[kResidual ? i : 0] = load_ahead<kGroup * kRowSize>(gate + i * Own::kRowStep);
      scales[i] = load_ahead<kGroup * kRowSize>(scale + i * Own::kRowStep);
      shifts[i] = load_ahead<kGroup * kRowSize>(shift + i * Own::kRowStep);
    }
  }

  if constexpr (kResidual) {
    char* to = start_of<kSize>(p.sum, batch);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (!holds(i)) continue;
      Row own;
      if (is_gated) own = kEarly ? gates[kEarly ? i : 0] : load_raw<kGroup * kRowSize>(gate + i * Own::kRowStep);
      x[i] = multiplied<Own::kRow, kType>(x[i], is_gated ? &own : nullptr, 0.f, residual[i]);
      store_raw(to + i * Own::kStep, x[i]);
    }
  }

  Part part{0.f, 0.f, 0.f};
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    if (!holds(i)) continue;
    float values[kGroup];
    widen<kType, kGroup>(x[i], values);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) take(&part, values[j], 1.f / static_cast<float>(i * kGroup + j + 1));
    part.count = static_cast<float>((i + 1) * kGroup);
  }
  const Statistics of = statistics_of<Own::kFull ? kGroups * kGroup : 0>(part, parts, p.width, p.eps);

  char* to = start_of<kSize>(p.y, batch);
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    if (!holds(i)) continue;
    Row by, add;
    if constexpr (kEarly) {
      by = scales[i], add = shifts[i];
    } else {
      by = load_raw<kGroup * kRowSize>(scale + i * Own::kRowStep);
      add = load_raw<kGroup * kRowSize>(shift + i * Own::kRowStep);
    }
    float values[kGroup];
    keep_narrow(&x[i]);
    widen<kType, kGroup>(x[i], values);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) values[j] = of.normed(values[j]);
    store_raw(to + i * Own::kStep, multiplied<Own::kRow, Own::kRow>(narrow_to<kType, kGroup>(values), &by, 1.f, add));
  }
}

// ---- tokens read twice ----------------------------------------------------------------------------------------------

template <int kVector>
__device__ __forceinline__ void load_tokens(const Tokens& of, int64_t batch, int64_t token, int column, float (&values)[kVector]) {
  const int64_t at = batch * of.batch_step + token * of.token_step + column;
  widen<kType, kVector>(load_raw<kVector * kSize>(static_cast<const char*>(of.data) + at * kSize), values);
}

template <int kVector>
__device__ __forceinline__ void store_tokens(const Tokens& of, int64_t batch, int64_t token, int column,
                                             const float (&values)[kVector]) {
  const int64_t at = batch * of.batch_step + token * of.token_step + column;
  store_raw(static_cast<char*>(of.data) + at * kSize, narrow_to<kType, kVector>(values));
}

template <int kVector>
__device__ __forceinline__ void multiply(const Product& of, float (&values)[kVector], float (&factor)[kVector]) {
  if (of.is_factor_cast) round_to<kType>(factor);
#pragma unroll
  for (int i = 0; i < kVector; ++i) values[i] = __fmul_rn(values[i], factor[i]);
  if (of.is_rounded) round_to<kType>(values);
}

// What is normed, rounded as it is returned.
template <int kVector>
__device__ __forceinline__ void load_value(const ExactProblem& p, int64_t batch, int64_t token, int column,
                                           float (&values)[kVector]) {
  load_tokens(p.x, batch, token, column, values);
  if constexpr (kResidual) {
    float other[kVector];
    if (p.gate.data) {
      load_modulation(p.gate, row_start(p.gate, batch, token), column, other);
      multiply(p.gated, values, other);
    }
    load_tokens(p.residual, batch, token, column, other);
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = __fadd_rn(values[i], other[i]);
    round_to<kType>(values);
  }
}

template <int kVector>
__global__ void __launch_bounds__(kThreads) read_twice(const __grid_constant__ ExactProblem p) {
  __shared__ Part parts[2][kThreads / 32];
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const int thread = static_cast<int>(threadIdx.x);
  wait_for_turn();
  int turn = 0;  // who writes one half of the parts again has met all who read it, at the other half
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x, turn ^= 1) {
    Part part{0.f, 0.f, 0.f};
#pragma unroll 1
    for (int first = thread * kGroup; first < p.width; first += kThreads * kGroup) {
#pragma unroll
      for (int column = first; column < first + kGroup; column += kVector) {
        float values[kVector];
        load_value(p, batch, token, column, values);
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          part.count += 1.f;
          take(&part, values[i], 1.f / part.count);
        }
      }
    }
    const Statistics of = statistics_of<0>(part, parts[turn], static_cast<float>(p.width), p.eps);
    // Behind the norm the order is free, and single elements that lie beside each other go to threads beside each other.
#pragma unroll 1
    for (int column = thread * kVector; column < p.width; column += kThreads * kVector) {
      float values[kVector], gain[kVector], offset[kVector];
      load_value(p, batch, token, column, values);
      if constexpr (kResidual) store_tokens(p.sum, batch, token, column, values);
      load_modulation(p.scale, row_start(p.scale, batch, token), column, gain);
      load_modulation(p.shift, row_start(p.shift, batch, token), column, offset);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = of.normed(values[i]), gain[i] = __fadd_rn(1.f, gain[i]);
      round_to<kType>(values);
      round_to(p.scale.type, gain);
      multiply(p.modulated, values, gain);
      if (p.is_shift_cast) round_to<kType>(offset);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = __fadd_rn(values[i], offset[i]);
      store_tokens(p.y, batch, token, column, values);
    }
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

using HeldKernel = void (*)(ExactBrief);

template <int kShape = 0>
HeldKernel held_of(int shape) {
  if (shape == kShape) return held<kShape>;
  if constexpr (kShape + 1 < exact_shapes_of(kType, kResidual).count) return held_of<kShape + 1>(shape);
  else return nullptr;
}

ExactBrief brief_of(const ExactProblem& p) {
  auto rows = [](const auto& of) {
    return ExactRows{static_cast<char*>(const_cast<void*>(of.data)), static_cast<uint32_t>(of.token_step / kGroup),
                     static_cast<uint32_t>(of.batch_step / kGroup)};
  };
  return {rows(p.x),       rows(p.scale), rows(p.shift), rows(p.y), static_cast<uint32_t>(p.width / kGroup),
          static_cast<uint32_t>(p.batches), static_cast<float>(p.width), p.eps, rows(p.residual), rows(p.gate), rows(p.sum)};
}

cudaError_t launch_here(const ExactProblem& p, const ExactVariant& v, cudaStream_t stream) {
  if (v.shape >= 0) return launch_batches(held_of(v.shape), p.tokens, p.batches, kThreads, brief_of(p), stream);
  return launch_batches(v.is_vector ? read_twice<kGroup> : read_twice<1>, p.tokens, p.batches, kThreads, p, stream);
}

}  // namespace

// 0, or CUDA's number for what went wrong.
int launch(const ExactProblem& p, const ExactVariant& v, int device, void* stream) {
  return on_device(device, [&] { return launch_here(p, v, static_cast<cudaStream_t>(stream)); });
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
