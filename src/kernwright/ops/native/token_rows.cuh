// Tokens and rows of modulation in CUDA, a vector at a time: where they lie, how they are asked for and stored.

#pragma once

#include "elements.cuh"
#include "token_variant.h"

namespace kernwright {

template <Type kType>
constexpr int kBytesOf = kType == Type::kFloat32 ? 4 : 2;
template <Type kType>
constexpr int kWidestOf = 16 / kBytesOf<kType>;

template <Type kType>
__device__ __forceinline__ char* token_address(const Tokens& of, int64_t batch, int64_t token) {
  return static_cast<char*>(of.data) + (batch * of.batch_step + token * of.token_step) * kBytesOf<kType>;
}

// A vector of a token, which nobody else asks for, from where this stands.
template <Type kType, int kVector>
__device__ __forceinline__ RawOf<kType, kVector> load_token(const char* token, int column) {
  return load_raw<kVector * kBytesOf<kType>, true>(token + column * kBytesOf<kType>);
}

// Whole vectors go past the cache, where they are too many to be found there later.
template <Type kType, int kVector>
__device__ __forceinline__ void store_bits(char* token, int column, const RawOf<kType, kVector>& raw, bool is_streaming) {
  constexpr int kBytes = kVector * kBytesOf<kType>;
  char* const to = token + column * kBytesOf<kType>;
  if constexpr (kBytes % 16 == 0) {
    if (is_streaming) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i)
        __stcs(reinterpret_cast<uint4*>(to) + i, make_uint4(raw.words[4 * i], raw.words[4 * i + 1],
                                                            raw.words[4 * i + 2], raw.words[4 * i + 3]));
      return;
    }
  }
  store_raw(to, raw);
}

template <Type kType, int kVector>
__device__ __forceinline__ void store_values(char* token, int column, const float (&values)[kVector], bool is_streaming) {
  store_bits<kType, kVector>(token, column, narrow_to<kType, kVector>(values), is_streaming);
}

// One, as `words` of a Raw have it.
template <Type kType>
constexpr uint32_t kOnes =
    kType == Type::kFloat32 ? 0x3f800000u : kType == Type::kFloat16 ? 0x3c003c00u : 0x3f803f80u;

// What each token has a row of its own of comes from far: where its dtype is known, it is asked for with the token.
constexpr Rows as_early_as_can_be(Rows rows) { return rows == Rows::kAny ? rows : Rows::kEarly; }

// A vector of a row of modulation. kType is its dtype, unless it may be anything.
template <Type kType, Rows kRows, int kVector>
struct RowPiece {
  static constexpr bool kIsEarly = kRows == Rows::kEarly;
  RawOf<kType, kIsEarly ? kVector : 1> bits;  // Rows::kEarly alone has them

  // kIsThere: it always is; otherwise it is `otherwise`, ones or zeros, where there is none.
  template <bool kIsThere = true>
  __device__ __forceinline__ void load(const Modulation& of, int64_t start, int column, uint32_t otherwise = 0) {
    if constexpr (kIsEarly) bits = found<kIsThere>(of, start, column, otherwise);
  }

  template <bool kIsThere = true>
  __device__ __forceinline__ void values(const Modulation& of, int64_t start, int column, float (&to)[kVector],
                                         uint32_t otherwise = 0) const {
    if constexpr (kIsEarly) {
      widen<kType, kVector>(bits, to);
    } else if constexpr (kRows == Rows::kLate) {
      widen<kType, kVector>(found<kIsThere>(of, start, column, otherwise), to);
    } else if (kIsThere || of.data != nullptr) {
      load_modulation(of, start, column, to);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) to[i] = otherwise == 0 ? 0.f : 1.f;
    }
  }

  // As it lies in memory, of a row that is there and of kType.
  __device__ __forceinline__ RawOf<kType, kVector> raw(const Modulation& of, int64_t start, int column) const {
    static_assert(kRows != Rows::kAny, "such a row may be of another dtype");
    if constexpr (kIsEarly) return bits;
    else return found<true>(of, start, column, 0);
  }

 private:
  template <bool kIsThere>
  __device__ __forceinline__ static RawOf<kType, kVector> found(const Modulation& of, int64_t start, int column,
                                                                uint32_t otherwise) {
    constexpr int kBytes = kVector * kBytesOf<kType>;
    RawOf<kType, kVector> raw;
    if (kIsThere || of.data != nullptr) {
      const char* from = static_cast<const char*>(of.data) + (start + column) * kBytesOf<kType>;
      if constexpr (kIsEarly && kBytes % 16 == 0) raw = load_ahead<kBytes>(from);
      else raw = load_raw<kBytes, false>(from);
    } else {
#pragma unroll
      for (uint32_t& word : raw.words) word = otherwise;
    }
    return raw;
  }
};

}  // namespace kernwright
