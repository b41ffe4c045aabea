// Tokens that are normed, in CUDA: a token lies in the registers of its threads from the load to the store.
//
// What is normed, and what becomes of it, is a family's: it brings a struct with
//
//   static constexpr Type kType;            of x: vectors of 16 bytes are vectors of it
//   static constexpr int kNorms;            1, or 2: what the first norm gave is normed again
//   using Problem = ...;                    a call as plain data, an Extent with `eps`
//   static constexpr TokenShape kShapes[];  the kernels that hold a token, in an order of preference
//   template <Rows, int kVector> struct Chain;
//
// and a Chain is one token's work, made of (const Work<Problem>&, int64_t batch, int64_t token) in every thread of it:
//
//   struct Loaded;                                        a vector's bits that are under way
//   bool is_rms() const;                                  all threads agree on it
//   void load(Loaded&, int column)                        asks for x and all that no other load leads to
//   void load_rows(Loaded&, int column)                   asks for the rest; all of the token was asked for before
//   void value<kStores>(Loaded&, int column, float (&)[kVector])   gives what is normed; stores what needs no statistics
//   void finish<kNorm, kStores>(Loaded&, int column, float (&)[kVector])
//                                                         of the normed values: stores, and before a second norm leaves
//                                                         in them what it is to norm
//
// A Loaded is default-constructed to zeros and filled only where the token has a vector. Without kStores nothing is
// stored: a token too wide to be held is walked through more than once.
//
// Statistics are float32, centred before they are squared. Threads of a token meet once a norm: each warp centres its own
// part about its own mean, and the parts are combined, which is as exact as centring all about one mean.

#pragma once

#include <cuda_runtime.h>

#include "elements.cuh"
#include "launching.cuh"
#include "token_variant.h"

namespace kernwright {

// What a kernel gets. What is asked for first stands first: a GPU fetches its arguments a line at a time.
template <typename Problem>
struct Work {
  float per_element;  // 1 / width
  bool is_streaming;
  Problem problem;
};

template <Type kType>
constexpr int kBytesOf = kType == Type::kFloat32 ? 4 : 2;
template <Type kType>
constexpr int kWidestOf = 16 / kBytesOf<kType>;

// ---- tokens and rows ------------------------------------------------------------------------------------------------

template <Type kType>
__device__ __forceinline__ char* token_address(const Tokens& of, int64_t batch, int64_t token) {
  return static_cast<char*>(of.data) + (batch * of.batch_step + token * of.token_step) * kBytesOf<kType>;
}

// A vector of a token, which nobody else asks for, from where this stands.
template <Type kType, int kVector>
__device__ __forceinline__ RawOf<kType, kVector> load_token(const char* token, int column) {
  return load_raw<kVector * kBytesOf<kType>, true>(token + column * kBytesOf<kType>);
}

// Rounds to kType, and stores; whole vectors past the cache, where they are too many to be found there later.
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

// ---- statistics -----------------------------------------------------------------------------------------------------

struct TokenStatistics {
  float near = 0.f, lacking = 0.f;  // the mean is their sum
  float inverse = 0.f;              // of the standard deviation, or of the root of the mean square

  // kFine: the difference first, since a product with the mean would be off by more than a float32 result may be.
  template <bool kFine, int kVector>
  __device__ __forceinline__ void norm(float (&values)[kVector], bool is_rms) const {
    const float rest = -(kFine ? lacking : near) * inverse;
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      values[i] = is_rms ? values[i] * inverse : fmaf(kFine ? values[i] - near : values[i], inverse, rest);
  }
};

template <int kLanes>
__device__ __forceinline__ float lanes_total(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// 1 / sqrt(value). kFine: nearer than the GPU's own, by a step of Newton's, where that does not overflow.
template <bool kFine>
__device__ __forceinline__ float inverse_root(float value) {
  const float near = rsqrtf(value);
  if (!kFine || !(value > 1e-30f && value < 1e30f)) return near;
  return fmaf(0.5f * near, fmaf(-value * near, near, 1.f), near);
}

// As a tree, so that no addition waits for all before it.
template <int kCount>
__device__ __forceinline__ float total_of(const float* values) {
  if constexpr (kCount == 1) return values[0];
  else return total_of<kCount / 2>(values) + total_of<kCount - kCount / 2>(values + kCount / 2);
}

// Of what this thread has: values about `about`, and their squares. `holds(i)` says whether there is a vector i.
template <int kVectors, int kVector, typename Holds>
__device__ __forceinline__ void add_up(const float (&values)[kVectors][kVector], const Holds& holds, float about,
                                       float* sum, float* squares) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float apart[kVector], two[2] = {0.f, 0.f};
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      apart[j] = values[i][j] - about;
      two[j % 2] = fmaf(apart[j], apart[j], two[j % 2]);
    }
    *squares += holds(i) ? two[0] + two[1] : 0.f;
    *sum += holds(i) ? total_of<kVector>(apart) : 0.f;
  }
}

template <int kVectors, int kVector>
__device__ __forceinline__ float plain_sum(const float (&values)[kVectors][kVector]) {
  float sum = 0.f;  // vectors that are not there are zeros
#pragma unroll
  for (int i = 0; i < kVectors; ++i) sum += total_of<kVector>(values[i]);
  return sum;
}

// Of a token that one warp has.
template <bool kFine, int kVectors, int kVector, typename Holds>
__device__ __forceinline__ TokenStatistics warp_statistics(const float (&values)[kVectors][kVector], const Holds& holds,
                                                           bool is_rms, float per_element, float eps) {
  TokenStatistics of;
  if (!is_rms) of.near = lanes_total<32>(plain_sum(values)) * per_element;
  float left = 0.f, squares = 0.f;
  add_up(values, holds, of.near, &left, &squares);
  if (kFine && !is_rms) of.lacking = lanes_total<32>(left) * per_element;
  const float mean = lanes_total<32>(squares) * per_element;
  of.inverse = inverse_root<kFine>(fmaf(-of.lacking, of.lacking, mean) + eps);
  return of;
}

// Of a token that all warps of a block have, `count` elements of it this one. `parts` are shared, one a warp, and not used
// by a norm before: nobody waits until they were read.
//
// A float32 mean far from zero is off by its own roundings, by more than the eager chain's where sums are as long as here.
// So in float32 what is left once values are centred is summed too; rounded to half that width nobody would see it.
template <bool kFine, int kMostWarps, int kVectors, int kVector, typename Holds>
__device__ __forceinline__ TokenStatistics block_statistics(const float (&values)[kVectors][kVector], const Holds& holds,
                                                            int count, bool is_rms, float per_element, float eps,
                                                            float4* parts) {
  constexpr int kLanes = kMostWarps <= 4 ? 4 : kMostWarps <= 8 ? 8 : kMostWarps <= 16 ? 16 : 32;
  const float counted = static_cast<float>(count);
  float about = 0.f, sum = 0.f, left = 0.f, squares = 0.f;
  if (!is_rms) {
    sum = lanes_total<32>(plain_sum(values));
    about = count == 0 ? 0.f : __fdividef(sum, counted);  // need not be exact: what it is off by is accounted for
  }
  add_up(values, holds, about, &left, &squares);
  squares = lanes_total<32>(squares);
  if (kFine && !is_rms) left = lanes_total<32>(left);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float4(kFine ? left : sum, about, squares, counted);
  __syncthreads();
  const int lane = threadIdx.x % kLanes;
  const float4 own = lane < static_cast<int>(blockDim.x / 32) ? parts[lane] : make_float4(0.f, 0.f, 0.f, 0.f);
  TokenStatistics of;
  float whole = own.z;
  if (!is_rms) {
    if constexpr (kFine) {
      of.near = parts[0].y;
      of.lacking = lanes_total<kLanes>(fmaf(own.y - of.near, own.w, own.x)) * per_element;
      const float apart = (own.y - of.near) - of.lacking;
      whole = fmaf(apart, fmaf(apart, own.w, 2.f * own.x), whole);
    } else {
      of.near = lanes_total<kLanes>(own.x) * per_element;
      const float apart = own.y - of.near;
      whole = fmaf(apart * apart, own.w, whole);
    }
  }
  of.inverse = inverse_root<kFine>(lanes_total<kLanes>(whole) * per_element + eps);
  return of;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// A grid's y has a limit, and z takes what is beyond it: both together have 32 bits.
__device__ __forceinline__ uint32_t batch_of_block() { return blockIdx.z * gridDim.y + blockIdx.y; }

template <typename Chain, int kVectors, int kVector, typename Holds, typename Column>
__device__ __forceinline__ void load_all(Chain& chain, typename Chain::Loaded (&loaded)[kVectors],
                                         float (&values)[kVectors][kVector], const Holds& holds, const Column& column) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (holds(i)) chain.load(loaded[i], column(i));
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (holds(i)) chain.load_rows(loaded[i], column(i));
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[i][j] = 0.f;
    if (holds(i)) chain.template value<true>(loaded[i], column(i), values[i]);
  }
}

template <int kNorm, bool kFine, typename Chain, int kVectors, int kVector, typename Holds, typename Column>
__device__ __forceinline__ void finish_all(Chain& chain, typename Chain::Loaded (&loaded)[kVectors],
                                           float (&values)[kVectors][kVector], const TokenStatistics& of,
                                           const Holds& holds, const Column& column) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!holds(i)) continue;
    of.norm<kFine>(values[i], chain.is_rms());
    chain.template finish<kNorm, true>(loaded[i], column(i), values[i]);
  }
}

// A shape as a constant of its own: device code reads no table of the host's.
template <typename Family, int kShape>
struct ShapeOf {
  static constexpr TokenShape kOf = Family::kShapes[kShape];
};

// One token a block.
template <typename Family, int kShape>
__global__ void __launch_bounds__(32 * ShapeOf<Family, kShape>::kOf.warps, ShapeOf<Family, kShape>::kOf.least_blocks)
    held_token(const __grid_constant__ Work<typename Family::Problem> w) {
  constexpr TokenShape kOf = ShapeOf<Family, kShape>::kOf;
  constexpr int kVectors = kOf.vectors, kVector = kOf.is_wide ? kWidestOf<Family::kType> : 1;
  constexpr bool kFine = Family::kType == Type::kFloat32;
  using Chain = typename Family::template Chain<kOf.rows, kVector>;
  __shared__ float4 parts[Family::kNorms][kOf.warps];
  const auto& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const uint32_t threads = kOf.is_exact ? 32 * kOf.warps : blockDim.x, thread = threadIdx.x;
  const uint32_t vectors = static_cast<uint32_t>(p.width) / kVector;
  // Only the last vector of a token that fills its shape may lie beyond its end.
  constexpr int kCertain = kOf.is_exact ? kVectors - 1 : 0;
  auto holds = [&](int i) { return i < kCertain || i * threads + thread < vectors; };
  auto column = [&](int i) { return static_cast<int>(i * threads + thread) * kVector; };
  int count = 0;  // how many elements the threads of this one's warp hold
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int left = static_cast<int>(vectors) - static_cast<int>(i * threads + thread / 32 * 32);
    count += i < kCertain || left > 32 ? 32 : left < 0 ? 0 : left;
  }
  count *= kVector;

  Chain chain(w, batch, blockIdx.x);
  typename Chain::Loaded loaded[kVectors]{};
  float values[kVectors][kVector];
  load_all(chain, loaded, values, holds, column);
  const TokenStatistics of = block_statistics<kFine, kOf.warps>(values, holds, count, chain.is_rms(), w.per_element,
                                                                p.eps, parts[0]);
  finish_all<0, kFine>(chain, loaded, values, of, holds, column);
  if constexpr (Family::kNorms == 2) {
    const TokenStatistics again = block_statistics<kFine, kOf.warps>(values, holds, count, chain.is_rms(), w.per_element,
                                                                     p.eps, parts[1]);
    finish_all<1, kFine>(chain, loaded, values, again, holds, column);
  }
}

// One token a warp.
template <typename Family, bool kIsWide>
__global__ void __launch_bounds__(32 * kWarpsOfSmall)
    small_token(const __grid_constant__ Work<typename Family::Problem> w) {
  constexpr int kVectors = kIsWide ? kVectorsOfSmall : kElementsOfSmall;
  constexpr int kVector = kIsWide ? kWidestOf<Family::kType> : 1;
  constexpr bool kFine = Family::kType == Type::kFloat32;
  using Chain = typename Family::template Chain<Rows::kAny, kVector>;
  const auto& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const int64_t token = int64_t{blockIdx.x} * kWarpsOfSmall + threadIdx.x / 32;
  const bool is_there = token < p.tokens;  // a warp without a token goes along: all meet at the same places
  const int lane = threadIdx.x % 32;
  auto column = [&](int i) { return (i * 32 + lane) * kVector; };
  auto holds = [&](int i) { return is_there && column(i) < p.width; };

  Chain chain(w, batch, is_there ? token : 0);
  typename Chain::Loaded loaded[kVectors]{};
  float values[kVectors][kVector];
  load_all(chain, loaded, values, holds, column);
  const TokenStatistics of = warp_statistics<kFine>(values, holds, chain.is_rms(), w.per_element, p.eps);
  finish_all<0, kFine>(chain, loaded, values, of, holds, column);
  if constexpr (Family::kNorms == 2) {
    const TokenStatistics again = warp_statistics<kFine>(values, holds, chain.is_rms(), w.per_element, p.eps);
    finish_all<1, kFine>(chain, loaded, values, again, holds, column);
  }
}

// The sum over a block's threads, the same in each of them. Two buffers in turn: whoever writes one again has passed the
// barrier of the other, and so has everybody who read the first.
struct BlockTotal {
  float* parts;  // [2][32], shared
  int turn = 0;

  __device__ __forceinline__ float operator()(float value) {
    value = lanes_total<32>(value);
    float* own = parts + 32 * turn;
    turn ^= 1;
    const int lane = threadIdx.x % 32;
    if (lane == 0) own[threadIdx.x / 32] = value;
    __syncthreads();
    return lanes_total<32>(lane < static_cast<int>(blockDim.x / 32) ? own[lane] : 0.f);
  }
};

// Calls `body(column)` for each vector of this thread.
template <int kVector, typename Body>
__device__ __forceinline__ void each_vector(int width, const Body& body) {
#pragma unroll 1
  for (int column = threadIdx.x * kVector; column < width; column += blockDim.x * kVector) body(column);
}

// Statistics of a token in passes; `again(column, values)` forms a vector of it anew.
template <bool kFine, int kVector, typename Again>
__device__ __forceinline__ TokenStatistics streamed_statistics(int width, bool is_rms, float per_element, float eps,
                                                               BlockTotal& total, const Again& again) {
  TokenStatistics of;
  float values[1][kVector], sum = 0.f, left = 0.f, squares = 0.f;
  if (!is_rms) {
    each_vector<kVector>(width, [&](int column) {
      again(column, values[0]);
      sum += total_of<kVector>(values[0]);
    });
    of.near = total(sum) * per_element;
  }
  each_vector<kVector>(width, [&](int column) {
    again(column, values[0]);
    add_up(values, [](int) { return true; }, of.near, &left, &squares);
  });
  if (kFine && !is_rms) of.lacking = total(left) * per_element;
  of.inverse = inverse_root<kFine>(fmaf(-of.lacking, of.lacking, total(squares) * per_element) + eps);
  return of;
}

// Tokens of any width.
template <typename Family, bool kIsWide>
__global__ void __launch_bounds__(kThreadsOfStreamed)
    streamed_token(const __grid_constant__ Work<typename Family::Problem> w) {
  constexpr int kVector = kIsWide ? kWidestOf<Family::kType> : 1;
  constexpr bool kFine = Family::kType == Type::kFloat32;
  using Chain = typename Family::template Chain<Rows::kAny, kVector>;
  __shared__ float parts[64];
  BlockTotal total{parts};
  const auto& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
#pragma unroll 1
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    Chain chain(w, batch, token);
    const bool is_rms = chain.is_rms();
    typename Chain::Loaded loaded{};
    auto value = [&](int column, float(&to)[kVector]) {
      chain.load(loaded, column);
      chain.load_rows(loaded, column);
      chain.template value<false>(loaded, column, to);
    };
    const TokenStatistics of = streamed_statistics<kFine, kVector>(p.width, is_rms, w.per_element, p.eps, total, value);
    auto next = [&](int column, float(&to)[kVector]) {
      value(column, to);
      of.norm<kFine>(to, is_rms);
      chain.template finish<0, false>(loaded, column, to);
    };
    TokenStatistics again;
    if constexpr (Family::kNorms == 2)
      again = streamed_statistics<kFine, kVector>(p.width, is_rms, w.per_element, p.eps, total, next);
    each_vector<kVector>(p.width, [&](int column) {
      float values[kVector];
      chain.load(loaded, column);
      chain.load_rows(loaded, column);
      chain.template value<true>(loaded, column, values);
      of.norm<kFine>(values, is_rms);
      chain.template finish<0, true>(loaded, column, values);
      if constexpr (Family::kNorms == 2) {
        again.norm<kFine>(values, is_rms);
        chain.template finish<1, true>(loaded, column, values);
      }
    });
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

template <typename Family>
constexpr int kShapesOf = static_cast<int>(sizeof(Family::kShapes) / sizeof(TokenShape));

template <typename Family>
using TokenKernel = void (*)(Work<typename Family::Problem>);

template <typename Family, int kShape = 0>
TokenKernel<Family> held_token_of(int shape) {
  if (shape == kShape) return held_token<Family, kShape>;
  if constexpr (kShape + 1 < kShapesOf<Family>) return held_token_of<Family, kShape + 1>(shape);
  else return nullptr;
}

template <typename Family>
TokenKernel<Family> token_kernel_of(const TokenVariant& v) {
  if (v.kind == TokenKind::kHeld) return held_token_of<Family>(v.shape);
  if (v.kind == TokenKind::kSmall) return v.vector == 1 ? small_token<Family, false> : small_token<Family, true>;
  return v.vector == 1 ? streamed_token<Family, false> : streamed_token<Family, true>;
}

// 0, or CUDA's number for what went wrong.
template <typename Family>
int launch_tokens(const typename Family::Problem& p, const TokenVariant& v, int device, void* stream) {
  return on_device(device, [&]() -> cudaError_t {
    constexpr int64_t kMostY = 65535;
    int64_t blocks = (p.tokens + v.tokens - 1) / v.tokens;
    if (blocks > INT32_MAX) blocks = INT32_MAX;  // of streamed tokens alone: a block goes on with the next
    const int64_t y = p.batches < kMostY ? p.batches : kMostY, z = (p.batches + y - 1) / y;
    if (z > kMostY) return cudaErrorInvalidConfiguration;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(y), static_cast<unsigned>(z));
    Work<typename Family::Problem> work{1.f / static_cast<float>(p.width), v.is_streaming, p};
    void* arguments[] = {&work};
    return cudaLaunchKernel(reinterpret_cast<const void*>(token_kernel_of<Family>(v)), grid, dim3(v.threads), arguments,
                            0, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace kernwright
