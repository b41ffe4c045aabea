// norm_tanh_mul_add (and, with KERNWRIGHT_TWICE, norm_tanh_mul_add_norm_scale) for NVIDIA GPUs, for one dtype of x.
//
// Contract: close. Statistics in float32, centred before they are squared; then one multiply-add chain and one rounding,
// where the eager chain rounds after each step. What the second norm sees is y as it is returned.
// Bytes a token of D elements of s bytes: 3 D s (x and its shift in, y out), with a second norm 4 D s. Rows that tokens share
// are read by each block, out of the cache.
// Share of a copy's bandwidth, judged on an H200, of rows of 100 MB or more: norm_tanh_mul_add_norm_scale 91 to 92 %. Row by row,
// and of one norm alone: docs/results/norm_tanh_mul_add.md.

#include "allocation.cuh"
#include "token_norm.cuh"
#include "policy.h"

namespace kernwright {
namespace {

constexpr Type kOwnType = Type::KERNWRIGHT_TYPE;

// As exact as the dtype asks, since it is a third of all instructions: float32 has all of its bits; for bfloat16 the GPU's
// own approximation, within 2^-11 of the value, is a quarter of half a unit; float16 takes a fraction of exponentials, and
// near zero, where that would cancel, the first terms of the series, both within 2e-5. What is no number stays none.
__device__ __forceinline__ float tanh_of(float value) {
  if constexpr (kOwnType == Type::kFloat16) {
    const float far = 1.f - __fdividef(2.f, __expf(2.f * value) + 1.f);
    return fabsf(value) < 0.03f ? fmaf(value, value * value * (-1.f / 3.f), value) : far;
  }
#ifdef __CUDACC__
  if constexpr (kOwnType == Type::kBFloat16) {
    float found;
    asm("tanh.approx.f32 %0, %1;" : "=f"(found) : "f"(value));
    return found;
  }
#endif
  return tanhf(value);
}

struct Family {
  static constexpr Type kType = kOwnType;
  static constexpr int kNorms = KERNWRIGHT_TWICE ? 2 : 1;
  using Problem = kernwright::Problem;
  static constexpr auto& kShapes = shapes_of<kType>();

  template <Rows kRows, int kVector>
  struct Chain {
    using Row = RowPiece<kType, kRows, kVector>;
    using LateRow = RowPiece<kType, as_late_as_can_be(kRows), kVector>;
    struct Loaded {
      RawOf<kType, kVector> x;
      RowPiece<kType, as_early_as_can_be(kRows), kVector> shift;
      Row scale, weight;
    };

    const Work<Problem>& w;
    const Problem& p = w.problem;
    const int64_t batch, token;
    const char* const x = token_address<kType>(p.x, batch, token);

    __device__ __forceinline__ Chain(const Work<Problem>& w, int64_t batch, int64_t token)
        : w(w), batch(batch), token(token) {}

    __device__ __forceinline__ bool is_rms() const { return p.is_rms; }

    __device__ __forceinline__ int64_t start(const Modulation& of) const {
      return kRows == Rows::kAny ? row_start(of, batch, token) : batch * of.batch_step + token * of.token_step;
    }

    __device__ __forceinline__ void load(Loaded& own, Columns at) const {
      own.x = load_token<kType, kVector>(x, at);
      own.shift.load(p.shift, start(p.shift), at);
    }

    __device__ __forceinline__ void load_rows(Loaded& own, Columns at) const {
      own.scale.load(p.scale, start(p.scale), at);
      own.weight.template load<false>(p.weight, 0, at, kOnes<kType>);
    }

    template <bool kStores>
    __device__ __forceinline__ void value(const Loaded& own, Columns, float (&values)[kVector]) const {
      widen<kType, kVector>(own.x, values);
    }

    template <int kNorm, bool kStores>
    __device__ __forceinline__ void finish(const Loaded& own, Columns at, float (&values)[kVector]) const {
      float gain[kVector], offset[kVector], by[kVector];
      if constexpr (kNorm == 0) {
        own.scale.values(p.scale, start(p.scale), at, by);
        own.shift.values(p.shift, start(p.shift), at, offset);
        own.weight.template values<false>(p.weight, 0, at, gain, kOnes<kType>);
#pragma unroll
        for (int i = 0; i < kVector; ++i) by[i] = tanh_of(by[i]);
        apply(p.bias, at, gain, values);
      } else {
        const LateRow row{};
        row.values(p.scale2, start(p.scale2), at, by);
        row.template values<false>(p.weight2, 0, at, gain, kOnes<kType>);
#pragma unroll
        for (int i = 0; i < kVector; ++i) by[i] += 1.f, offset[i] = 0.f;
        apply(p.bias2, at, gain, values);
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i], by[i], offset[i]);
      const auto bits = narrow_to<kType, kVector>(values);
      if constexpr (kStores)
        store_bits<kType, kRows, kVector>(token_address<kType>(kNorm == 0 ? p.y : p.y2, batch, token), at, bits);
      if constexpr (kNorm == 0 && kNorms == 2) widen<kType, kVector>(bits, values);
    }

   private:
    // Weight and bias. Kernels for known rows take no bias.
    __device__ __forceinline__ void apply(const Modulation& bias, Columns at, const float (&gain)[kVector],
                                          float (&values)[kVector]) const {
      float own[kVector];
      const bool has_bias = kRows == Rows::kAny && bias.data != nullptr;
      if (has_bias) load_modulation(bias, 0, at.first, own);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = has_bias ? fmaf(values[i], gain[i], own[i]) : values[i] * gain[i];
    }
  };
};

// Many tokens with the same rows of channels: scale, scale2, weight and weight2. A block forms the products of these rows once,
// keeps them in registers, and loads its next token while it works on this one. A thread holds one vector of the token.
// On an H200, 4,128 tokens of 3,840 channels take 34.5 us; with one token per block they took 37.2 us.
template <typename Family>
__global__ void __launch_bounds__(kThreadsOfKept, kBlocksOfKept) kept_gains(const __grid_constant__ Work<Problem> w) {
  constexpr Type kType = Family::kType;
  constexpr int kVector = kWidestOf<kType>, kWarps = kThreadsOfKept / 32;
  using Vector = RawOf<kType, kVector>;
  using Row = RowPiece<kType, Rows::kEarly, kVector>;
  __shared__ float4 parts[2][kWarps];
  const Problem& p = w.problem;
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  wait_for_turn();
  const int thread = static_cast<int>(threadIdx.x);
  const Columns at{thread * kVector, p.width};
  const bool is_there = at.first < p.width;
  const int left = p.width - thread / 32 * 32 * kVector, count = left < 32 * kVector ? left : 32 * kVector;
  auto holds = [&](int) { return is_there; };
  auto fill = [](float(&)[1][kVector], float) {};

  Vector next_x{};
  Row next_shift{};
  auto load = [&](int64_t token) {
    if (!is_there) return;
    next_x = load_token<kType, kVector>(token_address<kType>(p.x, batch, token), at);
    next_shift.load(p.shift, batch * p.shift.batch_step + token * p.shift.token_step, at);
  };
  load(blockIdx.x);

  float gains[2][kVector]{};
  if (is_there) {
    Row scales[2], weights[2];
    scales[0].load(p.scale, batch * p.scale.batch_step, at);
    scales[1].load(p.scale2, batch * p.scale2.batch_step, at);
    weights[0].template load<false>(p.weight, 0, at, kOnes<kType>);
    weights[1].template load<false>(p.weight2, 0, at, kOnes<kType>);
#pragma unroll
    for (int norm = 0; norm < 2; ++norm) {
      float by[kVector];
      widen<kType, kVector>(scales[norm].bits, by);
      widen<kType, kVector>(weights[norm].bits, gains[norm]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) gains[norm][i] *= norm == 0 ? tanh_of(by[i]) : 1.f + by[i];
    }
  }

#pragma unroll 1
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    float values[1][kVector], offsets[kVector];
    widen<kType, kVector>(next_x, values[0]);
    const Row shift = next_shift;
    if (token + gridDim.x < p.tokens) load(token + gridDim.x);
#pragma unroll
    for (int norm = 0; norm < 2; ++norm) {
      // All threads have read the parts of one norm when they meet in the other.
      const TokenStatistics of = block_statistics<false, kWarps>(values, holds, fill, count, p.is_rms, p.width,
                                                                 w.per_element, p.eps, parts[norm]);
      if (!is_there) continue;
      of.norm<false>(values[0], p.is_rms);
      if (norm == 0) widen<kType, kVector>(shift.bits, offsets);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[0][i] = fmaf(values[0][i], gains[norm][i], norm == 0 ? offsets[i] : 0.f);
      const Vector bits = narrow_to<kType, kVector>(values[0]);
      store_raw(token_address<kType>(norm == 0 ? p.y : p.y2, batch, token) + at.first * kBytesOf<kType>, bits);
      widen<kType, kVector>(bits, values[0]);
    }
  }
}

// Launches this kernel if it takes the call. Returns whether it did; `error` is that of the launch.
template <typename Family>
bool launch_kept(const Problem& p, const TokenVariant& v, int device, void* stream, int* error) {
  if constexpr (Family::kNorms == 2 && Family::kType != Type::kFloat32) {
    if (!may_keep_gains(p, v)) return false;
    cudaError_t unknown = cudaSuccess;
    const int64_t blocks = blocks_of_kept(p, multiprocessors_of(device, &unknown));
    *error = static_cast<int>(unknown);
    if (blocks == 0) return unknown != cudaSuccess;
    *error = on_device(device, [&] {
      const Work<Problem> work{1.f / static_cast<float>(p.width), p};
      return launch_batches(kept_gains<Family>, blocks, p.batches, threads_of_kept(p), work,
                            static_cast<cudaStream_t>(stream));
    });
    return true;
  }
  return false;
}

}  // namespace

int launch(const Problem& p, const TokenVariant& v, int device, void* stream) {
  int error = 0;
  if (launch_kept<Family>(p, v, device, stream, &error)) return error;
  if (v.is_shifted && !hold_whole_vectors(p, {&p.x}, {&p.scale, &p.shift, &p.weight, &p.scale2, &p.weight2}))
    return launch(p, choose_variant(p, false), device, stream);
  return launch_tokens<Family>(p, v, device, stream);
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
