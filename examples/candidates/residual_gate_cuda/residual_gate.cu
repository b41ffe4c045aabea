// out = residual + update * gate for dense tensors of one dtype, with the bits of the eager chain: the product is rounded to
// the dtype, then the sum is. Every multiplication and addition is an instruction that the compiler does not fuse.
//
// Bytes: residual and update are read once and out is written once; so is a gate of the same shape. A gate of one row for
// many tokens comes from the cache.
//
// Where a token is a whole number of vectors of 16 bytes, a thread works on VECTORS of them and asks for all of them before it
// uses the first. Other widths go through a plain kernel. space.toml declares what may be tuned.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

// kernwright tune: begin
#define THREADS 256  // threads of a block
#define VECTORS 1  // vectors of 16 bytes of each tensor that a thread asks for at once
#define MIN_BLOCKS 1  // least blocks on a multiprocessor, for which the compiler limits registers
#define LOAD plain  // cache hint of loads of the dense tensors
#define STORE plain  // cache hint of stores
#define PERSISTENT 0  // as many blocks as fit on the GPU at once, each of which takes many pieces
#define EARLY_LAUNCH 1  // place blocks while the kernel before ends
// kernwright tune: end

namespace ffi = tvm::ffi;

namespace {

#define HINT_plain ""
#define HINT_cs ".cs"
#define HINT_no_allocate ".L1::no_allocate"
#define HINT_nc ".nc"
#define JOINED(a, b) a##b
#define HINT(name) JOINED(HINT_, name)

enum class Type { kFloat32, kBFloat16, kFloat16 };
enum class Gate { kDense, kOneRow, kRows };

// n / divisor for n below 2^31, without a division.
struct Divisor {
  uint32_t value = 1, magic = 1, digits = 0;

  static Divisor of(int64_t value) {
    Divisor own;
    own.value = static_cast<uint32_t>(value);
    while (uint64_t{1} << own.digits < own.value) ++own.digits;
    own.magic = static_cast<uint32_t>((((uint64_t{1} << own.digits) - own.value) << 32) / own.value + 1);
    return own;
  }
  __device__ __forceinline__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, magic) + n) >> digits; }
};

struct Call {
  const void *residual, *update, *gate;
  void* out;
  uint32_t vectors;     // of a whole tensor
  Divisor of_token;     // vectors of a token
  Divisor of_row;       // tokens that share a row of the gate
  int64_t elements, width, tokens_of_row;
};

__device__ __forceinline__ uint4 load(const uint4* from) {
  uint4 v;
  asm volatile("ld.global" HINT(LOAD) ".v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// A row of the gate is read by many threads: it shall stay in the cache.
__device__ __forceinline__ uint4 load_row(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

__device__ __forceinline__ void store(uint4* to, const uint4& v) {
  asm volatile("st.global" HINT(STORE) ".v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// A word has one float32 or two halves. Halves computed at once have the bits of the chain, which computes in float32 and
// rounds: products are exact in float32, and rounding a sum to 24 bits first changes nothing.
template <Type kType>
__device__ __forceinline__ uint32_t gated(uint32_t residual, uint32_t update, uint32_t gate) {
  if constexpr (kType == Type::kFloat32) {
    return __float_as_uint(
        __fadd_rn(__uint_as_float(residual), __fmul_rn(__uint_as_float(update), __uint_as_float(gate))));
  } else if constexpr (kType == Type::kBFloat16) {
    using Two = __nv_bfloat162;
    const Two product = __hmul2_rn(reinterpret_cast<const Two&>(update), reinterpret_cast<const Two&>(gate));
    const Two sum = __hadd2_rn(reinterpret_cast<const Two&>(residual), product);
    return reinterpret_cast<const uint32_t&>(sum);
  } else {
    const __half2 product = __hmul2_rn(reinterpret_cast<const __half2&>(update), reinterpret_cast<const __half2&>(gate));
    const __half2 sum = __hadd2_rn(reinterpret_cast<const __half2&>(residual), product);
    return reinterpret_cast<const uint32_t&>(sum);
  }
}

__device__ __forceinline__ void wait_for_turn() {
#if EARLY_LAUNCH && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <Gate kGate>
__device__ __forceinline__ uint4 load_gate(const Call& c, uint32_t vector) {
  const uint4* gate = static_cast<const uint4*>(c.gate);
  if constexpr (kGate == Gate::kDense) return load(gate + vector);
  const uint32_t token = c.of_token.quotient(vector), column = vector - token * c.of_token.value;
  if constexpr (kGate == Gate::kOneRow) return load_row(gate + column);
  return load_row(gate + static_cast<uint64_t>(c.of_row.quotient(token)) * c.of_token.value + column);
}

template <Type kType, Gate kGate>
__device__ __forceinline__ void piece(const Call& c, uint32_t first) {
  const uint4* residual = static_cast<const uint4*>(c.residual);
  const uint4* update = static_cast<const uint4*>(c.update);
  uint4* out = static_cast<uint4*>(c.out);
  uint4 r[VECTORS], u[VECTORS], g[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const uint32_t vector = first + i * THREADS;
    if (vector >= c.vectors) continue;
    r[i] = load(residual + vector);
    u[i] = load(update + vector);
    g[i] = load_gate<kGate>(c, vector);
  }
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const uint32_t vector = first + i * THREADS;
    if (vector >= c.vectors) continue;
    store(out + vector, make_uint4(gated<kType>(r[i].x, u[i].x, g[i].x), gated<kType>(r[i].y, u[i].y, g[i].y),
                                   gated<kType>(r[i].z, u[i].z, g[i].z), gated<kType>(r[i].w, u[i].w, g[i].w)));
  }
}

template <Type kType, Gate kGate>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) gate_vectors(const __grid_constant__ Call c) {
  wait_for_turn();
#if PERSISTENT
  const uint32_t step = gridDim.x * THREADS * VECTORS;
  for (uint32_t first = blockIdx.x * THREADS * VECTORS + threadIdx.x; first < c.vectors; first += step)
    piece<kType, kGate>(c, first);
#else
  piece<kType, kGate>(c, blockIdx.x * THREADS * VECTORS + threadIdx.x);
#endif
}

// One element at a time: widths that are no whole number of vectors.
template <Type kType>
__global__ void gate_elements(const __grid_constant__ Call c) {
  wait_for_turn();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < c.elements; i += step) {
    const int64_t g = i / c.width / c.tokens_of_row * c.width + i % c.width;
    if constexpr (kType == Type::kFloat32) {
      const uint32_t* residual = static_cast<const uint32_t*>(c.residual);
      static_cast<uint32_t*>(c.out)[i] = gated<kType>(residual[i], static_cast<const uint32_t*>(c.update)[i],
                                                      static_cast<const uint32_t*>(c.gate)[g]);
    } else {
      const uint16_t* residual = static_cast<const uint16_t*>(c.residual);
      static_cast<uint16_t*>(c.out)[i] = static_cast<uint16_t>(gated<kType>(
          residual[i], static_cast<const uint16_t*>(c.update)[i], static_cast<const uint16_t*>(c.gate)[g]));
    }
  }
}

void launch(void (*kernel)(Call), int64_t blocks, int threads, const Call& call, cudaStream_t stream) {
  cudaLaunchConfig_t how{};
  how.gridDim = dim3(static_cast<unsigned>(blocks)), how.blockDim = dim3(threads), how.stream = stream;
#if EARLY_LAUNCH
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  how.attrs = &early, how.numAttrs = 1;
#endif
  if (const cudaError_t error = cudaLaunchKernelEx(&how, kernel, call); error != cudaSuccess)
    TVM_FFI_THROW(RuntimeError) << "the launch failed: " << cudaGetErrorString(error);
}

#if PERSISTENT
int64_t resident_blocks(void (*kernel)(Call), int device) {
  int multiprocessors = 0, each = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, THREADS, 0);
  return static_cast<int64_t>(multiprocessors) * (each > 0 ? each : 1);
}
#endif

template <Type kType, Gate kGate>
void run_vectors(const Call& call, int device, cudaStream_t stream) {
  int64_t blocks = (static_cast<int64_t>(call.vectors) + THREADS * VECTORS - 1) / (THREADS * VECTORS);
#if PERSISTENT
  static const int64_t most = resident_blocks(gate_vectors<kType, kGate>, device);  // asking costs as much as a launch
  blocks = blocks < most ? blocks : most;
#endif
  launch(gate_vectors<kType, kGate>, blocks, THREADS, call, stream);
}

template <Type kType>
void run(Call call, Gate gate, bool takes_vectors, int device, cudaStream_t stream) {
  if (!takes_vectors) {
    constexpr int kThreads = 256, kMost = 1 << 16;
    const int64_t blocks = (call.elements + kThreads - 1) / kThreads;
    return launch(gate_elements<kType>, blocks < kMost ? blocks : kMost, kThreads, call, stream);
  }
  if (gate == Gate::kDense) return run_vectors<kType, Gate::kDense>(call, device, stream);
  if (gate == Gate::kOneRow) return run_vectors<kType, Gate::kOneRow>(call, device, stream);
  return run_vectors<kType, Gate::kRows>(call, device, stream);
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

void require(bool holds, const char* what) {
  if (!holds) TVM_FFI_THROW(ValueError) << what;
}

}  // namespace

void residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  require(residual.ndim() == 3, "residual must be [B, S, D]");
  const int64_t batches = residual.size(0), tokens = residual.size(1), width = residual.size(2);
  const DLDataType type = residual.dtype();
  for (const ffi::TensorView& each : {residual, update, gate, out}) {
    require(each.dtype().code == type.code && each.dtype().bits == type.bits, "all tensors must have one dtype");
    require(each.IsContiguous(), "all tensors must be contiguous");
  }
  Call call{residual.data_ptr(), update.data_ptr(), gate.data_ptr(), out.data_ptr()};
  call.elements = batches * tokens * width, call.width = width;
  if (call.elements == 0) return;
  // [D], [B, D], [B, 1, D], [B, S, D] or [B, F, 1, D]: rows of the gate, each for equally many tokens.
  const int64_t size = gate.numel();
  require(size % width == 0 && batches * tokens % (size / width) == 0, "the gate does not divide the tokens");
  const int64_t rows = size / width, shared = batches * tokens / rows;
  const Gate kind = shared == 1 ? Gate::kDense : rows == 1 ? Gate::kOneRow : Gate::kRows;
  const int64_t bytes = type.bits / 8, vector = 16 / bytes;
  const bool takes_vectors = width % vector == 0 && call.elements / vector < INT32_MAX && is_aligned(call.residual) &&
                             is_aligned(call.update) && is_aligned(call.gate) && is_aligned(call.out);
  call.tokens_of_row = shared;
  if (takes_vectors) {
    call.vectors = static_cast<uint32_t>(call.elements / vector);
    call.of_token = Divisor::of(width / vector), call.of_row = Divisor::of(shared);
  }
  const DLDevice device = residual.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (type.code == kDLFloat && type.bits == 32)
    return run<Type::kFloat32>(call, kind, takes_vectors, device.device_id, stream);
  if (type.code == kDLBfloat && type.bits == 16)
    return run<Type::kBFloat16>(call, kind, takes_vectors, device.device_id, stream);
  if (type.code == kDLFloat && type.bits == 16)
    return run<Type::kFloat16>(call, kind, takes_vectors, device.device_id, stream);
  TVM_FFI_THROW(TypeError) << "the dtype must be float32, bfloat16 or float16";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_gate, residual_gate);
