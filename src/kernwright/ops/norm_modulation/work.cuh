// Work: what a kernel gets of a call, and the steps that all kernels share: rows of modulation, a token's address, its sum
// with a residual. What is compiled, macros choose: see kernel.cu.

#pragma once

#include "elements.cuh"
#include "launching.cuh"
#include "policy.h"

namespace kernwright {

// What a kernel gets.
struct Work {
  float per_element;  // 1 / width
  bool is_affine;
  RowKind rows;
  uint32_t zeros[2];  // which no compiler knows to be zeros: see Token::renewed
  Problem problem;
};

namespace {

constexpr Type kType = Type::KERNWRIGHT_TYPE;
constexpr bool kResidual = KERNWRIGHT_RESIDUAL;
constexpr bool kModulated = kHasModulation;
constexpr bool kGated = kResidual && kModulated;
constexpr int kSize = kType == Type::kFloat32 ? 4 : 2;
constexpr int kWidestVector = 16 / kSize;

template <int kVector>
__device__ __forceinline__ RawOf<kType, kVector> narrow(const float (&values)[kVector]) {
  return narrow_to<kType, kVector>(values);
}

// ---- modulations ----------------------------------------------------------------------------------------------------

// norm * weight + bias, then * (1 + scale) + shift, is norm * gain + offset. Any of the four may be a number, or not there.
template <int kVector>
struct Affine {
  float gain[kVector], offset[kVector];

  __device__ __forceinline__ void load(const Problem& p, int64_t batch, int64_t token, int column) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) gain[i] = kModulated ? 0.f : 1.f, offset[i] = 0.f;
    if constexpr (kModulated) {
      load_modulation(p.scale, row_start(p.scale, batch, token), column, gain);
      load_modulation(p.shift, row_start(p.shift, batch, token), column, offset);
#pragma unroll
      for (int i = 0; i < kVector; ++i) gain[i] += 1.f;
    }
    float own[kVector];
    if (p.bias.data != nullptr) {
      load_modulation(p.bias, 0, column, own);
#pragma unroll
      for (int i = 0; i < kVector; ++i) offset[i] = fmaf(own[i], gain[i], offset[i]);
    }
    if (p.weight.data == nullptr) return;
    load_modulation(p.weight, 0, column, own);
#pragma unroll
    for (int i = 0; i < kVector; ++i) gain[i] *= own[i];
  }
};

// Ones where there is no gate: a product with one changes nothing.
template <int kVector>
__device__ __forceinline__ void load_gate(const Problem& p, int64_t batch, int64_t token, int column,
                                          float (&gate)[kVector]) {
  if (kGated && p.gate.data) {
    load_modulation(p.gate, row_start(p.gate, batch, token), column, gate);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) gate[i] = 1.f;
  }
}

// One number for all, or another one where there is none.
__device__ __forceinline__ float number_of(const Modulation& of, float otherwise) {
  if (of.data == nullptr) return otherwise;
  float one[1];
  load_modulation(of, 0, 0, one);
  return one[0];
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

__device__ __forceinline__ char* address(const Tokens& of, int64_t batch, int64_t token, int column) {
  return static_cast<char*>(of.data) + (batch * of.batch_step + token * of.token_step + column) * kSize;
}

// residual + gate * x, rounded: what is stored, and normed.
template <int kVector>
__device__ __forceinline__ RawOf<kType, kVector> summed(const RawOf<kType, kVector>& x,
                                                        const RawOf<kType, kVector>& residual,
                                                        const float (&gate)[kVector]) {
  float values[kVector], before[kVector];
  widen<kType, kVector>(x, values);
  widen<kType, kVector>(residual, before);
#pragma unroll
  for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i], gate[i], before[i]);
  return narrow(values);
}

}  // namespace

}  // namespace kernwright
