// norm_tanh_mul_add (and, with KERNWRIGHT_TWICE, norm_tanh_mul_add_norm_scale) for NVIDIA GPUs, for one dtype of x.
//
// Contract: close. Statistics in float32, centred before they are squared; then one multiply-add chain and one rounding,
// where the eager chain rounds after each step. What the second norm sees is y as it is returned.
// Bytes a token of D elements of s bytes: 3 D s (x and its shift in, y out), with a second norm 4 D s. Rows that tokens share
// are read by each block, out of the cache.
// Share of a copy's bandwidth, judged on an H200, of rows of 100 MB or more: norm_tanh_mul_add_norm_scale 84 %. Row by row,
// and of one norm alone: tasks/norm_tanh_mul_add/RESULTS.md.

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

}  // namespace

int launch(const Problem& p, const TokenVariant& v, int device, void* stream) {
  if (v.is_shifted && !hold_whole_vectors(p, {&p.x}, {&p.scale, &p.shift, &p.weight, &p.scale2, &p.weight2}))
    return launch(p, choose_variant(p, false), device, stream);
  return launch_tokens<Family>(p, v, device, stream);
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
