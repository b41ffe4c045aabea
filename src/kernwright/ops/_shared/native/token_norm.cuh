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
//   void load(Loaded&, Columns)                          asks for x and all that no other load leads to
//   void load_rows(Loaded&, Columns)                     asks for the rest; all of the token was asked for before
//   void value<kStores>(Loaded&, Columns, float (&)[kVector])   gives what is normed; stores what needs no statistics
//   void finish<kNorm, kStores>(Loaded&, Columns, float (&)[kVector])
//                                                         of the normed values: stores, and before a second norm leaves
//                                                         in them what it is to norm
//
// A Loaded is default-constructed to zeros and filled only where the token has a vector. Without kStores nothing is
// stored: a token too wide to be held is walked through more than once.
//
// A shifted token starts anywhere, or has an odd end: its vectors are whole ones of x's memory all the same, so those at its
// ends have elements beside it. These are read, count as nothing, and are not written.

#pragma once

#include <cuda_runtime.h>

#include "launching.cuh"
#include "token_rows.cuh"
#include "token_statistics.cuh"
#include "token_variant.h"

namespace kernwright {

// What a kernel gets. What is asked for first stands first: a GPU fetches its arguments a line at a time.
template <typename Problem>
struct Work {
  float per_element;  // 1 / width
  Problem problem;
};

// ---- kernels --------------------------------------------------------------------------------------------------------

template <typename Chain, int kVectors, int kVector, typename Holds, typename At>
__device__ __forceinline__ void load_all(Chain& chain, typename Chain::Loaded (&loaded)[kVectors],
                                         float (&values)[kVectors][kVector], const Holds& holds, const At& at) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (holds(i)) chain.load(loaded[i], at(i));
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (holds(i)) chain.load_rows(loaded[i], at(i));
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[i][j] = 0.f;
    if (holds(i)) chain.template value<true>(loaded[i], at(i), values[i]);
  }
}

template <int kNorm, bool kFine, typename Chain, int kVectors, int kVector, typename Holds, typename At>
__device__ __forceinline__ void finish_all(Chain& chain, typename Chain::Loaded (&loaded)[kVectors],
                                           float (&values)[kVectors][kVector], const TokenStatistics& of,
                                           const Holds& holds, const At& at) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!holds(i)) continue;
    of.norm<kFine>(values[i], chain.is_rms());
    chain.template finish<kNorm, true>(loaded[i], at(i), values[i]);
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
  wait_for_turn();
  const uint32_t threads = kOf.is_exact ? 32 * kOf.warps : blockDim.x, thread = threadIdx.x;
  constexpr bool kIsShifted = kAreShifted<kOf.rows>;
  const int width = p.width;
  int ahead = 0;  // elements of the first vector that lie ahead of the token
  if constexpr (kIsShifted) {
    const char* const from = token_address<Family::kType>(p.x, batch, blockIdx.x);
    ahead = static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16 / kBytesOf<Family::kType>);
  }
  auto column = [&](uint32_t vector) { return static_cast<int>(vector) * kVector - ahead; };
  auto at = [&](int i) { return Columns{column(i * threads + thread), width}; };
  auto holds = [&](int i) { return kOf.is_exact || at(i).first < width; };
  auto fill = [&](float(&values)[kVectors][kVector], float with) {
    if constexpr (kIsShifted) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (at(i).template is_whole<kVector>()) continue;
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[i][j] = at(i).has(j) ? values[i][j] : with;
      }
    }
  };
  int count = 0;  // how many elements of the token the threads of this one's warp hold
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int first = column(i * threads + thread / 32 * 32), end = first + 32 * kVector;
    const int held = (end < width ? end : width) - (first > 0 ? first : 0);
    count += kOf.is_exact ? 32 * kVector : held < 0 ? 0 : held;
  }

  Chain chain(w, batch, blockIdx.x);
  typename Chain::Loaded loaded[kVectors]{};
  float values[kVectors][kVector];
  load_all(chain, loaded, values, holds, at);
  fill(values, 0.f);
  const TokenStatistics of = block_statistics<kFine, kOf.warps>(values, holds, fill, count, chain.is_rms(), width,
                                                                w.per_element, p.eps, parts[0]);
  finish_all<0, kFine>(chain, loaded, values, of, holds, at);
  if constexpr (Family::kNorms == 2) {
    fill(values, 0.f);
    const TokenStatistics again = block_statistics<kFine, kOf.warps>(values, holds, fill, count, chain.is_rms(), width,
                                                                     w.per_element, p.eps, parts[1]);
    finish_all<1, kFine>(chain, loaded, values, again, holds, at);
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
  wait_for_turn();
  const int64_t token = int64_t{blockIdx.x} * kWarpsOfSmall + threadIdx.x / 32;
  const bool is_there = token < p.tokens;  // a warp without a token goes along: all meet at the same places
  const int lane = threadIdx.x % 32;
  auto at = [&](int i) { return Columns{(i * 32 + lane) * kVector, p.width}; };
  auto holds = [&](int i) { return is_there && at(i).first < p.width; };

  Chain chain(w, batch, is_there ? token : 0);
  typename Chain::Loaded loaded[kVectors]{};
  float values[kVectors][kVector];
  load_all(chain, loaded, values, holds, at);
  const TokenStatistics of = warp_statistics<kFine>(values, holds, chain.is_rms(), p.width, w.per_element, p.eps);
  finish_all<0, kFine>(chain, loaded, values, of, holds, at);
  if constexpr (Family::kNorms == 2) {
    const TokenStatistics again = warp_statistics<kFine>(values, holds, chain.is_rms(), p.width, w.per_element, p.eps);
    finish_all<1, kFine>(chain, loaded, values, again, holds, at);
  }
}

// Calls `body(columns)` for each vector of this thread.
template <int kVector, typename Body>
__device__ __forceinline__ void each_vector(int width, const Body& body) {
#pragma unroll 1
  for (int column = threadIdx.x * kVector; column < width; column += blockDim.x * kVector)
    body(Columns{column, width});
}

// Statistics of a token in passes; `again(columns, values)` forms a vector of it anew.
template <bool kFine, int kVector, typename Again>
__device__ __forceinline__ TokenStatistics streamed_statistics(int width, bool is_rms, float per_element, float eps,
                                                               BlockTotal& total, const Again& again) {
  TokenStatistics of;
  float values[1][kVector], sum = 0.f, left = 0.f, squares = 0.f;
  if (!is_rms) {
    each_vector<kVector>(width, [&](Columns at) {
      again(at, values[0]);
      sum += total_of<kVector>(values[0]);
    });
    of.near = mean_of(total(sum), width, per_element);
  }
  each_vector<kVector>(width, [&](Columns at) {
    again(at, values[0]);
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
  BlockTotal total{parts, static_cast<int>(blockDim.x / 32)};
  const auto& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  wait_for_turn();
#pragma unroll 1
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    Chain chain(w, batch, token);
    const bool is_rms = chain.is_rms();
    typename Chain::Loaded loaded{};
    auto value = [&](Columns at, float(&to)[kVector]) {
      chain.load(loaded, at);
      chain.load_rows(loaded, at);
      chain.template value<false>(loaded, at, to);
    };
    const TokenStatistics of = streamed_statistics<kFine, kVector>(p.width, is_rms, w.per_element, p.eps, total, value);
    auto next = [&](Columns at, float(&to)[kVector]) {
      value(at, to);
      of.norm<kFine>(to, is_rms);
      chain.template finish<0, false>(loaded, at, to);
    };
    TokenStatistics again;
    if constexpr (Family::kNorms == 2)
      again = streamed_statistics<kFine, kVector>(p.width, is_rms, w.per_element, p.eps, total, next);
    each_vector<kVector>(p.width, [&](Columns at) {
      float values[kVector];
      chain.load(loaded, at);
      chain.load_rows(loaded, at);
      chain.template value<true>(loaded, at, values);
      of.norm<kFine>(values, is_rms);
      chain.template finish<0, true>(loaded, at, values);
      if constexpr (Family::kNorms == 2) {
        again.norm<kFine>(values, is_rms);
        chain.template finish<1, true>(loaded, at, values);
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
  return on_device(device, [&] {
    const int64_t blocks = (p.tokens + v.tokens - 1) / v.tokens;  // too many of streamed tokens alone
    const Work<typename Family::Problem> work{1.f / static_cast<float>(p.width), p};
    return launch_batches(token_kernel_of<Family>(v), blocks, p.batches, v.threads, work, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace kernwright
