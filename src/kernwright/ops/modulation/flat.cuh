// Kernels for tokens that lie one behind the other: a thread has one vector of 16 bytes of the run, wherever in a token it
// lies, and all that it needs is asked for before any of it is looked at. kernel.cu includes this, and says what it
// promises; policy.h says when it runs.
//
// Where all numbers have x's dtype, and that is half as wide, two are computed at once, with the chain's bits (elements.cuh).

#pragma once

#include <iterator>

#include "elements.cuh"
#include "launching.cuh"
#include "policy.h"

namespace kernwright {
namespace {

constexpr Type kType = Type::KERNWRIGHT_TYPE, kResult = Type::KERNWRIGHT_RESULT;
constexpr int kSize = kType == Type::kFloat32 ? 4 : 2, kResultSize = kResult == Type::kFloat32 ? 4 : 2;
constexpr int kWidestVector = 16 / kSize;

template <int kPair>
constexpr Pair pair_of() {
  if constexpr (kType != kResult) return kWideningPairs[kPair];
  else if constexpr (kType == Type::kFloat32) return kFloatPairs[kPair];
  else return kHalfPairs[kPair];
}
constexpr int kPairs = static_cast<int>(kType != kResult           ? std::size(kWideningPairs)
                                        : kType == Type::kFloat32 ? std::size(kFloatPairs)
                                                                  : std::size(kHalfPairs));

// Of one pair, and of one kind, as device code may read them.
template <int kPair>
struct Modulations {
  static constexpr Kind kScale = pair_of<kPair>().scale, kShift = pair_of<kPair>().shift;
  static constexpr bool kRoundsProduct = pair_of<kPair>().rounds_product;
};

template <Kind kKind>
struct Source {
  static constexpr bool kIsThere = kKind != Kind::kNone;
  static constexpr bool kIsFloat = is_float(kKind), kIsRow = is_row(kKind), kIsStepped = is_stepped(kKind);
  static constexpr Type kType = kIsFloat ? Type::kFloat32 : Type::KERNWRIGHT_TYPE;
  static constexpr int kBytes = kType == Type::kFloat32 ? 4 : 2;  // an element
};

// ---- memory ---------------------------------------------------------------------------------------------------------

// 16 bytes of a row from any of its channels on; behind its last one the row begins again. Nothing is read behind
// the row's end; ahead of its start at most what else is of a vector that it starts in.
template <int kBytes>
__device__ __forceinline__ Raw<16> gathered_vector(const void* row, uint32_t from, uint32_t width) {
  constexpr uint32_t kCount = 16 / kBytes;
  const uintptr_t at = reinterpret_cast<uintptr_t>(row) + uint64_t{from} * kBytes;
  const uint32_t phase = static_cast<uint32_t>(at & 15);
  Raw<16> raw;
  // It lies in two whole vectors, or is one itself; where these end behind the row its elements come one by one.
  if (from + (phase ? 2 * kCount - phase / kBytes : kCount) > width) {
    raw = Raw<16>{};
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t own = from + i < width ? from + i : from + i - width;
      const uint32_t one = load_raw<kBytes>(static_cast<const char*>(row) + uint64_t{own} * kBytes).words[0];
      raw.words[i * kBytes / 4] |= one << (i * kBytes % 4 * 8);
    }
    return raw;
  }
  const uint4* whole = reinterpret_cast<const uint4*>(at - phase);
  const uint4 first = load_word(whole), second = phase ? load_word(whole + 1) : make_uint4(0, 0, 0, 0);
  uint32_t words[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  if (phase & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = words[i + 2];
  }
  if (phase & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = words[i + 1];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    raw.words[i] = kBytes == 4 ? words[i] : __funnelshift_r(words[i], words[i + 1], (phase & 2) * 8);
  return raw;
}

// As many elements as a vector of x has.
template <int kBytes>
__device__ __forceinline__ Raw<kWidestVector * kBytes> gathered(const void* row, uint32_t from, uint32_t width) {
  Raw<kWidestVector * kBytes> raw;
#pragma unroll
  for (int i = 0; i < kWidestVector * kBytes / 16; ++i) {
    const uint32_t at = from + i * (16 / kBytes);
    const Raw<16> part = gathered_vector<kBytes>(row, at < width ? at : at - width, width);
#pragma unroll
    for (int j = 0; j < 4; ++j) raw.words[4 * i + j] = part.words[j];
  }
  return raw;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

template <Kind kKind, int kCount>
using PieceOf = RawOf<Source<kKind>::kType, kCount>;

// x * (constant + scale) + shift, of kCount elements.
template <int kPair, int kCount>
__device__ __forceinline__ RawOf<kResult, kCount> modulated(const Flat& f, const RawOf<kType, kCount>& x,
                                                            PieceOf<Modulations<kPair>::kScale, kCount> scale,
                                                            const PieceOf<Modulations<kPair>::kShift, kCount>& shift) {
  using Scale = Source<Modulations<kPair>::kScale>;
  using Shift = Source<Modulations<kPair>::kShift>;
  constexpr bool kRoundsProduct = Modulations<kPair>::kRoundsProduct;
  constexpr bool kHasHalfScale = Scale::kIsThere && kSize == 2 && !Scale::kIsFloat;
  constexpr bool kHalfProduct = !Scale::kIsThere || (kHasHalfScale && kRoundsProduct);
  constexpr bool kHalfSum = kSize == 2 && kResult == kType && kHalfProduct && !Shift::kIsFloat;
  constexpr int kWords = (kCount + 1) / 2;  // of halves
  static_assert(kHasHalfScale || !kRoundsProduct);

  if constexpr (kHasHalfScale) {
    const uint32_t constant = f.half_constant * 0x10001u;
#pragma unroll
    for (int i = 0; i < kWords; ++i) scale.words[i] = two_sums<kType>(scale.words[i], constant);
  }
  RawOf<kType, kCount> product = x;
  if constexpr (kHasHalfScale && kHalfProduct) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) product.words[i] = two_products<kType>(x.words[i], scale.words[i]);
  }
  if constexpr (kHalfSum) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) product.words[i] = two_sums<kType>(product.words[i], shift.words[i]);
    return product;
  } else {
    float values[kCount], others[kCount];
    widen<kType, kCount>(product, values);
    if constexpr (!kHalfProduct) {
      widen<Scale::kType, kCount>(scale, others);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if constexpr (!kHasHalfScale) others[i] = __fadd_rn(others[i], f.constant);
        values[i] = __fmul_rn(values[i], others[i]);
      }
    }
    widen<Shift::kType, kCount>(shift, others);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = __fadd_rn(values[i], others[i]);
    return narrow_to<kResult, kCount>(values);
  }
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// A place in a batch: an element of the run, and where that lies in its token.
struct Place {
  uint64_t element;
  uint32_t token, column;
};

template <Kind kKind>
__device__ __forceinline__ int64_t offset_of(const Place& at, int64_t step) {
  if constexpr (Source<kKind>::kIsStepped) return at.token * step + at.column;
  else if constexpr (Source<kKind>::kIsRow) return at.column;
  else return static_cast<int64_t>(at.element);
}

template <Kind kKind, bool kRagged>
__device__ __forceinline__ PieceOf<kKind, kWidestVector> load_piece(const Flat& f, const char* data, const Place& at,
                                                                   int64_t step) {
  constexpr int kBytes = Source<kKind>::kBytes;
  if constexpr (kKind == Kind::kNone) return {};
  else if constexpr (Source<kKind>::kIsRow && kRagged) return gathered<kBytes>(data, at.column, f.a_token);
  else if constexpr (Source<kKind>::kIsRow) return load_ahead<kWidestVector * kBytes>(data + at.column * uint64_t{kBytes});
  else return load_ahead<kWidestVector * kBytes>(data + offset_of<kKind>(at, step) * kBytes);
}

template <Kind kKind>
__device__ __forceinline__ PieceOf<kKind, 1> load_one(const char* data, const Place& at) {
  constexpr int kBytes = Source<kKind>::kBytes;
  if constexpr (kKind == Kind::kNone) return {};
  else return load_raw<kBytes>(data + offset_of<kKind>(at, 0) * kBytes);
}

__device__ __forceinline__ uint32_t tokens_before(const Flat& f, uint32_t place) {
  return (__umulhi(place, f.magic) + place) >> f.digits;
}

template <int kPair, bool kRagged>
__global__ void __launch_bounds__(kThreadsOfFlat) flat(const __grid_constant__ Flat f) {
  constexpr Kind kScale = Modulations<kPair>::kScale, kShift = Modulations<kPair>::kShift;
  using Scale = Source<kScale>;
  using Shift = Source<kShift>;
  constexpr bool kAsksForTokens = Scale::kIsRow || Shift::kIsRow || Scale::kIsStepped || Shift::kIsStepped;
  const char *x = static_cast<const char*>(f.x), *scale = static_cast<const char*>(f.scale);
  const char* shift = static_cast<const char*>(f.shift);
  char* y = static_cast<char*>(f.y);
  if (const int64_t batch = blockIdx.y) {  // a call of one batch reads none of its steps
    x += batch * f.x_batch * kSize;
    y += batch * f.y_batch * kResultSize;
    scale += batch * f.scale_batch * Scale::kBytes;
    shift += batch * f.shift_batch * Shift::kBytes;
  }
  const uint32_t vector = blockIdx.x * kThreadsOfFlat + threadIdx.x;
  wait_for_turn();
  if (vector < f.whole) {
    Place at{static_cast<uint64_t>(vector) * kWidestVector, 0, 0};
    const Raw<16> own = load_ahead<16>(x + at.element * kSize);
    if constexpr (kAsksForTokens && kRagged) {
      at.token = tokens_before(f, vector * kWidestVector);
      at.column = vector * kWidestVector - at.token * f.a_token;
    } else if constexpr (kAsksForTokens) {
      at.token = tokens_before(f, vector);
      at.column = (vector - at.token * f.a_token) * kWidestVector;
    }
    const auto scales = load_piece<kScale, kRagged>(f, scale, at, f.scale_token);
    const auto shifts = load_piece<kShift, kRagged>(f, shift, at, f.shift_token);
    store_raw(y + at.element * kResultSize, modulated<kPair, kWidestVector>(f, own, scales, shifts));
  }
  if constexpr (kRagged) {
    if (blockIdx.x == 0 && threadIdx.x < f.rest) {
      Place at{static_cast<uint64_t>(f.whole) * kWidestVector + threadIdx.x, 0, 0};
      at.column = static_cast<uint32_t>(at.element) % f.a_token;
      const auto own = load_raw<kSize>(x + at.element * kSize);
      const auto one = modulated<kPair, 1>(f, own, load_one<kScale>(scale, at), load_one<kShift>(shift, at));
      store_raw(y + at.element * kResultSize, one);
    }
  }
}

using FlatKernel = void (*)(Flat);

template <int kPair = 0>
FlatKernel flat_kernel_of(const FlatVariant& v) {
  if (v.pair == kPair) {
    if constexpr (can_be_ragged(pair_of<kPair>()))
      if (v.is_ragged) return flat<kPair, true>;
    return flat<kPair, false>;
  }
  if constexpr (kPair + 1 < kPairs) return flat_kernel_of<kPair + 1>(v);
  else return nullptr;
}

}  // namespace
}  // namespace kernwright
