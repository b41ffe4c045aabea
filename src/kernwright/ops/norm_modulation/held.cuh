// held: one token a block, in registers, with modulations of any kind.
// kernel.cu includes this, and states its contract and its bytes.

#pragma once

#include "statistics.cuh"

namespace kernwright {

namespace {

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
      if (holds(i)) to[i] = load_ahead<16>(from + i * threads * 16);
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
    if (kIsThere || of.data) piece = load_raw<kRowBytes>(row(of) + i * threads * kRowBytes);
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

  wait_for_turn();
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
      store_raw(to + i * own.threads * 16, x[i]);
    }
  }

  float values[kPacked ? 1 : kVectors][kElements];
  const int count = own.count();
  float sum = 0.f, about = 0.f, left = 0.f, squares = 0.f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float(&own_values)[kElements] = values[kPacked ? 0 : i];
    widen<kType, kElements>(x[i], own_values);
    sum += total_of<kElements>(own_values);
  }
  if (!p.is_rms) {
    sum = lanes_total<32>(sum);
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
    if constexpr (kFine) left += own.holds(i) ? total_of<kElements>(own_values) : 0.f;
  }
  squares = lanes_total<32>(squares);
  if (kFine && !p.is_rms) sum = lanes_total<32>(left);
  if (own.thread % 32 == 0) parts[own.thread / 32] = part_of(sum, about, squares, count);
  __syncthreads();
  const Statistics of = combined<Own::kOf.warps>(parts, w);
  const float rest = of.from_mean(about) * of.inverse;

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
      result[j] = fmaf(fmaf(own_values[j] - (kPacked ? about : 0.f), of.inverse, rest), by.gain[j], by.offset[j]);
    store_raw(to + i * own.threads * 16, narrow(result));
  }
}

}  // namespace

}  // namespace kernwright
