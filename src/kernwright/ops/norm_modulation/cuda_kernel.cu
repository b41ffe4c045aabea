// norm_scale_shift (and, with KERNWRIGHT_RESIDUAL, residual_norm_scale_shift) for NVIDIA GPUs, for one dtype of x. With
// KERNWRIGHT_MODULATED=0 the norm alone: the same kernel, with nothing to scale and shift by.
//
// Contract: close. What is normed is rounded to x's dtype, as it is returned; statistics in float32, centred before they
// are squared; then one multiply-add chain and one rounding, where the eager chain rounds after each step.
// Bytes a token of D elements of s bytes: 2 D s (x in, y out), behind a residual 4 D s (x and residual in, both outputs
// out). Modulations per channel or batch row are read once a block; per token they add their own D elements each.
// Share of a copy's bandwidth: not measured yet.
//
// A token lies in the registers of its threads from the load to the store, so both passes of the variance are free of
// memory traffic; only a token too wide for a block (over 16 values a thread) is streamed, its second and third pass out
// of the cache. Where there are many tokens a block stays and takes one after another: it keeps the modulations in
// registers, and it asks for tokens to come before it reduces the present one, so that loads are in flight all the time.

#include <cuda_runtime.h>

#include <atomic>

#include "elements.cuh"
#include "launching.cuh"
#include "problem.h"
#include "variant.h"

namespace kernwright {
namespace {

constexpr Type kType = Type::KERNWRIGHT_TYPE;
constexpr bool kResidual = KERNWRIGHT_RESIDUAL;
#ifdef KERNWRIGHT_MODULATED
constexpr bool kModulated = KERNWRIGHT_MODULATED;
#else
constexpr bool kModulated = true;
#endif
constexpr int kSize = kType == Type::kFloat32 ? 4 : 2;
constexpr int kWidestVector = 16 / kSize, kMiddleVector = 4 / kSize;

// What a thread has in flight beyond the present token.
constexpr int kBytesAhead = 32;
// A grid of resident blocks that stay is worth its uneven end only if each takes many tokens.
constexpr int64_t kTokensToStay = 8;

template <int kVector>
__device__ __forceinline__ RawOf<kType, kVector> narrow(const float (&values)[kVector]) {
  return narrow_to<kType, kVector>(values);
}

// ---- modulations ----------------------------------------------------------------------------------------------------

// norm * weight + bias, then * (1 + scale) + shift, is norm * gain + offset.
template <int kVector>
struct Affine {
  float gain[kVector], offset[kVector];

  __device__ __forceinline__ void load(const Problem& p, int64_t batch, int64_t token, int column) {
    if constexpr (kModulated) {
      load_modulation(p.scale, row_start(p.scale, batch, token), column, gain);
      load_modulation(p.shift, row_start(p.shift, batch, token), column, offset);
#pragma unroll
      for (int i = 0; i < kVector; ++i) gain[i] += 1.f;
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) gain[i] = 1.f, offset[i] = 0.f;
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
  if (kResidual && p.gate.data) {
    load_modulation(p.gate, row_start(p.gate, batch, token), column, gate);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) gate[i] = 1.f;
  }
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

template <int kVector>
__device__ __forceinline__ char* address(const Tokens& of, int64_t batch, int64_t token, int column) {
  return static_cast<char*>(of.data) + (batch * of.batch_step + token * of.token_step + column) * kSize;
}

// One thread's part of a token as it lies in memory: loads that are under way hold no more registers than their bytes.
template <int kVector, int kSteps>
struct Fetched {
  RawOf<kType, kVector> x[kSteps], residual[kResidual ? kSteps : 1];

  __device__ __forceinline__ void load(const Problem& p, int64_t batch, int64_t token) {
    if (token >= p.tokens) return;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int column = (i * blockDim.x + threadIdx.x) * kVector;
      if (column >= p.width) continue;
      x[i] = load_raw<kVector * kSize, true>(address<kVector>(p.x, batch, token, column));
      if constexpr (kResidual)
        residual[i] = load_raw<kVector * kSize, true>(address<kVector>(p.residual, batch, token, column));
    }
  }
};

// residual + gate * x, rounded, stored, and widened again; or x alone.
template <int kVector>
__device__ __forceinline__ void form(const Problem& p, int64_t batch, int64_t token, int column,
                                     const RawOf<kType, kVector>& x, const RawOf<kType, kVector>& residual,
                                     const float (&gate)[kVector], float (&values)[kVector]) {
  widen<kType, kVector>(x, values);
  if constexpr (kResidual) {
    float before[kVector];
    widen<kType, kVector>(residual, before);
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i], gate[i], before[i]);
    const RawOf<kType, kVector> rounded = narrow(values);
    store_raw(address<kVector>(p.sum, batch, token, column), rounded);
    widen<kType, kVector>(rounded, values);
  }
}

// The sum over a token's threads, the same in each of them. Two buffers in turn: whoever writes one again has passed the
// barrier of the other, and so has everybody who read the first.
struct TokenSum {
  float* parts;  // [2][32], shared
  int turn = 0;

  __device__ __forceinline__ float operator()(float value) {
    const int lanes = blockDim.x;
    for (int step = (lanes < 32 ? lanes : 32) / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    if (lanes <= 32) return value;
    float* own = parts + 32 * turn;
    turn ^= 1;
    const int lane = threadIdx.x % 32;
    if (lane == 0) own[threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < lanes / 32 ? own[lane] : 0.f;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
  }
};

// ---- kernels --------------------------------------------------------------------------------------------------------

// A block of blockDim.y tokens, blockDim.x threads each; it goes on with the tokens gridDim.x blocks further.
template <int kVector, int kSteps, bool kKept>
__global__ void __launch_bounds__(kMostThreads) held(const __grid_constant__ Problem p) {
  constexpr int kBytes = kSteps * kVector * kSize * (kResidual ? 2 : 1);
  // Whether there are registers to ask for what comes before it is needed: not for narrow loads, each of which takes one.
  constexpr bool kIsAhead =
      kVector == kWidestVector && kBytes <= kBytesAhead && kSteps * kVector <= kValuesAtEase;
  constexpr int kComing = kIsAhead ? kBytesAhead / kBytes : 1;
  __shared__ float parts[64];
  TokenSum token_sum{parts};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float per_element = 1.f / static_cast<float>(p.width);
  for (int64_t batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    int64_t token = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    Fetched<kVector, kSteps> coming[kComing];
#pragma unroll
    for (int i = 0; i < kComing; ++i) coming[i].load(p, batch, token + i * stride);
    Affine<kVector> kept[kKept ? kSteps : 1];
    float kept_gate[kKept ? kSteps : 1][kVector];
    if constexpr (kKept) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int column = (i * blockDim.x + threadIdx.x) * kVector;
        if (column >= p.width) continue;
        kept[i].load(p, batch, 0, column);
        load_gate(p, batch, 0, column, kept_gate[i]);
      }
    }
    // All threads of a block make the same number of turns: they meet at barriers.
    for (int64_t first = token - threadIdx.y; first < p.tokens; first += stride, token += stride) {
      const bool is_there = token < p.tokens;
      const Fetched<kVector, kSteps> present = coming[0];
#pragma unroll
      for (int i = 0; i + 1 < kComing; ++i) coming[i] = coming[i + 1];
      if constexpr (kIsAhead) coming[kComing - 1].load(p, batch, token + kComing * stride);

      float values[kSteps][kVector];
      Affine<kVector> own[kIsAhead ? kSteps : 1];
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int column = (i * blockDim.x + threadIdx.x) * kVector;
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[i][j] = 0.f;
        if (!is_there || column >= p.width) continue;
        const auto& residual = present.residual[kResidual ? i : 0];
        if constexpr (kKept) {
          form<kVector>(p, batch, token, column, present.x[i], residual, kept_gate[i], values[i]);
        } else {
          float gate[kVector];
          load_gate(p, batch, token, column, gate);
          form<kVector>(p, batch, token, column, present.x[i], residual, gate, values[i]);
          // A token's own modulations are asked for now, and come while its sums are formed.
          if constexpr (kIsAhead) own[i].load(p, batch, token, column);
        }
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum += values[i][j];
      }
      const float mean = p.is_rms ? 0.f : token_sum(sum) * per_element;
      float squares = 0.f;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int column = (i * blockDim.x + threadIdx.x) * kVector;
        if (column >= p.width) continue;
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          values[i][j] -= mean;
          squares = fmaf(values[i][j], values[i][j], squares);
        }
      }
      const float inverse = rsqrtf(token_sum(squares) * per_element + p.eps);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int column = (i * blockDim.x + threadIdx.x) * kVector;
        if (!is_there || column >= p.width) continue;
        if constexpr (!kKept && !kIsAhead) own[0].load(p, batch, token, column);
        const Affine<kVector>& by = kKept ? kept[kKept ? i : 0] : own[kIsAhead ? i : 0];
        float result[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j) result[j] = fmaf(values[i][j] * inverse, by.gain[j], by.offset[j]);
        store_raw(address<kVector>(p.y, batch, token, column), narrow(result));
      }
      if constexpr (!kIsAhead) coming[0].load(p, batch, token + stride);
    }
  }
}

// Tokens wider than a block can hold: three passes, the later ones out of the cache. What a thread reads of `sum` it wrote
// itself, so it waits for nobody.
template <int kVector>
__global__ void __launch_bounds__(kMostThreads) streamed(const __grid_constant__ Problem p) {
  __shared__ float parts[64];
  TokenSum token_sum{parts};
  const float per_element = 1.f / static_cast<float>(p.width);
  const int first = threadIdx.x * kVector, stride = blockDim.x * kVector;
  for (int64_t batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
      float sum = 0.f;
      if (kResidual || !p.is_rms) {
        for (int column = first; column < p.width; column += stride) {
          const auto x = load_raw<kVector * kSize, false>(address<kVector>(p.x, batch, token, column));
          auto residual = x;
          float values[kVector], gate[kVector];
          if constexpr (kResidual) {
            residual = load_raw<kVector * kSize, true>(address<kVector>(p.residual, batch, token, column));
          }
          load_gate(p, batch, token, column, gate);
          form<kVector>(p, batch, token, column, x, residual, gate, values);
#pragma unroll
          for (int i = 0; i < kVector; ++i) sum += values[i];
        }
      }
      const float mean = p.is_rms ? 0.f : token_sum(sum) * per_element;
      auto again = [&](int column, float(&values)[kVector]) {
        RawOf<kType, kVector> raw;
        if constexpr (kResidual) {
          raw = load_written<kVector * kSize>(address<kVector>(p.sum, batch, token, column));
        } else {
          raw = load_raw<kVector * kSize, false>(address<kVector>(p.x, batch, token, column));
        }
        widen<kType, kVector>(raw, values);
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] -= mean;
      };
      float squares = 0.f;
      for (int column = first; column < p.width; column += stride) {
        float values[kVector];
        again(column, values);
#pragma unroll
        for (int i = 0; i < kVector; ++i) squares = fmaf(values[i], values[i], squares);
      }
      const float inverse = rsqrtf(token_sum(squares) * per_element + p.eps);
      for (int column = first; column < p.width; column += stride) {
        float values[kVector];
        again(column, values);
        Affine<kVector> by;
        by.load(p, batch, token, column);
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = fmaf(values[i] * inverse, by.gain[i], by.offset[i]);
        store_raw(address<kVector>(p.y, batch, token, column), narrow(values));
      }
    }
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

struct Kernel {
  void (*function)(Problem);
  int number;  // among those that are compiled
};

// A template, so that what a dtype does not need is not compiled for it.
template <int kWidest>
Kernel kernel_of(const Variant& v) {
  if (v.vector == kWidest) {
    if (v.steps == 1) return v.is_kept ? Kernel{held<kWidest, 1, true>, 0} : Kernel{held<kWidest, 1, false>, 1};
    if constexpr (2 * kWidest <= kValuesAtEase)
      if (v.steps == 2 && v.is_kept) return {held<kWidest, 2, true>, 2};
    if (v.steps == 2) return {held<kWidest, 2, false>, 3};
    if constexpr (4 * kWidest <= kMostValues)
      if (v.steps == 4) return {held<kWidest, 4, false>, 4};
    return {streamed<kWidest>, 5};
  }
  if constexpr (kMiddleVector > 1)
    if (v.vector == kMiddleVector)
      return v.steps ? Kernel{held<kMiddleVector, 8, false>, 6} : Kernel{streamed<kMiddleVector>, 7};
  return v.steps ? Kernel{held<1, 8, false>, 8} : Kernel{streamed<1>, 9};
}

// How many blocks a multiprocessor holds: asked once a kernel and size, since asking costs as much as a launch. A library
// is built for one architecture, so all its devices answer alike.
int resident_blocks(const Kernel& kernel, int threads, cudaError_t* error) {
  static std::atomic<int> known[10][kMostThreads / 32 + 1];
  std::atomic<int>& own = known[kernel.number][threads / 32];
  int blocks = own.load(std::memory_order_relaxed);
  if (blocks == 0) {
    *error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, threads, 0);
    if (*error != cudaSuccess) return 0;
    own.store(blocks = blocks < 1 ? 1 : blocks, std::memory_order_relaxed);
  }
  return blocks;
}

cudaError_t launch_here(const Problem& p, const Variant& v, int device, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  const Kernel kernel = kernel_of<kWidestVector>(v);
  const int64_t resident =
      static_cast<int64_t>(multiprocessors_of(device, &error)) * resident_blocks(kernel, v.lanes * v.rows, &error);
  if (error != cudaSuccess) return error;
  const int64_t batches = p.batches < 65535 ? p.batches : 65535;  // a grid's limit; a block goes on with the next
  int64_t blocks = (p.tokens + v.rows - 1) / v.rows;
  if (blocks * batches >= kTokensToStay * resident) blocks = (resident + batches - 1) / batches;
  if (blocks > INT32_MAX) blocks = INT32_MAX;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(batches));
  Problem copy = p;
  void* arguments[] = {&copy};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel.function), grid, dim3(v.lanes, v.rows), arguments, 0,
                          stream);
}

}  // namespace

// 0, or CUDA's number for what went wrong.
int launch(const Problem& p, const Variant& v, int device, void* stream) {
  return on_device(device, [&] { return launch_here(p, v, device, static_cast<cudaStream_t>(stream)); });
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
