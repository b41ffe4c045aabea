// Brief: a call as the kernels for elements of two bytes get it, whose rows of modulation are of x's dtype.
//
// All of it lies in two lines of 64 bytes: of the whole Work a block would wait for several more before its first load.

#pragma once

#include "work.cuh"

namespace kernwright {

// Rows for tokens, or for those of modulation: null where there are none.
struct BriefRows {
  char* data;
  uint32_t token_step, batch_step;  // in units that the kernel knows
};

struct Brief {
  BriefRows x, residual, gate, gain, offset, sum, y;  // gain and offset: scale and shift, or weight and bias
  uint32_t batches;
  int32_t width : 31;
  uint32_t is_rms : 1;
  float per_element, eps;  // 1 / width
};
static_assert(sizeof(Brief) == 128, "two lines");

namespace {

// Float32 has no such kernels, so what it is called here does not matter.
constexpr Type kHalf = kType == Type::kFloat16 ? Type::kFloat16 : Type::kBFloat16;

template <int kUnit>
Brief brief_of(const Problem& p) {
  auto rows = [](const auto& of) {
    constexpr int kElements = kUnit / kSize;
    return BriefRows{static_cast<char*>(const_cast<void*>(of.data)), static_cast<uint32_t>(of.token_step / kElements),
                     static_cast<uint32_t>(of.batch_step / kElements)};
  };
  Brief own{rows(p.x), rows(p.residual), rows(p.gate), rows(kModulated ? p.scale : p.weight),
            rows(kModulated ? p.shift : p.bias), rows(p.sum), rows(p.y)};
  own.batches = static_cast<uint32_t>(p.batches);
  own.width = p.width;
  own.is_rms = p.is_rms;
  own.per_element = 1.f / static_cast<float>(p.width);
  own.eps = p.eps;
  return own;
}

template <int kUnit>
__device__ __forceinline__ char* start_of(const BriefRows& of, uint32_t batch, uint32_t token) {
  return of.data + (static_cast<uint64_t>(token) * of.token_step + static_cast<uint64_t>(batch) * of.batch_step) * kUnit;
}

// The first element of a row, from where this stands: see load_ahead.
__device__ __forceinline__ float first_of(const char* row) {
  Raw<2> one;
#ifdef __CUDACC__
  uint16_t bits;
  asm volatile(KERNWRIGHT_LOAD ".u16 %0, [%1];" : "=h"(bits) : "l"(row));
  one.words[0] = bits;
#else
  one = load_raw<2>(row);
#endif
  float value[1];
  widen<kHalf, 1>(one, value);
  return value[0];
}

// Keeps what was loaded in its own dtype up to here: widened as it comes, it would take twice the registers.
__device__ __forceinline__ void keep_narrow(Raw<16>* piece) {
#ifdef __CUDACC__
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(piece->words[i]));
#else
  (void)piece;
#endif
}

// residual + gate * x, rounded once: in pairs where a GPU has them, a ninth of the instructions that floats take.
template <bool kGate>
__device__ __forceinline__ Raw<16> summed_once(const Raw<16>& x, const Raw<16>& residual, const Raw<16>& gate) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr uint32_t kOnes = kType == Type::kFloat16 ? 0x3c003c00u : 0x3f803f80u;
  Raw<16> sum;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t by = kGate ? gate.words[i] : kOnes;
    if constexpr (kType == Type::kFloat16) {
      asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum.words[i]) : "r"(x.words[i]), "r"(by), "r"(residual.words[i]));
    } else {
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum.words[i]) : "r"(x.words[i]), "r"(by), "r"(residual.words[i]));
    }
  }
  return sum;
#else
  float factors[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) factors[i] = 1.f;
  if constexpr (kGate) widen<kHalf, 8>(gate, factors);
  float values[8], before[8];
  widen<kHalf, 8>(x, values);
  widen<kHalf, 8>(residual, before);
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = fmaf(values[i], factors[i], before[i]);
  return narrow_to<kHalf, 8>(values);
#endif
}

}  // namespace

}  // namespace kernwright
