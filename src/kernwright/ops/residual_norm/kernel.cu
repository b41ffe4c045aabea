// add_norm and fused_add_rms_norm_ in every form for NVIDIA GPUs, for one dtype of x: with a residual in any dtype or none, a
// second input and a row scale. A sum of x and a residual in one dtype has other kernels, see host.cc.
//
// Contract: close. The sum rounds where the eager chain rounds, and has its bits; the norm is that of the sum as it is returned.
// Statistics in float32, centred before they are squared; for a float32 sum the error of the mean is corrected, too. After that
// one multiply-add chain and one rounding, where the eager chain may round to the sum's dtype in between.
// Bytes per token of D elements of s bytes, with a sum of t bytes: D (2 s + t) without a residual (x in, both results out),
// 2 D (s + t) with one; a second input adds its own D elements, a row scale one number. Weight and bias are read by each block,
// from the cache.
// Share of a copy's bandwidth on an H200 for rows of 100 MB or more: add_norm 97 to 100 %. tasks/add_norm/RESULTS.md has every row.
//
// In place y is x, and the sum is the residual: a thread reads its vectors of both before it writes them, and no other thread does.

#include "policy.h"
#include "token_norm.cuh"

namespace kernwright {
namespace {

constexpr Type kOwnType = Type::KERNWRIGHT_TYPE;

// Loads the bits of one number at this point of the program; zeros where there is none. A compiler would place the load after the
// token has arrived, and a use right after it would hold back all later loads.
__device__ __forceinline__ uint32_t bits_ahead(const Modulation& of, int64_t at) {
  const char* const data = static_cast<const char*>(of.data);
  uint32_t bits = 0;
  if (data == nullptr) return bits;
#ifdef __CUDACC__
  if (of.type == Type::kFloat32) asm volatile(KERNWRIGHT_LOAD ".u32 %0, [%1];" : "=r"(bits) : "l"(data + 4 * at));
  else asm volatile(KERNWRIGHT_LOAD ".u16 %0, [%1];" : "=r"(bits) : "l"(data + 2 * at));
#else  // the tests compile this file for a CPU, which has no such instructions
  bits = of.type == Type::kFloat32 ? load_raw<4>(data + 4 * at).words[0] : load_raw<2>(data + 2 * at).words[0];
#endif
  return bits;
}

__device__ __forceinline__ float number_of(Type type, uint32_t bits) {
  float number[1];
  if (type == Type::kFloat32) widen<Type::kFloat32, 1>({{bits}}, number);
  else if (type == Type::kBFloat16) widen<Type::kBFloat16, 1>({{bits}}, number);
  else widen<Type::kFloat16, 1>({{bits}}, number);
  return number[0];
}

// Vectors of 16 bytes are vectors of kStep, which is x's dtype or that of the sum.
template <Type kTotal, Type kStep>
struct GeneralFamily {
  static constexpr Type kType = kStep;
  static constexpr int kNorms = 1;
  using Problem = GeneralSum;
  static constexpr auto& kShapes = general_shapes_of<kStep, kTotal>();

  template <Rows kRows, int kVector>
  struct Chain {
    using LateRow = RowPiece<kOwnType, as_late_as_can_be(kRows), kVector>;
    struct Loaded {
      RawOf<kOwnType, kVector> x;
      RawOf<kTotal, kVector> residual;
      RowPiece<kOwnType, as_early_as_can_be(kRows), kVector> second;  // the statistics wait for it
      RowPiece<kOwnType, kRows, kVector> weight;
    };

    const Work<Problem>& w;
    const Problem& p = w.problem;
    const int64_t batch, token;
    const char* const x = token_address<kOwnType>(p.x, batch, token);
    const uint32_t scale = bits_ahead(p.row_scale, start(p.row_scale));

    __device__ __forceinline__ Chain(const Work<Problem>& w, int64_t batch, int64_t token)
        : w(w), batch(batch), token(token) {}

    __device__ __forceinline__ bool is_rms() const { return p.is_rms; }

    __device__ __forceinline__ int64_t start(const Modulation& of) const {
      return batch * of.batch_step + token * of.token_step;
    }

    __device__ __forceinline__ void load(Loaded& own, Columns at) const {
      own.x = load_token<kOwnType, kVector>(x, at);
      if (p.residual.data != nullptr)
        own.residual = load_token<kTotal, kVector>(token_address<kTotal>(p.residual, batch, token), at);
      own.second.template load<false>(p.second, start(p.second), at);
    }

    __device__ __forceinline__ void load_rows(Loaded& own, Columns at) const {
      own.weight.template load<false>(p.weight, 0, at, kOnes<kOwnType>);
    }

    template <bool kStores>
    __device__ __forceinline__ void value(const Loaded& own, Columns at, float (&values)[kVector]) const {
      widen<kOwnType, kVector>(own.x, values);
      if (p.row_scale.data != nullptr) {
        const float by = number_of(p.row_scale.type, scale);
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = __fmul_rn(values[i], by);
        round_to(p.scaled, values);
      }
      if (p.second.data != nullptr) {
        float second[kVector];
        own.second.values(p.second, start(p.second), at, second);
        add(second, values);
        round_to(p.joined, values);
      }
      if (p.residual.data != nullptr) {
        float residual[kVector];
        widen<kTotal, kVector>(own.residual, residual);
        add(residual, values);
      }
      const auto bits = narrow_to<kTotal, kVector>(values);
      if constexpr (kStores) store_bits<kTotal, kRows, kVector>(token_address<kTotal>(p.sum, batch, token), at, bits);
      widen<kTotal, kVector>(bits, values);
    }

    template <int kNorm, bool kStores>
    __device__ __forceinline__ void finish(const Loaded& own, Columns at, float (&values)[kVector]) const {
      float gain[kVector], offset[kVector];
      own.weight.template values<false>(p.weight, 0, at, gain, kOnes<kOwnType>);
      const bool has_bias = p.bias.data != nullptr;
      if (has_bias) LateRow{}.values(p.bias, 0, at, offset);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = has_bias ? fmaf(values[i], gain[i], offset[i]) : values[i] * gain[i];
      store_values<kOwnType, kRows, kVector>(token_address<kOwnType>(p.y, batch, token), at, values);
    }

   private:
    __device__ __forceinline__ static void add(const float (&own)[kVector], float (&values)[kVector]) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = __fadd_rn(values[i], own[i]);
    }
  };
};

// Calls `body` with the family of kernels that takes the call.
template <Type kTotal, typename Body>
auto with_total(const GeneralSum& p, const Body& body) {
  if constexpr (kOwnType != kTotal && kTotal == Type::kFloat32)
    if (step_of(p) == kTotal) return body(GeneralFamily<kTotal, kTotal>{});
  return body(GeneralFamily<kTotal, kOwnType>{});
}

template <typename Body>
auto with_family(const GeneralSum& p, const Body& body) {
  if (p.total == Type::kFloat32) return with_total<Type::kFloat32>(p, body);
  if (p.total == Type::kFloat16) return with_total<Type::kFloat16>(p, body);
  return with_total<Type::kBFloat16>(p, body);
}

}  // namespace

int launch(const GeneralSum& p, const TokenVariant& v, int device, void* stream) {
  return with_family(p, [&](auto family) { return launch_tokens<decltype(family)>(p, v, device, stream); });
}

}  // namespace kernwright
