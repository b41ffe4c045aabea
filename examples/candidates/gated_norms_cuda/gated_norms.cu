// y = rms(x) * weight * tanh(scale) + shift, then y2 = rms(y) * weight2 * (1 + scale2), for Z-Image: bfloat16 tokens of 3,840
// channels, a shift for each token, and one row of scale and scale2 for each batch entry. Other widths go through a plain
// kernel, and other calls are refused.
//
// Contract: close. Sums are in float32; a product of gains and one rounding, where the eager chain rounds after each step. The
// second norm sees y as it is returned.
// Bytes of a token: x and shift are read once, y and y2 are written once. The four rows of channels come from the cache: for
// each token, or once for each block, which then works on many tokens.
//
// The marked block has the constants that the tuner searches (space.toml). The defaults are the settings of the kernel in
// kernwright.ops before the first campaign on this op.

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <cstdint>

namespace ffi = tvm::ffi;

// kernwright tune: begin
#define WARPS 5  // warps of a block, which work on one token together
#define BLOCKS 5  // blocks on a multiprocessor, for which the compiler limits registers
#define GAINS per_token  // products of the rows of channels: per_token, or kept by a block for many tokens
#define AHEAD 0  // load the next token while a block works on this one
// kernwright tune: end

namespace {

enum class Gains { per_token, kept_in_shared, kept_in_registers };

constexpr int kWidth = 3840, kVector = 8, kThreads = 32 * WARPS, kVectors = kWidth / (kVector * kThreads);
static_assert(kThreads * kVectors * kVector == kWidth, "warps must divide a token into whole vectors");
constexpr Gains kGains = Gains::GAINS;
constexpr bool kKeeps = kGains != Gains::per_token, kAhead = AHEAD && kKeeps;

struct Call {
  const uint4 *x, *shift, *weight, *weight2, *scale, *scale2;
  uint4 *y, *y2;
  int tokens;                      // of a batch entry
  int64_t scale_step, scale2_step;  // vectors from one batch entry to the next
  float eps;
};

// Volatile: all loads are issued where they stand, before the first value is used.
__device__ __forceinline__ uint4 load(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

__device__ __forceinline__ void widen(const uint4& bits, float (&values)[kVector]) {
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ __forceinline__ uint4 narrow(const float (&values)[kVector]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    words[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ float tanh_of(float value) {
  float found;
  asm("tanh.approx.f32 %0, %1;" : "=f"(found) : "f"(value));  // within 2^-11: a quarter of half a unit of bfloat16
  return found;
}

__device__ __forceinline__ void first_gains(const uint4& weight, const uint4& scale, float (&gains)[kVector]) {
  float by[kVector];
  widen(weight, gains), widen(scale, by);
#pragma unroll
  for (int i = 0; i < kVector; ++i) gains[i] *= tanh_of(by[i]);
}

__device__ __forceinline__ void second_gains(const uint4& weight, const uint4& scale, float (&gains)[kVector]) {
  float by[kVector];
  widen(weight, gains), widen(scale, by);
#pragma unroll
  for (int i = 0; i < kVector; ++i) gains[i] = fmaf(gains[i], by[i], gains[i]);
}

// 1 / the root of the mean square of a token, from the sum of each thread. All warps write to `parts`, which no thread may still
// be reading from the norm before.
__device__ __forceinline__ float inverse_root(float squares, float* parts, float eps) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
  __syncthreads();
  float total = 0.f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += parts[warp];
  return rsqrtf(fmaf(total, 1.f / kWidth, eps));
}

__global__ void __launch_bounds__(kThreads, BLOCKS) gated_norms(const __grid_constant__ Call c) {
  __shared__ float parts[2][WARPS];
  __shared__ float4 shared_gains[kGains == Gains::kept_in_shared ? 2 * kVectors * 2 * kThreads : 1];
  const int thread = static_cast<int>(threadIdx.x);
  const uint4 *scale = c.scale + blockIdx.y * c.scale_step, *scale2 = c.scale2 + blockIdx.y * c.scale2_step;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * c.tokens;
  auto column = [&](int i) { return i * kThreads + thread; };
  auto place = [&](int token, int i) { return (first + token) * (kWidth / kVector) + column(i); };

  uint4 x[kVectors], shift[kVectors], rows[kKeeps ? 1 : 2][kVectors];
  float kept[2][kGains == Gains::kept_in_registers ? kVectors : 1][kVector];
  auto load_token = [&](int token) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) x[i] = load(c.x + place(token, i));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) shift[i] = load(c.shift + place(token, i));
  };
  auto shared = [&](int norm, int i, int half) -> float4& {
    return shared_gains[((norm * kVectors + i) * 2 + half) * kThreads + thread];
  };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  int token = static_cast<int>(blockIdx.x);
  if (token >= c.tokens) return;
  load_token(token);
  if constexpr (kKeeps) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float gains[2][kVector];
      first_gains(load(c.weight + column(i)), load(scale + column(i)), gains[0]);
      second_gains(load(c.weight2 + column(i)), load(scale2 + column(i)), gains[1]);
#pragma unroll
      for (int norm = 0; norm < 2; ++norm) {
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          if constexpr (kGains == Gains::kept_in_registers) kept[norm][i][j] = gains[norm][j];
        if constexpr (kGains == Gains::kept_in_shared) {  // each thread reads what it wrote itself
          shared(norm, i, 0) = make_float4(gains[norm][0], gains[norm][1], gains[norm][2], gains[norm][3]);
          shared(norm, i, 1) = make_float4(gains[norm][4], gains[norm][5], gains[norm][6], gains[norm][7]);
        }
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) rows[0][i] = load(c.weight + column(i));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) rows[1][i] = load(scale + column(i));
  }
  auto gains_of = [&](int norm, int i, float (&gains)[kVector]) {
    if constexpr (kGains == Gains::kept_in_registers) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) gains[j] = kept[norm][i][j];
    } else if constexpr (kGains == Gains::kept_in_shared) {
      const float4 low = shared(norm, i, 0), high = shared(norm, i, 1);
      gains[0] = low.x, gains[1] = low.y, gains[2] = low.z, gains[3] = low.w;
      gains[4] = high.x, gains[5] = high.y, gains[6] = high.z, gains[7] = high.w;
    } else if (norm == 0) {
      first_gains(rows[0][i], rows[1][i], gains);
    } else {
      second_gains(c.weight2[column(i)], scale2[column(i)], gains);
    }
  };

  while (true) {
    float values[kVectors][kVector], offsets[kVectors][kVector], gains[kVector], squares = 0.f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      widen(x[i], values[i]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares = fmaf(values[i][j], values[i][j], squares);
    }
    uint4 bits[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) bits[i] = shift[i];
    const int next = token + static_cast<int>(gridDim.x);
    if constexpr (kAhead) {
      if (next < c.tokens) load_token(next);
    }
    const float inverse = inverse_root(squares, parts[0], c.eps);
    squares = 0.f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      gains_of(0, i, gains);
      widen(bits[i], offsets[i]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[i][j] = fmaf(values[i][j] * inverse, gains[j], offsets[i][j]);
      const uint4 y = narrow(values[i]);
      c.y[place(token, i)] = y;
      widen(y, values[i]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares = fmaf(values[i][j], values[i][j], squares);
    }
    const float again = inverse_root(squares, parts[1], c.eps);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      gains_of(1, i, gains);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[i][j] *= again * gains[j];
      c.y2[place(token, i)] = narrow(values[i]);
    }
    if (!kKeeps || next >= c.tokens) return;
    token = next;
    if constexpr (!kAhead) load_token(token);
  }
}

// Tokens of any width, one element at a time.
constexpr int kPlainThreads = 256;

struct PlainCall {
  const __nv_bfloat16 *x, *shift, *weight, *weight2, *scale, *scale2;
  __nv_bfloat16 *y, *y2;
  int tokens, width;
  int64_t scale_step, scale2_step;  // elements
  float eps;
};

__device__ float plain_inverse_root(float squares, float* parts, int width, float eps) {
  for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
  __syncthreads();
  float total = 0.f;
  for (int warp = 0; warp < kPlainThreads / 32; ++warp) total += parts[warp];
  return rsqrtf(total / static_cast<float>(width) + eps);
}

__global__ void plain_norms(const __grid_constant__ PlainCall c) {
  __shared__ float parts[2][kPlainThreads / 32];
  const int64_t start = (static_cast<int64_t>(blockIdx.y) * c.tokens + blockIdx.x) * c.width;
  const __nv_bfloat16 *scale = c.scale + blockIdx.y * c.scale_step, *scale2 = c.scale2 + blockIdx.y * c.scale2_step;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  float squares = 0.f;
  for (int i = threadIdx.x; i < c.width; i += kPlainThreads) {
    const float x = __bfloat162float(c.x[start + i]);
    squares += x * x;
  }
  const float inverse = plain_inverse_root(squares, parts[0], c.width, c.eps);
  squares = 0.f;
  for (int i = threadIdx.x; i < c.width; i += kPlainThreads) {
    const float gain = __bfloat162float(c.weight[i]) * tanh_of(__bfloat162float(scale[i]));
    const __nv_bfloat16 y = __float2bfloat16(
        fmaf(__bfloat162float(c.x[start + i]) * inverse, gain, __bfloat162float(c.shift[start + i])));
    c.y[start + i] = y;
    squares += __bfloat162float(y) * __bfloat162float(y);
  }
  const float again = plain_inverse_root(squares, parts[1], c.width, c.eps);
  for (int i = threadIdx.x; i < c.width; i += kPlainThreads) {  // each thread reads what it wrote itself
    const float gain = __bfloat162float(c.weight2[i]) * (1.f + __bfloat162float(scale2[i]));
    c.y2[start + i] = __float2bfloat16(__bfloat162float(c.y[start + i]) * (again * gain));
  }
}

template <typename Argument>
void launch(void (*kernel)(Argument), dim3 blocks, int threads, const Argument& call, int device) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how{};
  how.gridDim = blocks, how.blockDim = dim3(threads), how.attrs = &early, how.numAttrs = 1;
  how.stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, device));
  if (const cudaError_t error = cudaLaunchKernelEx(&how, kernel, call); error != cudaSuccess)
    TVM_FFI_THROW(RuntimeError) << "the launch failed: " << cudaGetErrorString(error);
}

void require(bool holds, const char* what) {
  if (!holds) TVM_FFI_THROW(ValueError) << what;
}

template <typename Element>
Element* tokens_of(ffi::TensorView tensor, const ffi::TensorView& x) {
  require(tensor.IsContiguous() && tensor.numel() == x.numel(), "x, shift, y and y2 must be contiguous and of one shape");
  return static_cast<Element*>(tensor.data_ptr());
}

// One row for all batch entries, or one for each. `step` is in elements.
template <typename Element>
const Element* row_of(ffi::TensorView tensor, int64_t width, int64_t batches, int64_t* step = nullptr) {
  const bool is_one = tensor.numel() == width;
  require(tensor.IsContiguous() && (is_one || (step != nullptr && tensor.numel() == batches * width)),
          "scale and scale2 must have one row of channels, or one for each batch entry; weights must have one");
  if (step != nullptr) *step = is_one ? 0 : width;
  return static_cast<const Element*>(tensor.data_ptr());
}

template <typename Call, typename Element>
Call call_of(const ffi::TensorView (&all)[8], float eps) {
  const ffi::TensorView &x = all[0], &shift = all[1], &scale = all[2], &scale2 = all[3];
  const int64_t batches = x.size(0), width = x.size(2);
  Call call{};
  call.x = tokens_of<const Element>(x, x), call.shift = tokens_of<const Element>(shift, x);
  call.y = tokens_of<Element>(all[6], x), call.y2 = tokens_of<Element>(all[7], x);
  call.scale = row_of<Element>(scale, width, batches, &call.scale_step);
  call.scale2 = row_of<Element>(scale2, width, batches, &call.scale2_step);
  call.weight = row_of<Element>(all[4], width, 1), call.weight2 = row_of<Element>(all[5], width, 1);
  call.tokens = static_cast<int>(x.size(1)), call.eps = eps;
  return call;
}

}  // namespace

void run(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, ffi::TensorView scale2,
         ffi::Optional<ffi::TensorView> weight, ffi::Optional<ffi::TensorView> bias, ffi::Optional<ffi::TensorView> weight2,
         ffi::Optional<ffi::TensorView> bias2, ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView y2) {
  require(norm_type == "rms" && !bias.has_value() && !bias2.has_value(), "the norm must be rms without a bias");
  require(weight.has_value() && weight2.has_value(), "weight and weight2 must be given");
  require(x.ndim() == 3, "x must be [B, S, D]");
  const int64_t batches = x.size(0), tokens = x.size(1), width = x.size(2);
  require(batches < 65536 && tokens < INT32_MAX && width < INT32_MAX, "there are too many tokens");
  const ffi::TensorView all[8] = {x, shift, scale, scale2, weight.value(), weight2.value(), y, y2};
  bool is_wide = width == kWidth;
  for (const ffi::TensorView& each : all) {
    require(each.dtype().code == kDLBfloat && each.dtype().bits == 16, "all tensors must be bfloat16");
    is_wide = is_wide && reinterpret_cast<uintptr_t>(each.data_ptr()) % 16 == 0;
  }
  if (batches * tokens * width == 0) return;
  const int device = x.device().device_id;
  if (!is_wide) {
    PlainCall call = call_of<PlainCall, __nv_bfloat16>(all, static_cast<float>(eps));
    call.width = static_cast<int>(width);
    const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(batches));
    return launch(plain_norms, grid, kPlainThreads, call, device);
  }
  Call call = call_of<Call, uint4>(all, static_cast<float>(eps));
  call.scale_step /= kVector, call.scale2_step /= kVector;
  int64_t blocks = tokens;
  if constexpr (kKeeps) {
    static const int multiprocessors = [device] {  // asking costs as much as a launch
      int found = 1;
      cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device);
      return found;
    }();
    const int64_t most = static_cast<int64_t>(multiprocessors) * BLOCKS / batches;  // more would not run at once
    blocks = blocks < most ? blocks : most > 0 ? most : 1;
  }
  launch(gated_norms, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(batches)), kThreads, call, device);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
