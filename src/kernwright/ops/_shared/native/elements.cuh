// Elements in CUDA: loads and stores of up to 16 bytes, to float and back, and the rows of modulations.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "tensors.h"

namespace kernwright {

// ---- elements -------------------------------------------------------------------------------------------------------

template <int kBytes>
struct Raw {
  uint32_t words[kBytes < 4 ? 1 : kBytes / 4];
};

// How memory is read and written, here for all kernels: as any load and store does, with no word to a cache. Words that let
// data leave a cache first (no place in the first-level one, evict_first and .cs in the second-level one) help a kernel that
// follows itself, whose lines all leave early. Where the second-level cache is full of ordinary lines, as a model leaves it and
// as the judge does, there is hardly any room for lines that leave first: an H200 then takes 2 to 5 % longer for large calls
// (scale_shift of 8,424 tokens 3072 wide with rows of their own: 51.4 us with such words, 48.6 without; norms of 27,030 tokens
// 3072 wide: 83.0 and 80.6; 648,720 RMS norms of 128: 82.0 and 79.8), and as long for small ones.

// The path for data that no kernel changes is not for a kernel that may work in place, which reads what it writes; nor for one
// that waits for its turn (launching.cuh): what comes by that path an assembler may ask for ahead of the wait, and did so.
// (Times in the heads of kernels that were "explored" are of loads by that path.)
#if (defined(KERNWRIGHT_IN_PLACE) && KERNWRIGHT_IN_PLACE) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define KERNWRIGHT_LOAD "ld.global"
template <typename Word>
__device__ __forceinline__ Word load_word(const Word* from) { return *from; }
#else
#define KERNWRIGHT_LOAD "ld.global.nc"
template <typename Word>
__device__ __forceinline__ Word load_word(const Word* from) { return __ldg(from); }
#endif

// kBytes from global memory, when a compiler thinks best: nearly always when their value is needed.
template <int kBytes>
__device__ __forceinline__ Raw<kBytes> load_raw(const void* from) {
  Raw<kBytes> raw;
  if constexpr (kBytes >= 16) {
    const uint4* at = static_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 four = load_word(at + i);
      raw.words[4 * i] = four.x, raw.words[4 * i + 1] = four.y;
      raw.words[4 * i + 2] = four.z, raw.words[4 * i + 3] = four.w;
    }
  } else if constexpr (kBytes == 8) {
    const uint2 two = load_word(static_cast<const uint2*>(from));
    raw.words[0] = two.x, raw.words[1] = two.y;
  } else if constexpr (kBytes == 4) {
    raw.words[0] = load_word(static_cast<const uint32_t*>(from));
  } else {
    raw.words[0] = load_word(static_cast<const uint16_t*>(from));
  }
  return raw;
}

// As load_raw, but asked for from where this stands, so that all that a thread needs is under way before any of it is looked
// at. Pieces narrower than 8 bytes are not worth it.
template <int kBytes>
__device__ __forceinline__ Raw<kBytes> load_ahead(const void* from) {
#ifdef __CUDACC__
  if constexpr (kBytes >= 8) {
    Raw<kBytes> raw;
    if constexpr (kBytes == 8)
      asm volatile(KERNWRIGHT_LOAD ".v2.u32 {%0, %1}, [%2];" : "=r"(raw.words[0]), "=r"(raw.words[1]) : "l"(from));
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i)
      asm volatile(KERNWRIGHT_LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(raw.words[4 * i]), "=r"(raw.words[4 * i + 1]), "=r"(raw.words[4 * i + 2]),
                     "=r"(raw.words[4 * i + 3])
                   : "l"(static_cast<const uint4*>(from) + i));
    return raw;
  }
#endif  // the tests run this file on a CPU, which has no such words
  return load_raw<kBytes>(from);
}

// kBytes that this thread wrote before: not through the path for data that no kernel changes. A Raw of one element is wider
// than its bytes, so it is read as what lies in memory, never as a Raw.
template <int kBytes>
__device__ __forceinline__ Raw<kBytes> load_written(const void* from) {
  Raw<kBytes> raw;
  if constexpr (kBytes >= 16) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 four = static_cast<const uint4*>(from)[i];
      raw.words[4 * i] = four.x, raw.words[4 * i + 1] = four.y;
      raw.words[4 * i + 2] = four.z, raw.words[4 * i + 3] = four.w;
    }
  } else if constexpr (kBytes == 8) {
    const uint2 two = *static_cast<const uint2*>(from);
    raw.words[0] = two.x, raw.words[1] = two.y;
  } else if constexpr (kBytes == 4) {
    raw.words[0] = *static_cast<const uint32_t*>(from);
  } else {
    raw.words[0] = *static_cast<const uint16_t*>(from);
  }
  return raw;
}

template <int kBytes>
__device__ __forceinline__ void store_raw(void* to, const Raw<kBytes>& raw) {
  if constexpr (kBytes >= 16) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint32_t* four = raw.words + 4 * i;
      static_cast<uint4*>(to)[i] = make_uint4(four[0], four[1], four[2], four[3]);
    }
  } else if constexpr (kBytes == 8) {
    *static_cast<uint2*>(to) = make_uint2(raw.words[0], raw.words[1]);
  } else if constexpr (kBytes == 4) {
    *static_cast<uint32_t*>(to) = raw.words[0];
  } else {
    *static_cast<uint16_t*>(to) = static_cast<uint16_t>(raw.words[0]);
  }
}

// Eight elements of two bytes out of sixteen, from `from` (0 to 7) on, which is the same for the whole block.
__device__ __forceinline__ Raw<16> eight_from(uint32_t from, const Raw<16>& low, const Raw<16>& high) {
  uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = low.words[i], words[i + 4] = high.words[i];
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = from & 4 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = from & 2 ? words[i + 1] : words[i];
  Raw<16> eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) eight.words[i] = __funnelshift_r(words[i], words[i + 1], from % 2 * 16);
  return eight;
}

template <Type kOf, int kVector>
using RawOf = Raw<kVector * (kOf == Type::kFloat32 ? 4 : 2)>;

template <Type kOf, int kVector>
__device__ __forceinline__ void widen(const RawOf<kOf, kVector>& raw, float (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    if constexpr (kOf == Type::kFloat32) {
      values[i] = __uint_as_float(raw.words[i]);
    } else {
      const uint32_t half = i % 2 ? raw.words[i / 2] >> 16 : raw.words[i / 2] & 0xffffu;
      if constexpr (kOf == Type::kBFloat16) {
        values[i] = __uint_as_float(half << 16);
      } else {
        values[i] = __half2float(__ushort_as_half(static_cast<unsigned short>(half)));
      }
    }
  }
}

template <Type kType, int kVector>
__device__ __forceinline__ RawOf<kType, kVector> narrow_to(const float (&values)[kVector]) {
  RawOf<kType, kVector> raw;
  if constexpr (kType == Type::kFloat32) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) raw.words[i] = __float_as_uint(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; i += 2) {
      const float second = i + 1 < kVector ? values[i + 1] : 0.f;
      if constexpr (kType == Type::kBFloat16) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], second);
        raw.words[i / 2] = reinterpret_cast<const uint32_t&>(pair);
      } else {
        const __half2 pair = __floats2half2_rn(values[i], second);
        raw.words[i / 2] = reinterpret_cast<const uint32_t&>(pair);
      }
    }
  }
  return raw;
}

// To a dtype and back, as a chain rounds that computes in float32 and keeps what it has in that dtype.
template <Type kOf, int kCount>
__device__ __forceinline__ void round_to(float (&values)[kCount]) {
  if constexpr (kOf != Type::kFloat32) widen<kOf, kCount>(narrow_to<kOf, kCount>(values), values);
}

// As above; its dtype is known only here, and all threads agree on it.
template <int kCount>
__device__ __forceinline__ void round_to(Type type, float (&values)[kCount]) {
  if (type == Type::kBFloat16) {
    round_to<Type::kBFloat16>(values);
  } else if (type == Type::kFloat16) {
    round_to<Type::kFloat16>(values);
  }
}

// Two numbers of a dtype of two bytes at once. That rounds as a chain does, which computes in float32 and rounds then: a
// product of two such numbers is exact in float32, and a sum, rounded to 24 bits and then to 11 or 8, is the same as rounded
// once, since 24 >= 2 * 11 + 2. `_rn`: no compiler fuses these.
template <Type kOf>
__device__ __forceinline__ uint32_t two_products(uint32_t a, uint32_t b) {
  if constexpr (kOf == Type::kBFloat16) {
    const __nv_bfloat162 of =
        __hmul2_rn(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const uint32_t&>(of);
  } else {
    const __half2 of = __hmul2_rn(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const uint32_t&>(of);
  }
}

template <Type kOf>
__device__ __forceinline__ uint32_t two_sums(uint32_t a, uint32_t b) {
  if constexpr (kOf == Type::kBFloat16) {
    const __nv_bfloat162 of =
        __hadd2_rn(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const uint32_t&>(of);
  } else {
    const __half2 of = __hadd2_rn(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const uint32_t&>(of);
  }
}

// ---- modulations ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ int64_t row_start(const Modulation& of, int64_t batch, int64_t token) {
  const int64_t row = of.tokens_per_row == 1 ? token : token / of.tokens_per_row;
  return batch * of.batch_step + row * of.token_step;
}

template <Type kOf, int kVector>
__device__ __forceinline__ void load_channels(const void* data, int64_t at, float (&values)[kVector]) {
  constexpr int kBytes = kOf == Type::kFloat32 ? 4 : 2;
  widen<kOf, kVector>(load_raw<kVector * kBytes>(static_cast<const char*>(data) + at * kBytes), values);
}

// Its dtype is known only here; all threads agree on it, so the branch costs next to nothing.
template <int kVector>
__device__ __forceinline__ void load_modulation(const Modulation& of, int64_t start, int column,
                                                float (&values)[kVector]) {
  if (of.channel_step == 0) {
    float one[1];
    if (of.type == Type::kFloat32) {
      load_channels<Type::kFloat32, 1>(of.data, start, one);
    } else if (of.type == Type::kBFloat16) {
      load_channels<Type::kBFloat16, 1>(of.data, start, one);
    } else {
      load_channels<Type::kFloat16, 1>(of.data, start, one);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = one[0];
  } else if (of.type == Type::kFloat32) {
    load_channels<Type::kFloat32, kVector>(of.data, start + column, values);
  } else if (of.type == Type::kBFloat16) {
    load_channels<Type::kBFloat16, kVector>(of.data, start + column, values);
  } else {
    load_channels<Type::kFloat16, kVector>(of.data, start + column, values);
  }
}

}  // namespace kernwright
