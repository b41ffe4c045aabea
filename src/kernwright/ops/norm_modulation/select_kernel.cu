// norm_scale_shift_select (and, with KERNWRIGHT_RESIDUAL, residual_norm_scale_shift_select) for NVIDIA GPUs, for one dtype of
// x.
//
// Contract: close. What is normed is rounded to x's dtype, as it is returned; statistics in float32, centred before they
// are squared; then one multiply-add chain and one rounding, where the eager chain rounds after each step. The chosen gate is
// handed on bit by bit.
// Bytes a token of D elements of s bytes: 3 D s (x in, y and the gate out), behind a residual 6 D s (x, residual and its gate
// in, three outputs out). Of the two sets a token reads the one that its index picks, out of the cache.
// Share of a copy's bandwidth, judged on an H200, of rows of 100 MB or more: norm_scale_shift_select 92 %,
// residual_norm_scale_shift_select 99 %. Row by row: tasks/fuse_scale_shift/RESULTS.md.

#include "allocation.cuh"
#include "token_norm.cuh"
#include "select_policy.h"

namespace kernwright {
namespace {

constexpr bool kResidual = KERNWRIGHT_RESIDUAL;

// Whether a token's number is any but 0. It is looked at only by whoever asks `is_second`, so a load of it waits for nobody.
struct Picked {
  uint32_t low = 0, high = 0;

  __device__ __forceinline__ Picked(const Choice& of, int64_t batch, int64_t token) {
    const char* from = static_cast<const char*>(of.data) + (batch * of.batch_step + token * of.token_step) * of.bytes;
    if (of.bytes == 4) {
      low = load_word(reinterpret_cast<const uint32_t*>(from));
    } else if (of.bytes == 8) {
      const uint2 both = load_word(reinterpret_cast<const uint2*>(from));
      low = both.x, high = both.y;
    } else if (of.bytes == 2) {
      low = load_word(reinterpret_cast<const uint16_t*>(from));
    } else {
      low = load_word(reinterpret_cast<const uint8_t*>(from));
    }
  }

  __device__ __forceinline__ int is_second() const { return (low | high) != 0 ? 1 : 0; }
};

struct Family {
  static constexpr Type kType = Type::KERNWRIGHT_TYPE;
  static constexpr int kNorms = 1;
  using Problem = kernwright::Problem;
  static constexpr auto& kShapes = shapes_of<kType, kResidual>();

  template <Rows kRows, int kVector>
  struct Chain {
    using Row = RowPiece<kType, kRows, kVector>;
    struct WithoutResidual {};
    struct WithResidual {
      RawOf<kType, kVector> residual;
      RowPiece<kType, as_early_as_can_be(kRows), kVector> residual_gate;
    };
    struct Loaded : std::conditional_t<kResidual, WithResidual, WithoutResidual> {
      RawOf<kType, kVector> x;
      Row scale, shift, gate;
    };

    const Work<Problem>& w;
    const Problem& p = w.problem;
    const int64_t batch, token;
    const Picked picked{p.index, batch, token};

    __device__ __forceinline__ Chain(const Work<Problem>& w, int64_t batch, int64_t token)
        : w(w), batch(batch), token(token) {}

    __device__ __forceinline__ static constexpr bool is_rms() { return false; }

    __device__ __forceinline__ void load(Loaded& own, Columns at) const {
      own.x = load_token<kType, kVector>(token_address<kType>(p.x, batch, token), at);
      if constexpr (kResidual) {
        own.residual = load_token<kType, kVector>(token_address<kType>(p.residual, batch, token), at);
        own.residual_gate.load(p.residual_gate, row_of_token(p.residual_gate), at);
      }
    }

    __device__ __forceinline__ void load_rows(Loaded& own, Columns at) const {
      // By a branch, which no load of the token is moved behind: an address that waits for the index would hold them up.
      if (picked.is_second()) load_set<1>(own, at);
      else load_set<0>(own, at);
    }

    template <bool kStores>
    __device__ __forceinline__ void value(const Loaded& own, Columns at, float (&values)[kVector]) const {
      widen<kType, kVector>(own.x, values);
      if constexpr (kResidual) {
        float gate[kVector], before[kVector];
        own.residual_gate.values(p.residual_gate, row_of_token(p.residual_gate), at, gate);
        widen<kType, kVector>(own.residual, before);
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i], gate[i], before[i]);
        const auto bits = narrow_to<kType, kVector>(values);
        if constexpr (kStores)
          store_bits<kType, kRows, kVector>(token_address<kType>(p.sum, batch, token), at, bits);
        widen<kType, kVector>(bits, values);
      }
    }

    template <int kNorm, bool kStores>
    __device__ __forceinline__ void finish(const Loaded& own, Columns at, float (&values)[kVector]) const {
      const int second = picked.is_second();
      float gain[kVector], offset[kVector];
      own.scale.values(p.scale[second], row_of_batch(p.scale[second]), at, gain);
      own.shift.values(p.shift[second], row_of_batch(p.shift[second]), at, offset);
      if constexpr (kRows == Rows::kAny) apply_affine(at, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i], 1.f + gain[i], offset[i]);
      if constexpr (!kStores) return;
      store_values<kType, kRows, kVector>(token_address<kType>(p.y, batch, token), at, values);
      store_gate(own, at);
    }

   private:
    template <int kSet>
    __device__ __forceinline__ void load_set(Loaded& own, Columns at) const {
      own.scale.load(p.scale[kSet], row_of_batch(p.scale[kSet]), at);
      own.shift.load(p.shift[kSet], row_of_batch(p.shift[kSet]), at);
      own.gate.load(p.gate[kSet], row_of_batch(p.gate[kSet]), at);
    }

    __device__ __forceinline__ int64_t row_of_token(const Modulation& of) const {
      return kRows == Rows::kAny ? row_start(of, batch, token) : batch * of.batch_step + token * of.token_step;
    }

    // Sets have a row for each batch, which is a token where single tokens were folded: else their token_step is 0.
    __device__ __forceinline__ int64_t row_of_batch(const Modulation& of) const {
      return batch * of.batch_step + token * of.token_step;
    }

    // A row that several tokens picked together is the first one's to store.
    __device__ __forceinline__ bool stores_gate() const {
      return (token == 0 || p.chosen_gate.token_step != 0) && (batch == 0 || p.chosen_gate.batch_step != 0);
    }

    __device__ __forceinline__ void store_gate(const Loaded& own, Columns at) const {
      if (!stores_gate()) return;
      const Modulation& of = p.gate[picked.is_second()];
      if constexpr (kRows != Rows::kAny) {
        store_bits<kType, kRows, kVector>(token_address<kType>(p.chosen_gate, batch, token), at,
                                          own.gate.raw(of, row_of_batch(of), at));
      } else {
        float gate[kVector];
        own.gate.values(of, row_of_batch(of), at, gate);
        if (p.gate_type == Type::kFloat32) store_gate_as<Type::kFloat32>(at, gate);
        else if (p.gate_type == Type::kFloat16) store_gate_as<Type::kFloat16>(at, gate);
        else store_gate_as<Type::kBFloat16>(at, gate);
      }
    }

    template <Type kGate>
    __device__ __forceinline__ void store_gate_as(Columns at, const float (&gate)[kVector]) const {
      store_values<kGate, kRows, kVector>(token_address<kGate>(p.chosen_gate, batch, token), at, gate);
    }

    __device__ __forceinline__ void apply_affine(Columns at, float (&values)[kVector]) const {
      if (p.weight.data == nullptr) return;
      float weight[kVector], bias[kVector];
      const Row row{};
      row.values(p.weight, 0, at, weight);
      row.template values<false>(p.bias, 0, at, bias);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i], weight[i], bias[i]);
    }
  };
};

}  // namespace

// 0, or CUDA's number for what went wrong.
int launch(const Problem& p, const TokenVariant& v, int device, void* stream) {
  const std::initializer_list<const Modulation*> rows = {&p.scale[0], &p.scale[1], &p.shift[0],      &p.shift[1],
                                                         &p.gate[0],  &p.gate[1],  &p.residual_gate};
  if (v.is_shifted && !hold_whole_vectors(p, {&p.x, &p.residual}, rows))
    return launch(p, choose_variant<kResidual>(p, false), device, stream);
  return launch_tokens<Family>(p, v, device, stream);
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
