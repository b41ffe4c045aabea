// norm_scale_shift (and, with KERNWRIGHT_RESIDUAL, residual_norm_scale_shift) for NVIDIA GPUs, for one dtype of x. With
// KERNWRIGHT_MODULATED=0 the norm alone, or behind a sum without a gate: the same kernels, whose rows of modulation are the
// weight and the bias. The outputs may be x and the residual themselves: each element is read before it is written, by
// the thread that writes it or ahead of a barrier, and never again. Lean and shifted kernels have that barrier with
// KERNWRIGHT_IN_PLACE=1 alone: without it a LayerNorm's sum in place has others (may_have_pivot in policy.h).
//
// Contract: close. What is normed is rounded to x's dtype, as it is returned: residual + gate * x is rounded once, by the
// lean and the shifted kernel from the exact value, by the others from a float32. Statistics in float32, about a number near
// the mean (pivot.cuh) or about parts' own means (statistics.cuh); then one multiply-add chain and one rounding, where the
// eager chain rounds after each step.
// Bytes a token of D elements of s bytes: 2 D s (x in, y out), behind a residual 4 D s (x and residual in, both outputs
// out). Modulations per channel or batch row are read by each block, out of the cache; per token they add their own D
// elements each. Tokens too wide for a block's registers are read three times, the later ones out of the cache.
//
// Share of a copy's bandwidth, judged on an H200, of rows of 100 MB or more: norm_scale_shift 94 to 105 %,
// residual_norm_scale_shift 95 to 102 %, layer_norm 99 %. Row by row: RESULTS.md in tasks/norm_scale_shift, and of the norms
// alone in tasks/norm_infer. What follows are earlier forms on an H200 for bfloat16.
// By graph replay out of a cold cache, with words to the caches (elements.cuh) that are gone by now:
//   lean     5120 wide, 44,100 tokens: 0.96, behind a residual 0.95
//   shifted  3073 wide, 8,424 tokens: 40.4 us, behind a gated residual 66.7 (lean, 3072 wide: 27.2 and 52; the copies of that
//            run were slow at 3073, so there is no share)
//   held     with float32 rows, 37,800 tokens 5120 wide, behind a residual: 0.94; float32 tokens, 8,640 of 5120: 0.99
//   odd      3073 wide, 8,424 tokens: 88 us
// Measured on builds that differed in one constant each, from which the tables in policy.h were set; there lean and shifted
// took fewer kinds of steps. benchmarks/bench_ops.py times the same shapes as they are now.
//
// But for odd and streamed tokens, a token lies in the registers of its threads from the load to the store, and these meet once.
// A block has one token or several, and many short blocks on a multiprocessor keep loads in flight: while one reduces, others load.

#include <cuda_runtime.h>

#include <iterator>

#include "allocation.cuh"
#include "held.cuh"
#include "launching.cuh"
#include "lean.cuh"
#include "odd.cuh"
#include "shared_rows.cuh"
#include "shifted.cuh"
#include "small.cuh"
#include "streamed.cuh"

namespace kernwright {

namespace {

using Kernel = void (*)(Work);
using BriefKernel = void (*)(Brief);
using SharedKernel = void (*)(SharedCall);

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

// A gate is a kernel of its own: what it would take of registers and instructions is not there without it.
template <int kShape = 0>
BriefKernel lean_of(int shape, bool is_gated) {
  constexpr int kShapes = kResidual ? std::size(kLeanResidualShapes) : std::size(kLeanShapes);
  if constexpr (kSize == 2 && kShape < kShapes) {
    if (shape != kShape) return lean_of<kShape + 1>(shape, is_gated);
    return is_gated ? lean<kShape, kGated> : lean<kShape, false>;
  }
  return nullptr;
}

template <int kShape = 0>
BriefKernel shifted_of(int shape, bool is_gated) {
  constexpr int kShapes = kResidual ? std::size(kShiftedResidualShapes) : std::size(kShiftedShapes);
  if constexpr (kSize == 2 && kShape < kShapes) {
    if (shape != kShape) return shifted_of<kShape + 1>(shape, is_gated);
    return is_gated ? shifted<kShape, kGated> : shifted<kShape, false>;
  }
  return nullptr;
}

template <int kShape = 0>
SharedKernel shared_rows_of(int shape) {
  if constexpr (kHasSharedRows && kShape < std::size(kSharedShapes))
    return shape == kShape ? shared_rows<kShape> : shared_rows_of<kShape + 1>(shape);
  return nullptr;
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
    default:
      return nullptr;
  }
}

// Of kernels that get a Brief; null for the others.
BriefKernel brief_kernel_of(const Variant& v) {
  if (v.kind == Kind::kLean) return lean_of(v.shape, v.is_gated);
  return v.kind == Kind::kShifted ? shifted_of(v.shape, v.is_gated) : nullptr;
}

// What a shifted token reads beside its rows must be there.
bool may_be_shifted(const Problem& p) {
  return hold_whole_vectors(p, {&p.x, &p.residual}, {&p.scale, &p.shift, &p.gate, &p.weight, &p.bias});
}

cudaError_t launch_here(const Problem& p, const Variant& v, cudaStream_t stream) {
  if (v.kind == Kind::kShifted && !may_be_shifted(p)) {
    Thresholds thresholds;
    thresholds.may_shift = false;
    return launch_here(p, choose_variant(p, thresholds), stream);
  }
  const int64_t tokens = static_cast<int64_t>(v.groups) * v.tokens;
  const int64_t blocks = (p.tokens + tokens - 1) / tokens;  // too many of streamed tokens alone
  auto launch = [&](auto kernel, const auto& call) {
    return launch_batches(kernel, blocks, p.batches, static_cast<unsigned>(v.lanes * v.groups), call, stream);
  };
  if (const BriefKernel kernel = brief_kernel_of(v))
    return launch(kernel, v.kind == Kind::kLean ? brief_of<16>(p) : brief_of<kSize>(p));
  if (v.kind == Kind::kShared) return launch(shared_rows_of(v.shape), shared_call_of(p));
  return launch(kernel_of(v), Work{1.f / static_cast<float>(p.width), v.is_affine, v.rows, {0, 0}, p});
}

}  // namespace

// 0, or CUDA's number for what went wrong.
int launch(const Problem& p, const Variant& v, int device, void* stream) {
  return on_device(device, [&] { return launch_here(p, v, static_cast<cudaStream_t>(stream)); });
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
