// rms_modulate and dual_modulate, and both from table and timestep, for NVIDIA GPUs, for one dtype of x. KERNWRIGHT_FORM selects
// one of the four; without it all are compiled.
//
// Contract: exact where the device shows that torch sums as these kernels do (exactness.py), close everywhere. A token of
// whole groups is summed in torch's order: 128 threads take groups of four channels in turn and fuse each square into their
// sum, then lanes 16, 8, 4, 2, 1 apart, then warps 2 and 1 apart. After the sum every step rounds where the chain rounds
// (policy.h), and products and sums are instructions that a compiler does not fuse.
// Bytes per token of D elements of s bytes: D (s + 4) with one result, D (s + 8) with two; modulations per token add their own
// D elements each, all others are read by each block from the cache. Tokens over 8192 wide, those whose width or start requires
// single elements, and those whose modulations are numbers or of another dtype than x are read twice, the second time from
// the cache.
// Share of a copy's bandwidth on an H200 for rows of 100 MB or more: rms_modulate 98 to 102 %, dual_modulate 89 to 93 %,
// rms_modulate_from_table 92 to 101 %, dual_modulate_from_table 89 to 94 %. RESULTS.md in tasks/ltx2_rms_adaln,
// tasks/ltx2_rms_adaln_table and tasks/ltx2_dual_modulate has every row.
//
// Groups of four are 16 bytes of a result: neighbouring threads store whole lines, which vectors of eight would not.

#include <cuda_runtime.h>

#include <cmath>

#include "elements.cuh"
#include "launching.cuh"
#include "policy.h"

namespace kernwright {

namespace {

constexpr Type kType = Type::KERNWRIGHT_TYPE;
constexpr int kSize = kType == Type::kFloat32 ? 4 : 2;
using Piece = RawOf<kType, kGroup>;
constexpr uint32_t kWordOfOnes =
    kType == Type::kFloat32 ? 0x3f800000u : kType == Type::kFloat16 ? 0x3c003c00u : 0x3f803f80u;
template <Form kForm>
constexpr int kResultsOf = results_of(kForm);
template <Form kForm>
constexpr bool kIsOfTable = is_of_table(kForm);

#ifdef KERNWRIGHT_FORM
constexpr bool is_compiled(Form form) { return form == Form::KERNWRIGHT_FORM; }
#else
constexpr bool is_compiled(Form) { return true; }
#endif

// ---- the sum --------------------------------------------------------------------------------------------------------

template <int kCount>
__device__ __forceinline__ float with_squares(float sum, const float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum = fmaf(values[i], values[i], sum);
  return sum;
}

// Sums over the four warps of a block. Every thread gets the same bits.
__device__ __forceinline__ float block_sum(float value, float* parts) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = __fadd_rn(value, __shfl_xor_sync(~0u, value, step));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  return __fadd_rn(__fadd_rn(parts[0], parts[2]), __fadd_rn(parts[1], parts[3]));
}

__device__ __forceinline__ float inverse_of(float squares, const Problem& p) {
  return rsqrtf(__fadd_rn(squares / static_cast<float>(p.width), p.eps));
}

// ---- modulations ----------------------------------------------------------------------------------------------------

template <int kCount>
__device__ __forceinline__ void add(float (&values)[kCount], const float (&others)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = __fadd_rn(values[i], others[i]);
}

// The factors and offsets of normed values.
template <int kCount>
struct Affine {
  float gain[kCount], offset[kCount];

  // Reads rows of any dtype.
  template <Form kForm>
  __device__ __forceinline__ void load(const Problem& p, const Pair& pair, int64_t batch, int64_t token, int column) {
    load_modulation(pair.scale, row_start(pair.scale, batch, token), column, gain);
    load_modulation(pair.shift, row_start(pair.shift, batch, token), column, offset);
    if constexpr (kIsOfTable<kForm>) {
      float own[kCount];
      load_modulation(pair.table_scale, row_start(pair.table_scale, batch, token), column, own);
      add(gain, own);
      round_to(p.sum, gain);
      load_modulation(pair.table_shift, row_start(pair.table_shift, batch, token), column, own);
      add(offset, own);
      round_to(p.sum, offset);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) gain[i] = __fadd_rn(1.f, gain[i]);
    round_to(kIsOfTable<kForm> ? p.sum : pair.scale.type, gain);
  }

  __device__ __forceinline__ void apply(float inverse, float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      values[i] = __fadd_rn(__fmul_rn(__fmul_rn(inverse, values[i]), gain[i]), offset[i]);
  }
};

// Adds two pieces element by element. Sums are rounded to their dtype.
__device__ __forceinline__ Piece sum_of(const Piece& one, const Piece& other) {
  Piece sum;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(sum.words) / sizeof(*sum.words)); ++i) {
    if constexpr (kType == Type::kFloat32) {
      sum.words[i] = __float_as_uint(__fadd_rn(__uint_as_float(one.words[i]), __uint_as_float(other.words[i])));
    } else {
      sum.words[i] = two_sums<kType>(one.words[i], other.words[i]);
    }
  }
  return sum;
}

// Rows of x's dtype for one group of channels: scale and shift, and those of a table. `load` issues the loads where it stands; a
// compiler may not move them.
template <Form kForm>
struct OwnRows {
  Piece scale, shift, table_scale, table_shift;

  __device__ __forceinline__ static Piece one(const Modulation& of, int64_t batch, int64_t token, int column) {
    const int64_t at = batch * of.batch_step + token * of.token_step + column;
    return load_ahead<kGroup * kSize>(static_cast<const char*>(of.data) + at * kSize);
  }

  __device__ __forceinline__ void load(const Pair& pair, int64_t batch, int64_t token, int column) {
    scale = one(pair.scale, batch, token, column);
    shift = one(pair.shift, batch, token, column);
    if constexpr (kIsOfTable<kForm>) {
      table_scale = one(pair.table_scale, batch, token, column);
      table_shift = one(pair.table_shift, batch, token, column);
    }
  }

  // Sums with a table's rows are formed here and not in `load`, so that no load waits for another.
  __device__ __forceinline__ Affine<kGroup> affine() const {
    Affine<kGroup> by;
    if constexpr (kIsOfTable<kForm>) {
      Piece ones;
#pragma unroll
      for (uint32_t& word : ones.words) word = kWordOfOnes;
      widen<kType, kGroup>(sum_of(ones, sum_of(scale, table_scale)), by.gain);
      widen<kType, kGroup>(sum_of(shift, table_shift), by.offset);
    } else {
      widen<kType, kGroup>(scale, by.gain);
      widen<kType, kGroup>(shift, by.offset);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) by.gain[i] = __fadd_rn(1.f, by.gain[i]);
      round_to<kType>(by.gain);
    }
    return by;
  }
};

// ---- tokens ---------------------------------------------------------------------------------------------------------

__device__ __forceinline__ const char* token_of(const Problem& p, int64_t batch, int64_t token) {
  return static_cast<const char*>(p.x.data) + (batch * p.x.batch_step + token * p.x.token_step) * kSize;
}

__device__ __forceinline__ float* result_of(const Tokens& of, int64_t batch, int64_t token) {
  return static_cast<float*>(of.data) + batch * of.batch_step + token * of.token_step;
}

__device__ __forceinline__ void store_group(float* to, const float (&values)[kGroup]) {
  store_raw(to, narrow_to<Type::kFloat32, kGroup>(values));
}

// One token per block, in registers from load to store. Rows of kAhead groups are loaded together with it, and those of another
// group whenever a group is done.
template <Form kForm, int kGroups, int kAhead>
__global__ void __launch_bounds__(kThreads) held(const __grid_constant__ Problem p) {
  constexpr int kResults = kResultsOf<kForm>;
  __shared__ float parts[kThreads / 32];
  const uint32_t batch = batch_of_block(), token = blockIdx.x;
  if (batch >= p.batches) return;
  const int groups = p.width / kGroup;
  auto group = [&](int i) { return i * kThreads + static_cast<int>(threadIdx.x); };

  // All of these loads are issued before any result is used.
  Piece x[kGroups];
  OwnRows<kForm> rows[kResults][kAhead];
  auto ask_for_rows = [&](int i) {
    if (group(i) >= groups) return;
#pragma unroll
    for (int n = 0; n < kResults; ++n) rows[n][i % kAhead].load(p.pairs[n], batch, token, group(i) * kGroup);
  };
  const char* from = token_of(p, batch, token);
  wait_for_turn();
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    x[i] = Piece{};
    if (group(i) < groups) x[i] = load_ahead<kGroup * kSize>(from + group(i) * (kGroup * kSize));
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) ask_for_rows(i);

  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    float values[kGroup];
    widen<kType, kGroup>(x[i], values);
    squares = with_squares(squares, values);
  }
  const float inverse = inverse_of(block_sum(squares, parts), p);

#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    if (group(i) >= groups) break;
    const int column = group(i) * kGroup;
#pragma unroll
    for (int n = 0; n < kResults; ++n) {
      float values[kGroup];
      widen<kType, kGroup>(x[i], values);
      rows[n][i % kAhead].affine().apply(inverse, values);
      store_group(result_of(p.y[n], batch, token) + column, values);
    }
    if (i + kAhead < kGroups) ask_for_rows(i + kAhead);
  }
}

// Tokens that are too wide to hold, that are read by single elements, or whose rows have any dtype. They are read twice: for the
// sum and for the result. The order is free after the sum, so that neighbouring threads take neighbouring elements.
// Torch sums a width that is not a multiple of a group in another order, which this kernel does not follow. There a thread
// compensates its sum for rounding, since it adds hundreds of squares of a wide token.
template <Form kForm, int kVector>
__global__ void __launch_bounds__(kThreads) read_twice(const __grid_constant__ Problem p) {
  __shared__ float parts[2][kThreads / 32];
  const uint32_t batch = batch_of_block();
  if (batch >= p.batches) return;
  const int thread = static_cast<int>(threadIdx.x);
  wait_for_turn();
  int turn = 0;  // the halves of `parts` alternate: the barrier of one half separates reads and writes of the other
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x, turn ^= 1) {
    const char* from = token_of(p, batch, token);
    const bool is_in_order = kVector == kGroup || p.width % kGroup == 0;
    float squares = 0.f, lost = 0.f;
#pragma unroll 4
    for (int column = thread * kGroup; column < p.width; column += kThreads * kGroup) {
      float values[kGroup];
      if constexpr (kVector == kGroup) {
        widen<kType, kGroup>(load_raw<kGroup * kSize>(from + column * kSize), values);
      } else {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          float one[1] = {0.f};
          if (column + i < p.width) widen<kType, 1>(load_raw<kSize>(from + (column + i) * kSize), one);
          values[i] = one[0];
        }
      }
      if (is_in_order) {
        squares = with_squares(squares, values);
      } else {
        const float more = __fsub_rn(with_squares(0.f, values), lost), sum = __fadd_rn(squares, more);
        lost = sum < INFINITY ? __fsub_rn(__fsub_rn(sum, squares), more) : 0.f;
        squares = sum;
      }
    }
    const float inverse = inverse_of(block_sum(squares, parts[turn]), p);
#pragma unroll 2
    for (int column = thread * kVector; column < p.width; column += kThreads * kVector) {
      const auto raw = load_raw<kVector * kSize>(from + column * kSize);
#pragma unroll
      for (int n = 0; n < kResultsOf<kForm>; ++n) {
        Affine<kVector> by;
        by.template load<kForm>(p, p.pairs[n], batch, token, column);
        float values[kVector];
        widen<kType, kVector>(raw, values);
        by.apply(inverse, values);
        float* to = result_of(p.y[n], batch, token) + column;
        if constexpr (kVector == kGroup) {
          store_group(to, values);
        } else {
          *to = values[0];
        }
      }
    }
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

using Kernel = void (*)(Problem);

template <Form kForm>
Kernel kernel_of(const Variant& v) {
  if constexpr (!is_compiled(kForm)) {
    return nullptr;
  } else {
    if (v.groups == 4) return held<kForm, 4, groups_ahead(kForm, kType, 4)>;
    if (v.groups == 8) return held<kForm, 8, groups_ahead(kForm, kType, 8)>;
    if (v.groups == 16) return held<kForm, 16, groups_ahead(kForm, kType, 16)>;
    return v.is_vector ? read_twice<kForm, kGroup> : read_twice<kForm, 1>;
  }
}

Kernel kernel_of(Form form, const Variant& v) {
  if (form == Form::kOne) return kernel_of<Form::kOne>(v);
  if (form == Form::kTwo) return kernel_of<Form::kTwo>(v);
  return form == Form::kOneOfTable ? kernel_of<Form::kOneOfTable>(v) : kernel_of<Form::kTwoOfTable>(v);
}

cudaError_t launch_here(const Problem& p, const Variant& v, cudaStream_t stream) {
  const Kernel kernel = kernel_of(p.form, v);
  if (kernel == nullptr) return cudaErrorInvalidConfiguration;
  return launch_batches(kernel, p.tokens, p.batches, kThreads, p, stream);
}

}  // namespace

// Returns 0, or CUDA's number of the error.
int launch(const Problem& p, const Variant& v, int device, void* stream) {
  return on_device(device, [&] { return launch_here(p, v, static_cast<cudaStream_t>(stream)); });
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace kernwright
