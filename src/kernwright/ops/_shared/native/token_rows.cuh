// Tokens and rows of modulation in CUDA, a vector at a time: where they lie, how they are asked for and stored.

#pragma once

#include <type_traits>

#include "elements.cuh"
#include "token_variant.h"

namespace kernwright {

template <Type kType>
constexpr int kBytesOf = kType == Type::kFloat32 ? 4 : 2;
template <Type kType>
constexpr int kWidestOf = 16 / kBytesOf<kType>;
template <Rows kRows>
constexpr bool kAreShifted = is_shifted(kRows);  // device code calls no function of the host's

template <Type kType>
__device__ __forceinline__ char* token_address(const Tokens& of, int64_t batch, int64_t token) {
  return static_cast<char*>(of.data) + (batch * of.batch_step + token * of.token_step) * kBytesOf<kType>;
}

// A vector's place in a token: its first column, and how many columns the token has. A shifted vector may begin ahead of the
// token, and any of them end behind it.
struct Columns {
  int first, width;

  template <int kVector>
  __device__ __forceinline__ bool is_whole() const { return first >= 0 && first + kVector <= width; }
  __device__ __forceinline__ bool has(int element) const { return first + element >= 0 && first + element < width; }
};

// A vector of a token, which nobody else asks for, from where this stands.
template <Type kType, int kVector>
__device__ __forceinline__ RawOf<kType, kVector> load_token(const char* token, Columns at) {
  return load_ahead<kVector * kBytesOf<kType>>(token + at.first * kBytesOf<kType>);
}

// Of a shifted vector that is not whole nothing is written but what is the token's.
template <Type kType, Rows kRows, int kVector>
__device__ __forceinline__ void store_bits(char* token, Columns at, const RawOf<kType, kVector>& raw) {
  char* const to = token + at.first * kBytesOf<kType>;
  if constexpr (kAreShifted<kRows>) {
    if (!at.is_whole<kVector>()) {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        if (at.has(i)) store_raw(to + i * 2, Raw<2>{{raw.words[i / 2] >> (i % 2 * 16)}});
      return;
    }
  }
  store_raw(to, raw);
}

template <Type kType, Rows kRows, int kVector>
__device__ __forceinline__ void store_values(char* token, Columns at, const float (&values)[kVector]) {
  store_bits<kType, kRows, kVector>(token, at, narrow_to<kType, kVector>(values));
}

// One, as `words` of a Raw have it.
template <Type kType>
constexpr uint32_t kOnes =
    kType == Type::kFloat32 ? 0x3f800000u : kType == Type::kFloat16 ? 0x3c003c00u : 0x3f803f80u;

// What each token has a row of its own of comes from far: where its dtype is known, it is asked for with the token.
constexpr Rows as_early_as_can_be(Rows rows) {
  return rows == Rows::kAny ? rows : is_shifted(rows) ? Rows::kShiftedEarly : Rows::kEarly;
}

// What only a second norm asks for takes no registers before.
constexpr Rows as_late_as_can_be(Rows rows) {
  return rows == Rows::kAny ? rows : is_shifted(rows) ? Rows::kShiftedLate : Rows::kLate;
}

// A vector of a row of modulation. kType is its dtype, unless it may be anything. Shifted ones lie in two whole vectors, of
// which each is read that has anything of the row.
template <Type kType, Rows kRows, int kVector>
struct RowPiece {
  static constexpr bool kIsEarly = is_early(kRows), kIsShifted = is_shifted(kRows);
  static_assert(!kIsShifted || (kVector == 8 && kBytesOf<kType> == 2));
  using Bits = RawOf<kType, kIsShifted ? 2 * kVector : kVector>;
  std::conditional_t<kIsEarly, Bits, Raw<4>> bits;  // early ones alone have them

  // kIsThere: it always is; otherwise it is `otherwise`, ones or zeros, where there is none.
  template <bool kIsThere = true>
  __device__ __forceinline__ void load(const Modulation& of, int64_t start, Columns at, uint32_t otherwise = 0) {
    if constexpr (kIsEarly) bits = found<kIsThere>(of, start, at, otherwise);
  }

  template <bool kIsThere = true>
  __device__ __forceinline__ void values(const Modulation& of, int64_t start, Columns at, float (&to)[kVector],
                                         uint32_t otherwise = 0) const {
    if constexpr (kRows != Rows::kAny) {
      widen<kType, kVector>(raw<kIsThere>(of, start, at, otherwise), to);
    } else if (kIsThere || of.data != nullptr) {
      load_modulation(of, start, at.first, to);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) to[i] = otherwise == 0 ? 0.f : 1.f;
    }
  }

  // As it lies in memory, of a row of kType.
  template <bool kIsThere = true>
  __device__ __forceinline__ RawOf<kType, kVector> raw(const Modulation& of, int64_t start, Columns at,
                                                       uint32_t otherwise = 0) const {
    static_assert(kRows != Rows::kAny, "such a row may be of another dtype");
    Bits own;
    if constexpr (kIsEarly) own = bits;
    else own = found<kIsThere>(of, start, at, otherwise);
    if constexpr (kIsShifted) {
      const uint32_t* words = own.words;
      return eight_from(into(address(of, start, at)), {words[0], words[1], words[2], words[3]},
                        {words[4], words[5], words[6], words[7]});
    } else {
      return own;
    }
  }

 private:
  __device__ __forceinline__ static const char* address(const Modulation& of, int64_t start, Columns at) {
    return static_cast<const char*>(of.data) + (start + at.first) * kBytesOf<kType>;
  }

  // How many elements ahead of it a whole vector starts.
  __device__ __forceinline__ static int into(const char* from) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16 / kBytesOf<kType>);
  }

  template <int kBytes>
  __device__ __forceinline__ static Raw<kBytes> loaded(const char* from) {
    if constexpr (kIsEarly && kBytes % 16 == 0) return load_ahead<kBytes>(from);
    else return load_raw<kBytes>(from);
  }

  template <bool kIsThere>
  __device__ __forceinline__ static Bits found(const Modulation& of, int64_t start, Columns at, uint32_t otherwise) {
    Bits own;
    if (!kIsThere && of.data == nullptr) {
#pragma unroll
      for (uint32_t& word : own.words) word = otherwise;
      return own;
    }
    const char* from = address(of, start, at);
    if constexpr (kIsShifted) {
      const int ahead = into(from);
      const char* whole = from - ahead * kBytesOf<kType>;
      Raw<16> low{}, high{};
      if (at.first - ahead + kVector > 0) low = loaded<16>(whole);
      if (ahead != 0 && at.first - ahead + kVector < at.width) high = loaded<16>(whole + 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) own.words[i] = low.words[i], own.words[4 + i] = high.words[i];
    } else {
      own = loaded<kVector * kBytesOf<kType>>(from);
    }
    return own;
  }
};

}  // namespace kernwright
