// ernie_norm_modulate and ernie_residual_norm_modulate for NVIDIA GPUs, for one dtype of x. KERNWRIGHT_RESIDUAL picks one of
// them; without it both are compiled.
//
// Contract: close. All is float32 between loads and stores, what is normed too: the sum with the residual is rounded for its
// own store alone, and has the chain's bits. What keeps y from them is the order of the sum over a token, and a product that
// is fused into a sum.
// Bytes a token of D elements of s bytes: 2 D s (x in, y out), behind a residual 4 D s (residual and update in, both results
// out). Rows that tokens share are read by each block, out of the cache.
// Share of a copy's bandwidth, judged on an H200, of rows of 100 MB or more: ernie_residual_norm_modulate 97 %. Row by row:
// tasks/ernie_adaln_residual_gate/RESULTS.md.

#include "allocation.cuh"
#include "policy.h"
#include "token_norm.cuh"

namespace kernwright {
namespace {

template <bool kResidual>
struct Family {
  static constexpr Type kType = Type::KERNWRIGHT_TYPE;
  static constexpr int kNorms = 1;
  using Problem = kernwright::Problem;
  static constexpr auto& kShapes = shapes_of<kType, kResidual>();

  template <Rows kRows, int kVector>
  struct Chain {
    using Row = RowPiece<kType, kRows, kVector>;
    struct Loaded {
      RawOf<kType, kVector> x, update;
      RowPiece<kType, as_early_as_can_be(kRows), kVector> gate;  // what is normed waits for it
      Row weight, scale, shift;
    };

    const Work<Problem>& w;
    const Problem& p = w.problem;
    const int64_t batch, token;
    const char* const x = token_address<kType>(p.x, batch, token);

    __device__ __forceinline__ Chain(const Work<Problem>& w, int64_t batch, int64_t token)
        : w(w), batch(batch), token(token) {}

    __device__ __forceinline__ static constexpr bool is_rms() { return true; }

    __device__ __forceinline__ int64_t start(const Modulation& of) const {
      return batch * of.batch_step + token * of.token_step;
    }

    __device__ __forceinline__ void load(Loaded& own, Columns at) const {
      own.x = load_token<kType, kVector>(x, at);
      if constexpr (kResidual) {
        const char* update = static_cast<const char*>(p.update.data) + start(p.update) * kBytesOf<kType>;
        if constexpr (kRows != Rows::kAny) own.update = load_token<kType, kVector>(update, at);
        own.gate.load(p.gate, start(p.gate), at);
      }
    }

    __device__ __forceinline__ void load_rows(Loaded& own, Columns at) const {
      own.scale.load(p.scale, start(p.scale), at);
      own.shift.load(p.shift, start(p.shift), at);
      own.weight.load(p.weight, 0, at);
    }

    template <bool kStores>
    __device__ __forceinline__ void value(const Loaded& own, Columns at, float (&values)[kVector]) const {
      widen<kType, kVector>(own.x, values);
      if constexpr (kResidual) {
        float update[kVector], gate[kVector];
        if constexpr (kRows == Rows::kAny) load_modulation(p.update, start(p.update), at.first, update);
        else widen<kType, kVector>(own.update, update);
        own.gate.values(p.gate, start(p.gate), at, gate);
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = __fadd_rn(values[i], __fmul_rn(gate[i], update[i]));
        if constexpr (kStores)
          store_values<kType, kRows, kVector>(token_address<kType>(p.sum, batch, token), at, values);
      }
    }

    template <int kNorm, bool kStores>
    __device__ __forceinline__ void finish(const Loaded& own, Columns at, float (&values)[kVector]) const {
      float gain[kVector], scale[kVector], shift[kVector];
      own.weight.values(p.weight, 0, at, gain);
      own.scale.values(p.scale, start(p.scale), at, scale);
      own.shift.values(p.shift, start(p.shift), at, shift);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i], gain[i] * (1.f + scale[i]), shift[i]);
      store_values<kType, kRows, kVector>(token_address<kType>(p.y, batch, token), at, values);
    }
  };
};

}  // namespace

int launch(const Problem& p, const TokenVariant& v, int device, void* stream) {
  if (v.is_shifted && !hold_whole_vectors(p, {&p.x}, {&p.scale, &p.shift, &p.weight, &p.update, &p.gate}))
    return launch(p, choose_variant(p, false), device, stream);
#ifdef KERNWRIGHT_RESIDUAL
  return launch_tokens<Family<KERNWRIGHT_RESIDUAL>>(p, v, device, stream);
#else
  return p.update.data ? launch_tokens<Family<true>>(p, v, device, stream)
                       : launch_tokens<Family<false>>(p, v, device, stream);
#endif
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
