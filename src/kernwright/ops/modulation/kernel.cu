// scale_shift, residual_gate and broadcast_add for NVIDIA GPUs, for one dtype of x and one of the result.
//
// Contract: exact. Each rounding of the eager chain is made where the chain makes it (policy.h says where that is), and
// products and sums are the instructions that a compiler does not fuse.
// Bytes a token of D elements of s bytes: 2 D s (x in, y out); a modulation per token, and so a residual, adds its own D
// elements. Modulations per channel, batch row or frame are read out of the cache.
// Share of a copy's bandwidth, judged on an H200, of rows of 100 MB or more: scale_shift 98 to 106 %, residual_gate 103 to 106 %,
// ernie_residual_gate 103 %. Row by row, and of small calls, which are bound by latency: RESULTS.md in tasks/fuse_scale_shift,
// tasks/residual_gate_add and tasks/ernie_adaln_residual_gate.
//
// Tokens that lie one behind the other are one run of vectors, of which a thread has one: flat.cuh, which has the dtypes of a
// call at compile time. Here is what takes the rest: tokens that lie apart, modulations that are numbers, mixed dtypes, and
// frames of two kinds. There a thread owns one vector of channels and works on several tokens: it asks for all it needs of
// them before it uses the first. Blocks are short and many; neighbours in the grid are neighbours on a token, so that what
// runs at the same time reads whole tokens.

#include <cuda_runtime.h>

#include "elements.cuh"
#include "flat.cuh"
#include "launching.cuh"
#include "policy.h"

namespace kernwright {
namespace {

constexpr int kMiddleVector = 4 / kSize;

// A piece of a modulation's row as it lies in memory, so that many loads can be under way before one is looked at. Its
// dtype is known only here; all threads agree on it, so the branch costs next to nothing.
template <int kVector>
struct Piece {
  Raw<kVector * 4> raw;  // the widest dtype; a narrower one fills the first half

  __device__ __forceinline__ void load(const Modulation& of, int64_t start, int column) {
    if (of.channel_step == 0) {
      if (of.type == Type::kFloat32) {
        raw.words[0] = load_raw<4>(static_cast<const char*>(of.data) + start * 4).words[0];
      } else {
        raw.words[0] = load_raw<2>(static_cast<const char*>(of.data) + start * 2).words[0];
      }
    } else if (of.type == Type::kFloat32) {
      raw = load_raw<kVector * 4>(static_cast<const char*>(of.data) + (start + column) * 4);
    } else {
      const Raw<kVector * 2> half = load_raw<kVector * 2>(static_cast<const char*>(of.data) + (start + column) * 2);
#pragma unroll
      for (int i = 0; i < (kVector + 1) / 2; ++i) raw.words[i] = half.words[i];
    }
  }

  template <Type kOf, int kCount>
  __device__ __forceinline__ void widen_as(float (&values)[kCount]) const {
    RawOf<kOf, kCount> own;
    constexpr int kWords = sizeof(own.words) / 4;
#pragma unroll
    for (int i = 0; i < kWords; ++i) own.words[i] = raw.words[i];
    widen<kOf, kCount>(own, values);
  }

  template <int kCount>
  __device__ __forceinline__ void widen_any(Type type, float (&values)[kCount]) const {
    if (type == Type::kFloat32) {
      widen_as<Type::kFloat32, kCount>(values);
    } else if (type == Type::kBFloat16) {
      widen_as<Type::kBFloat16, kCount>(values);
    } else {
      widen_as<Type::kFloat16, kCount>(values);
    }
  }

  __device__ __forceinline__ void values(const Modulation& of, float (&values)[kVector]) const {
    if (of.channel_step == 0) {
      float one[1];
      widen_any(of.type, one);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = one[0];
    } else {
      widen_any(of.type, values);
    }
  }
};

// constant + scale, rounded as the chain rounds it; without a scale it is looked at by nobody.
template <int kVector>
__device__ __forceinline__ void gain_of(const Problem& p, const Piece<kVector>& scale, float (&gain)[kVector]) {
  if (p.scale.data == nullptr) return;
  scale.values(p.scale, gain);
  if (p.adds_constant) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) gain[i] = __fadd_rn(gain[i], p.constant);
    round_to(p.scale.type, gain);
  }
  if (p.is_scale_cast) p.is_crossed ? round_to(p.shift.type, gain) : round_to<kType>(gain);
}

template <int kVector>
__device__ __forceinline__ void offset_of(const Problem& p, const Piece<kVector>& shift, float (&offset)[kVector]) {
  shift.values(p.shift, offset);
  if (p.is_shift_cast) round_to<kType>(offset);
}

template <int kVector, int kTokens, Streams kStreams>
__global__ void __launch_bounds__(kThreads) modulate(const __grid_constant__ Problem p) {
  constexpr bool kScaleStreams = kStreams == Streams::kBoth, kShiftStreams = kStreams != Streams::kNone;
  const unsigned chunks = (p.width / kVector + blockDim.x - 1) / blockDim.x;
  const int column = static_cast<int>((blockIdx.x % chunks) * blockDim.x + threadIdx.x) * kVector;
  if (column >= p.width) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x / chunks) * blockDim.y * kTokens + threadIdx.y;
  wait_for_turn();
  for (int64_t batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    RawOf<kType, kVector> x[kTokens];
    Piece<kVector> scale[kScaleStreams ? kTokens : 1], shift[kShiftStreams ? kTokens : 1];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int64_t token = first + i * static_cast<int64_t>(blockDim.y);
      if (token >= p.tokens) continue;
      const int64_t at = batch * p.x.batch_step + token * p.x.token_step + column;
      x[i] = load_ahead<kVector * kSize>(static_cast<const char*>(p.x.data) + at * kSize);
    }
    if (p.scale.data) {
#pragma unroll
      for (int i = 0; i < (kScaleStreams ? kTokens : 1); ++i) {
        const int64_t token = first + i * static_cast<int64_t>(blockDim.y);
        if (token < p.tokens) scale[i].load(p.scale, row_start(p.scale, batch, token), column);
      }
    }
#pragma unroll
    for (int i = 0; i < (kShiftStreams ? kTokens : 1); ++i) {
      const int64_t token = first + i * static_cast<int64_t>(blockDim.y);
      if (token < p.tokens) shift[i].load(p.shift, row_start(p.shift, batch, token), column);
    }

    float gain[kVector], offset[kVector];
    if constexpr (!kScaleStreams) gain_of(p, scale[0], gain);
    if constexpr (!kShiftStreams) offset_of(p, shift[0], offset);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int64_t token = first + i * static_cast<int64_t>(blockDim.y);
      if (token >= p.tokens) continue;
      if constexpr (kScaleStreams) gain_of(p, scale[i], gain);
      if constexpr (kShiftStreams) offset_of(p, shift[i], offset);
      float values[kVector];
      widen<kType, kVector>(x[i], values);
      if (p.is_crossed) {
        float product[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j) product[j] = __fmul_rn(offset[j], gain[j]);
        if (p.is_product_rounded) round_to(p.shift.type, product);
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[j] = __fadd_rn(values[j], product[j]);
      } else if (p.scale.data) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[j] = __fmul_rn(values[j], gain[j]);
        if (p.is_product_rounded) round_to<kType>(values);
      }
      if (!p.is_crossed) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[j] = __fadd_rn(values[j], offset[j]);
      }
      const int64_t at = batch * p.y.batch_step + token * p.y.token_step + column;
      store_raw(static_cast<char*>(p.y.data) + at * kResultSize, narrow_to<kResult, kVector>(values));
    }
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

using Kernel = void (*)(Problem);

template <int kVector, int kTokens>
Kernel kernel_with(Streams streams) {
  if (streams == Streams::kNone) return modulate<kVector, kTokens, Streams::kNone>;
  if (streams == Streams::kShift) return modulate<kVector, kTokens, Streams::kShift>;
  return modulate<kVector, kTokens, Streams::kBoth>;
}

Kernel kernel_of(const Variant& v) {
  if (v.vector == kWidestVector)
    return v.tokens == 1 ? kernel_with<kWidestVector, 1>(v.streams) : kernel_with<kWidestVector, kTokensOfWide>(v.streams);
  if (v.vector == kMiddleVector) return modulate<kMiddleVector, kTokensOfNarrow, Streams::kBoth>;
  return modulate<1, kTokensOfNarrow, Streams::kBoth>;
}

cudaError_t launch_here(const Problem& p, const Variant& v, cudaStream_t stream) {
  if (v.flat.pair >= 0) {
    const Flat own = flat_of(p, v.flat.is_ragged);
    const dim3 grid((own.whole + kThreadsOfFlat - 1) / kThreadsOfFlat, static_cast<unsigned>(p.batches));
    return launch_kernel(flat_kernel_of(v.flat), grid, dim3(kThreadsOfFlat), own, stream);
  }
  const int64_t blocks = blocks_of(p, v);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;  // over 5 * 10^11 elements: no GPU holds them
  const int64_t batches = p.batches < 65535 ? p.batches : 65535;  // a grid's limit; a block goes on with the next
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(batches));
  return launch_kernel(kernel_of(v), grid, dim3(v.lanes, v.rows), p, stream);
}

}  // namespace

// 0, or CUDA's number for what went wrong.
int launch(const Problem& p, int device, void* stream) {
  return on_device(device, [&] {
    cudaError_t error = cudaSuccess;
    const Variant v = choose_variant(p, multiprocessors_of(device, &error));
    return error == cudaSuccess ? launch_here(p, v, static_cast<cudaStream_t>(stream)) : error;
  });
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
