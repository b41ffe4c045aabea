// norm_scale_shift (and, with KERNWRIGHT_RESIDUAL, residual_norm_scale_shift) for NVIDIA GPUs, for one dtype of x. With
// KERNWRIGHT_MODULATED=0 the norm alone, or behind a sum without a gate: the same kernels, whose rows of modulation are the
// weight and the bias. With KERNWRIGHT_IN_PLACE=1 the outputs may be x and the residual themselves: each element is read
// before it is written, by the thread that writes it or ahead of a barrier, and never again.
//
// Contract: close. What is normed is rounded to x's dtype, as it is returned; statistics in float32, centred before they
// are squared; then one multiply-add chain and one rounding, where the eager chain rounds after each step.
// Bytes a token of D elements of s bytes: 2 D s (x in, y out), behind a residual 4 D s (x and residual in, both outputs
// out). Modulations per channel or batch row are read by each block, out of the cache; per token they add their own D
// elements each.
// Share of a copy's bandwidth on an H200, by graph replay out of a cold cache: 0.99 for 27,030 tokens 3072 wide in bfloat16
// (81.2 us), 0.97 for 44,100 tokens 5120 wide (222 us), 1.04 for 18,144 tokens 3072 wide with a row of modulation each (103
// us), 0.88 with float32 rows (37,800 tokens 5120 wide), 0.91 behind a residual (27,030 tokens 3072 wide, 175 us), 0.99 for
// 8,640 tokens 5120 wide in float32 (86.8 us, before means were corrected), 0.99 for 648,720 rows of 128 (81 us), 0.46 for
// 8,424 tokens of odd width (3073: 88 us). Small calls are bound by latency: 195 tokens 3072 wide take 2.9 us. Measured on
// builds that differed in one constant each, from which the table in variant.h was set; benchmarks/bench_ops.py times the
// same shapes as they are now.
//
// A token lies in the registers of its threads from the load to the store. A block has one token, and many short blocks
// on a multiprocessor keep loads in flight: while one reduces, others load. Threads of a token meet once: each warp centres
// its own part about its own mean, and the parts are combined, which is as exact as centring all about one mean.

#include <cuda_runtime.h>

#include <iterator>

#include "elements.cuh"
#include "launching.cuh"
#include "problem.h"
#include "variant.h"

namespace kernwright {

// What a kernel gets.
struct Work {
  float per_element;  // 1 / width
  bool is_streaming, is_affine;
  RowKind rows;
  uint32_t zeros[2];  // which no compiler knows to be zeros: see Token::renewed
  Problem problem;
};

namespace {

constexpr Type kType = Type::KERNWRIGHT_TYPE;
constexpr bool kResidual = KERNWRIGHT_RESIDUAL;
#ifdef KERNWRIGHT_MODULATED
constexpr bool kModulated = KERNWRIGHT_MODULATED;
#else
constexpr bool kModulated = true;
#endif
constexpr bool kGated = kResidual && kModulated;
constexpr int kSize = kType == Type::kFloat32 ? 4 : 2;
constexpr int kWidestVector = 16 / kSize;

template <int kVector>
__device__ __forceinline__ RawOf<kType, kVector> narrow(const float (&values)[kVector]) {
  return narrow_to<kType, kVector>(values);
}

// A grid's y has a limit, and z takes what is beyond it: both together have 32 bits.
__device__ __forceinline__ uint32_t batch_of_block() { return blockIdx.z * gridDim.y + blockIdx.y; }

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

// As a tree, so that no addition waits for all before it.
template <int kCount>
__device__ __forceinline__ float sum_of(const float* values) {
  if constexpr (kCount == 1) return values[0];
  else return sum_of<kCount / 2>(values) + sum_of<kCount - kCount / 2>(values + kCount / 2);
}

template <int kLanes>
__device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// A float32 mean far from zero is off by its own roundings, by more than the eager chain's where sums are as long as here.
// So in float32 what is left once values are centred is summed too; rounded to half that width nobody would see it.
constexpr bool kFine = kType == Type::kFloat32;

struct Statistics {
  float near, lacking;  // the mean is their sum
  float inverse;        // of the standard deviation, or of the root of the mean square

  // How far a number lies from the mean.
  __device__ __forceinline__ float from_mean(float value) const { return (value - near) - lacking; }
};

// What a warp knows of its part of a token: the sum of its values (kFine: of what centring left of them), what they were
// centred about, and their squares about that. For an RMS norm that is 0, and nobody looks at sum and count.
__device__ __forceinline__ float4 part_of(float sum, float about, float squares, int count) {
  return make_float4(sum, about, squares, static_cast<float>(count));
}

// A mean about which to centre need not be exact: what it is off by is accounted for.
__device__ __forceinline__ float about_mean(float sum, int count) {
  return count == 0 ? 0.f : __fdividef(sum, static_cast<float>(count));
}

// The whole out of its warps' parts, in each thread: squares about the parts' own means, and those means about the mean.
template <int kMostWarps>
__device__ __forceinline__ Statistics combined(const float4* parts, const Work& w) {
  constexpr int kLanes = kMostWarps <= 4 ? 4 : kMostWarps <= 8 ? 8 : kMostWarps <= 16 ? 16 : 32;
  const int lane = threadIdx.x % kLanes;
  const float4 own = lane < static_cast<int>(blockDim.x / 32) ? parts[lane] : make_float4(0.f, 0.f, 0.f, 0.f);
  const bool is_rms = w.problem.is_rms;
  Statistics of{0.f, 0.f, 0.f};
  if constexpr (kFine) {
    if (!is_rms) of.near = parts[0].y, of.lacking = lanes_sum<kLanes>(fmaf(own.y - of.near, own.w, own.x)) * w.per_element;
    const float apart = of.from_mean(own.y);
    of.inverse = is_rms ? own.z : fmaf(apart, fmaf(apart, own.w, 2.f * own.x), own.z);
  } else {
    of.near = is_rms ? 0.f : lanes_sum<kLanes>(own.x) * w.per_element;
    const float apart = own.y - of.near;
    of.inverse = is_rms ? own.z : fmaf(apart * apart, own.w, own.z);
  }
  of.inverse = rsqrtf(lanes_sum<kLanes>(of.inverse) * w.per_element + w.problem.eps);
  return of;
}

// ---- one token a block, in registers --------------------------------------------------------------------------------

template <int kShape>
constexpr HeldShape shape_of() {
  if constexpr (kType == Type::kFloat32) return kResidual ? kFloatResidualShapes[kShape] : kFloatShapes[kShape];
  else return kResidual ? kHalfResidualShapes[kShape] : kHalfShapes[kShape];
}

template <int kShape>
struct Token {
  static constexpr HeldShape kOf = shape_of<kShape>();
  static constexpr int kVectors = kOf.vectors, kElements = kWidestVector;
  // Late rows leave few registers: the token stays in its dtype, and is widened anew for each pass.
  static constexpr bool kPacked = !kOf.is_early && kSize == 2;
  static constexpr bool kHasRows = kOf.rows != RowKind::kAny;
  static constexpr Type kRow = kOf.rows == RowKind::kFloat ? Type::kFloat32 : kType;
  static constexpr int kRowBytes = kElements * (kRow == Type::kFloat32 ? 4 : 2);
  // Numbers may stand beside weight and bias: see find_rows.
  static constexpr bool kHasNumbers = kModulated && kRow == Type::kFloat32;
  // Scale and shift always are, weight and bias may be.
  static constexpr bool kIsThere = kModulated && !kHasNumbers;
  using Piece = Raw<16>;
  using RowPiece = Raw<kRowBytes>;

  const Work& w;
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block(), token = blockIdx.x;
  const uint32_t thread = threadIdx.x, threads = kOf.is_exact ? 32 * kOf.warps : blockDim.x;
  const uint32_t vectors = static_cast<uint32_t>(p.width) / kElements;

  // Only the last vector of a token that fills its shape may lie beyond its end.
  __device__ __forceinline__ static constexpr bool is_certain(int i) { return kOf.is_exact && i < kVectors - 1; }
  __device__ __forceinline__ bool holds(int i) const { return is_certain(i) || i * threads + thread < vectors; }
  __device__ __forceinline__ int column(int i) const { return static_cast<int>(i * threads + thread) * kElements; }

  // How many elements the threads of this one's warp hold.
  __device__ __forceinline__ int count() const {
    int found = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int left = static_cast<int>(vectors) - static_cast<int>(i * threads + thread / 32 * 32);
      found += is_certain(i) || left > 32 ? 32 : left < 0 ? 0 : left;
    }
    return found * kElements;
  }

  __device__ __forceinline__ void load(const Tokens& of, Piece (&to)[kVectors]) const {
    const char* from = address(of, batch, token, thread * kElements);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!is_certain(i)) to[i] = Piece{};
      if (holds(i)) to[i] = load_raw<16, true>(from + i * threads * 16);
    }
  }

  __device__ __forceinline__ const char* row(const Modulation& of) const {
    const int64_t start = batch * of.batch_step + token * of.token_step;
    return static_cast<const char*>(of.data) + start * (kRowBytes / kElements) + thread * kRowBytes;
  }

  // Zeros where there is none.
  template <bool kIsThere>
  __device__ __forceinline__ void load_ahead_of_use(const Modulation& of, RowPiece (&to)[kVectors]) const {
    const char* from = row(of);
    const bool is_there = kIsThere || of.data;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      to[i] = RowPiece{};
      if (is_there && holds(i)) to[i] = load_ahead<kRowBytes>(from + i * threads * kRowBytes);
    }
  }

  template <bool kIsThere>
  __device__ __forceinline__ void widen_row(const Modulation& of, int i, float (&values)[kElements]) const {
    RowPiece piece{};
    if (kIsThere || of.data) piece = load_raw<kRowBytes, false>(row(of) + i * threads * kRowBytes);
    widen<kRow, kElements>(piece, values);
  }

  // The same piece, which no compiler knows: it would keep the widened values of one pass for the next one.
  __device__ __forceinline__ Piece renewed(const Piece& of, int pass) const {
    Piece again;
#pragma unroll
    for (int i = 0; i < 4; ++i) again.words[i] = of.words[i] ^ w.zeros[pass];
    return again;
  }
};

template <int kShape>
__global__ void __launch_bounds__(32 * shape_of<kShape>().warps, shape_of<kShape>().least_blocks)
    held(const __grid_constant__ Work w) {
  using Own = Token<kShape>;
  constexpr int kVectors = Own::kVectors, kElements = Own::kElements;
  constexpr bool kEarly = Own::kOf.is_early, kPacked = Own::kPacked;
  __shared__ float4 parts[Own::kOf.warps];
  const Own own{w};
  const Problem& p = w.problem;
  if (own.batch >= p.batches) return;
  const bool is_affine = !Own::kIsThere && w.is_affine;
  const Modulation& scale = is_affine ? p.weight : p.scale;
  const Modulation& shift = is_affine ? p.bias : p.shift;

  // All that a token needs is under way before any of it is looked at.
  typename Own::Piece x[kVectors], residual[kResidual ? kVectors : 1];
  typename Own::RowPiece gates[kGated && Own::kHasRows ? kVectors : 1];
  typename Own::RowPiece scales[kEarly ? kVectors : 1], shifts[kEarly ? kVectors : 1];
  own.load(p.x, x);
  if constexpr (kResidual) {
    own.load(p.residual, residual);
    if constexpr (kGated && Own::kHasRows) own.template load_ahead_of_use<false>(p.gate, gates);
  }
  if constexpr (kEarly) {
    own.template load_ahead_of_use<Own::kIsThere>(scale, scales);
    own.template load_ahead_of_use<Own::kIsThere>(shift, shifts);
  }
  float factor = 1.f, addend = 0.f;
  if constexpr (Own::kHasNumbers) {
    if (w.is_affine) factor = 1.f + number_of(p.scale, 0.f), addend = number_of(p.shift, 0.f);
  }

  if constexpr (kResidual) {
    char* to = address(p.sum, own.batch, own.token, own.thread * kElements);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!own.holds(i)) continue;
      float gate[kElements];
      if constexpr (kGated && Own::kHasRows) {
        widen<Own::kRow, kElements>(gates[i], gate);
#pragma unroll
        for (int j = 0; j < kElements; ++j) gate[j] = p.gate.data ? gate[j] : 1.f;
      } else {
        load_gate(p, own.batch, own.token, own.column(i), gate);
      }
      x[i] = summed<kElements>(x[i], residual[i], gate);
      if (w.is_streaming) {
        store_streaming(to + i * own.threads * 16, x[i]);
      } else {
        store_raw(to + i * own.threads * 16, x[i]);
      }
    }
  }

  float values[kPacked ? 1 : kVectors][kElements];
  const int count = own.count();
  float sum = 0.f, about = 0.f, left = 0.f, squares = 0.f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float(&own_values)[kElements] = values[kPacked ? 0 : i];
    widen<kType, kElements>(x[i], own_values);
    sum += sum_of<kElements>(own_values);
  }
  if (!p.is_rms) {
    sum = lanes_sum<32>(sum);
    about = about_mean(sum, count);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float(&own_values)[kElements] = values[kPacked ? 0 : i];
    if constexpr (kPacked) widen<kType, kElements>(own.renewed(x[i], 0), own_values);
    float two[2] = {0.f, 0.f};
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      own_values[j] -= about;
      two[j % 2] = fmaf(own_values[j], own_values[j], two[j % 2]);
    }
    squares += own.holds(i) ? two[0] + two[1] : 0.f;
    if constexpr (kFine) left += own.holds(i) ? sum_of<kElements>(own_values) : 0.f;
  }
  squares = lanes_sum<32>(squares);
  if (kFine && !p.is_rms) sum = lanes_sum<32>(left);
  if (own.thread % 32 == 0) parts[own.thread / 32] = part_of(sum, about, squares, count);
  __syncthreads();
  const Statistics of = combined<Own::kOf.warps>(parts, w);
  const float rest = of.from_mean(kPacked ? 0.f : about) * of.inverse;

  char* to = address(p.y, own.batch, own.token, own.thread * kElements);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!own.holds(i)) continue;
    Affine<kElements> by;
    if constexpr (!Own::kHasRows) {
      by.load(p, own.batch, own.token, own.column(i));
    } else {
      if constexpr (kEarly) {
        widen<Own::kRow, kElements>(scales[i], by.gain);
        widen<Own::kRow, kElements>(shifts[i], by.offset);
      } else {
        own.template widen_row<Own::kIsThere>(scale, i, by.gain);
        own.template widen_row<Own::kIsThere>(shift, i, by.offset);
      }
      // A scale has one added; a weight has not, but where there is none it is one.
      const float constant = is_affine && scale.data ? 0.f : 1.f;
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        by.gain[j] += constant;
        if constexpr (Own::kHasNumbers) {
          by.gain[j] *= factor;
          by.offset[j] = fmaf(by.offset[j], factor, addend);
        }
      }
    }
    float(&own_values)[kElements] = values[kPacked ? 0 : i];
    if constexpr (kPacked) widen<kType, kElements>(own.renewed(x[i], 1), own_values);
    float result[kElements];
#pragma unroll
    for (int j = 0; j < kElements; ++j)
      result[j] = fmaf(fmaf(own_values[j], of.inverse, rest), by.gain[j], by.offset[j]);
    if (w.is_streaming) {
      store_streaming(to + i * own.threads * 16, narrow(result));
    } else {
      store_raw(to + i * own.threads * 16, narrow(result));
    }
  }
}

// ---- several tokens a block -----------------------------------------------------------------------------------------

// A group of kLanes threads has kTokens tokens, as far apart as a block has groups. With vectors a thread has one of each
// token; where only single elements can be loaded, kSteps of them.
template <int kVector, int kSteps, int kLanes, int kTokens>
__global__ void __launch_bounds__(kThreadsOfSmall, kResidual ? kBlocksOfSmallResidual : kBlocksOfSmall)
    small(const __grid_constant__ Work w) {
  constexpr int kGroups = kThreadsOfSmall / kLanes;
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const int lane = threadIdx.x % kLanes;
  const uint32_t first = blockIdx.x * (kGroups * kTokens) + threadIdx.x / kLanes;
  auto column = [&](int i) { return (i * kLanes + lane) * kVector; };
  auto is_there = [&](int n, int i) { return first + n * kGroups < p.tokens && column(i) < p.width; };

  RawOf<kType, kVector> x[kTokens][kSteps], residual[kResidual ? kTokens : 1][kResidual ? kSteps : 1];
#pragma unroll
  for (int n = 0; n < kTokens; ++n)
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      x[n][i] = RawOf<kType, kVector>{};
      if (!is_there(n, i)) continue;
      const uint32_t token = first + n * kGroups;
      x[n][i] = load_raw<kVector * kSize, true>(address(p.x, batch, token, column(i)));
      if constexpr (kResidual)
        residual[n][i] = load_raw<kVector * kSize, true>(address(p.residual, batch, token, column(i)));
    }
  // With several tokens they have these in common.
  Affine<kVector> by[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    if (is_there(0, i)) by[i].load(p, batch, first, column(i));

#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    const uint32_t token = first + n * kGroups;
    float values[kSteps][kVector], sum = 0.f, mean = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if constexpr (kResidual) {
        if (is_there(n, i)) {
          float gate[kVector];
          load_gate(p, batch, token, column(i), gate);
          x[n][i] = summed<kVector>(x[n][i], residual[n][i], gate);
          store_raw(address(p.sum, batch, token, column(i)), x[n][i]);
        }
      }
      widen<kType, kVector>(x[n][i], values[i]);
      sum += sum_of<kVector>(values[i]);
    }
    if (!p.is_rms) mean = lanes_sum<kLanes>(sum) * w.per_element;
    if (kFine && !p.is_rms) {
      float left = 0.f;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[i][j] -= mean;
        left += column(i) < p.width ? sum_of<kVector>(values[i]) : 0.f;
      }
      mean = lanes_sum<kLanes>(left) * w.per_element;  // of what the first one left
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        values[i][j] -= mean;
        squares = column(i) < p.width ? fmaf(values[i][j], values[i][j], squares) : squares;
      }
    const float inverse = rsqrtf(lanes_sum<kLanes>(squares) * w.per_element + p.eps);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (!is_there(n, i)) continue;
      float result[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) result[j] = fmaf(values[i][j] * inverse, by[i].gain[j], by[i].offset[j]);
      char* to = address(p.y, batch, token, column(i));
      if constexpr (kVector > 1) {
        if (w.is_streaming) {
          store_streaming(to, narrow(result));
          continue;
        }
      }
      store_raw(to, narrow(result));
    }
  }
}

// ---- tokens that start anywhere -------------------------------------------------------------------------------------

// Whole vectors of 16 bytes, wherever they lie in a token, come to shared memory, and each thread takes its elements out of
// it: those that lie beside each other go to threads beside each other. What a vector at either end shares with another
// token is read element by element, and so is a residual.
template <int kMostThreads, int kLeastBlocks>
__global__ void __launch_bounds__(kMostThreads, kLeastBlocks) odd(const __grid_constant__ Work w) {
  constexpr int kCount = kElementsOfOdd, kChunk = kWidestVector;
  constexpr int kChunks = kCount / kChunk + 1;  // a thread: as many as its elements fill, and one at each end of a token
  using Element = RawOf<kType, 1>;
  __shared__ uint4 window[kMostThreads * kCount / kChunk + 2];
  __shared__ float4 parts[kMostThreads / 32];
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block(), token = blockIdx.x;
  if (batch >= p.batches) return;
  const int thread = threadIdx.x, threads = blockDim.x;
  auto column_of = [&](int i) { return i * threads + thread; };
  const char* start = address(p.x, batch, token, 0);
  const int phase = static_cast<int>(reinterpret_cast<uintptr_t>(start) % 16 / kSize);  // not this token's
  Raw<16> chunks[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int column = column_of(i) * kChunk - phase;
    chunks[i] = Raw<16>{};
    if (column >= 0 && column + kChunk <= p.width) {
      chunks[i] = load_raw<16, true>(start + column * kSize);
    } else {
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        if (column + j < 0 || column + j >= p.width) continue;
        const Element one = load_raw<kSize, false>(start + (column + j) * kSize);
        chunks[i].words[j * kSize / 4] |= one.words[0] << (j * kSize % 4 * 8);
      }
    }
  }
  Element x[kCount], residual[kResidual ? kCount : 1];
  if constexpr (kResidual) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column_of(i) < p.width)
        residual[i] = load_raw<kSize, false>(address(p.residual, batch, token, column_of(i)));
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i)
    if (column_of(i) * kChunk < phase + p.width) store_raw(window + column_of(i), chunks[i]);
  __syncthreads();
  char* const here = reinterpret_cast<char*>(window) + phase * kSize;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    x[i] = Element{};
    if (column_of(i) < p.width) x[i] = load_written<kSize>(here + column_of(i) * kSize);
  }
  if constexpr (kResidual) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column_of(i) >= p.width) continue;
      float gate[1];
      load_gate(p, batch, token, column_of(i), gate);
      x[i] = summed<1>(x[i], residual[i], gate);
      store_raw(address(p.sum, batch, token, column_of(i)), x[i]);
      store_raw(here + column_of(i) * kSize, x[i]);
    }
  }

  float values[kCount][1], sum = 0.f, about = 0.f, left = 0.f, squares = 0.f;
  int count = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int left = p.width - i * threads - thread / 32 * 32;
    count += left < 0 ? 0 : left > 32 ? 32 : left;
    widen<kType, 1>(x[i], values[i]);
    sum += values[i][0];
  }
  if (!p.is_rms) {
    sum = lanes_sum<32>(sum);
    about = about_mean(sum, count);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i][0] -= about;
    squares = column_of(i) < p.width ? fmaf(values[i][0], values[i][0], squares) : squares;
    if constexpr (kFine) left += column_of(i) < p.width ? values[i][0] : 0.f;
  }
  squares = lanes_sum<32>(squares);
  if (kFine && !p.is_rms) sum = lanes_sum<32>(left);
  if (thread % 32 == 0) parts[thread / 32] = part_of(sum, about, squares, count);
  __syncthreads();
  const Statistics of = combined<kMostThreads / 32>(parts, w);

  if (kModulated && w.rows == RowKind::kOwn && !w.is_affine) {  // all loads are under way at once: no branch is between them
    const float rest = of.from_mean(about) * of.inverse;
    const int64_t scale = row_start(p.scale, batch, token), shift = row_start(p.shift, batch, token);
    Affine<1> by[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column_of(i) >= p.width) continue;
      load_channels<kType, 1>(p.scale.data, scale + column_of(i), by[i].gain);
      load_channels<kType, 1>(p.shift.data, shift + column_of(i), by[i].offset);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column_of(i) >= p.width) continue;
      const float result[1] = {
          fmaf(fmaf(values[i][0], of.inverse, rest), 1.f + by[i].gain[0], by[i].offset[0])};
      store_raw(address(p.y, batch, token, column_of(i)), narrow(result));
    }
    return;
  }
#pragma unroll 1
  for (int column = thread; column < p.width; column += threads) {
    Affine<1> by;
    by.load(p, batch, token, column);
    float value[1];
    widen<kType, 1>(load_written<kSize>(here + column * kSize), value);
    value[0] = fmaf(of.from_mean(value[0]) * of.inverse, by.gain[0], by.offset[0]);
    store_raw(address(p.y, batch, token, column), narrow(value));
  }
}

// ---- tokens too wide for a block ------------------------------------------------------------------------------------

// The sum over a block's threads, the same in each of them. Two buffers in turn: whoever writes one again has passed the
// barrier of the other, and so has everybody who read the first.
struct BlockSum {
  float* parts;  // [2][32], shared
  int turn = 0;

  __device__ __forceinline__ float operator()(float value) {
    value = lanes_sum<32>(value);
    float* own = parts + 32 * turn;
    turn ^= 1;
    const int lane = threadIdx.x % 32;
    if (lane == 0) own[threadIdx.x / 32] = value;
    __syncthreads();
    return lanes_sum<32>(lane < kThreadsOfStreamed / 32 ? own[lane] : 0.f);
  }
};

// Three passes, the later ones out of the cache. What a thread reads of `sum` it wrote itself, so it waits for nobody.
template <int kVector>
__global__ void __launch_bounds__(kThreadsOfStreamed) streamed(const __grid_constant__ Work w) {
  __shared__ float parts[64];
  BlockSum block_sum{parts};
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const int first = threadIdx.x * kVector, stride = blockDim.x * kVector;
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    float sum = 0.f;
    if (kResidual || !p.is_rms) {
      for (int column = first; column < p.width; column += stride) {
        auto raw = load_raw<kVector * kSize, false>(address(p.x, batch, token, column));
        if constexpr (kResidual) {
          float gate[kVector];
          load_gate(p, batch, token, column, gate);
          raw = summed<kVector>(raw, load_raw<kVector * kSize, true>(address(p.residual, batch, token, column)), gate);
          store_raw(address(p.sum, batch, token, column), raw);
        }
        float values[kVector];
        widen<kType, kVector>(raw, values);
        sum += sum_of<kVector>(values);
      }
    }
    const float near = p.is_rms ? 0.f : block_sum(sum) * w.per_element;
    float lacking = 0.f;
    auto again = [&](int column, float(&values)[kVector]) {
      RawOf<kType, kVector> raw;
      if constexpr (kResidual) {
        raw = load_written<kVector * kSize>(address(p.sum, batch, token, column));
      } else {
        raw = load_raw<kVector * kSize, false>(address(p.x, batch, token, column));
      }
      widen<kType, kVector>(raw, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = (values[i] - near) - lacking;
    };
    float squares = 0.f, left = 0.f;
    for (int column = first; column < p.width; column += stride) {
      float values[kVector];
      again(column, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) squares = fmaf(values[i], values[i], squares);
      if constexpr (kFine) left += sum_of<kVector>(values);
    }
    if (kFine && !p.is_rms) lacking = block_sum(left) * w.per_element;
    const float inverse = rsqrtf(fmaf(-lacking, lacking, block_sum(squares) * w.per_element) + p.eps);
    for (int column = first; column < p.width; column += stride) {
      float values[kVector];
      again(column, values);
      Affine<kVector> by;
      by.load(p, batch, token, column);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i] * inverse, by.gain[i], by.offset[i]);
      store_raw(address(p.y, batch, token, column), narrow(values));
    }
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

using Kernel = void (*)(Work);

template <int kShape = 0>
Kernel held_of(int shape) {
  if (shape == kShape) return held<kShape>;
  constexpr int kShapes =
      kType == Type::kFloat32
          ? (kResidual ? std::size(kFloatResidualShapes) : std::size(kFloatShapes))
          : (kResidual ? std::size(kHalfResidualShapes) : std::size(kHalfShapes));
  if constexpr (kShape + 1 < kShapes) return held_of<kShape + 1>(shape);
  else return nullptr;
}

template <int kLanes>
Kernel small_of(int tokens) {
  if constexpr (!kResidual)
    if (tokens == 2) return small<kWidestVector, 1, kLanes, 2>;
  return small<kWidestVector, 1, kLanes, 1>;
}

Kernel kernel_of(const Variant& v) {
  switch (v.kind) {
    case Kind::kHeld:
      return held_of(v.shape);
    case Kind::kSmall:
      if (v.vector == 1) return small<1, kElementsOfSmallOdd, 32, 1>;
      return v.lanes == 8 ? small_of<8>(v.tokens) : v.lanes == 16 ? small_of<16>(v.tokens) : small_of<32>(v.tokens);
    case Kind::kOdd:
      // A residual's elements, and float32 modulations, take the registers of a fourth block.
      if (v.lanes <= kThreadsOfOdd) return odd<kThreadsOfOdd, kSize == 4 ? 2 : kResidual ? 3 : 4>;
      return odd<most_threads_of_odd(kType), 1>;
    case Kind::kStreamed:
      return v.vector == 1 ? streamed<1> : streamed<kWidestVector>;
  }
  return nullptr;
}

cudaError_t launch_here(const Problem& p, const Variant& v, cudaStream_t stream) {
  constexpr int64_t kMostY = 65535;
  const int64_t tokens = static_cast<int64_t>(v.groups) * v.tokens;
  int64_t blocks = (p.tokens + tokens - 1) / tokens;
  if (blocks > INT32_MAX) blocks = INT32_MAX;  // of streamed tokens alone: a block goes on with the next
  const int64_t y = p.batches < kMostY ? p.batches : kMostY, z = (p.batches + y - 1) / y;
  if (z > kMostY) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(y), static_cast<unsigned>(z));
  Work work{1.f / static_cast<float>(p.width), v.is_streaming, v.is_affine, v.rows, {0, 0}, p};
  void* arguments[] = {&work};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel_of(v)), grid, dim3(v.lanes * v.groups), arguments, 0,
                          stream);
}

}  // namespace

// 0, or CUDA's number for what went wrong.
int launch(const Problem& p, const Variant& v, int device, void* stream) {
  return on_device(device, [&] { return launch_here(p, v, static_cast<cudaStream_t>(stream)); });
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
