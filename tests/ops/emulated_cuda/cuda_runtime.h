// As much of CUDA as our kernels need, on a CPU: the kernels' own code runs, thread by thread, without a GPU.
//
// A block's threads are contexts that one loop resumes in turn, each up to its next meeting (a barrier or a shuffle).
// Threads of a block must meet at the same places in the same order, as a GPU asks of them too: where they do not, the
// emulation stops with an error instead of going on. Blocks run one after the other, so shared memory is static.
//
// A GPU faults on an access that is not aligned to its size, a CPU does not mind: this is compiled with
// -fsanitize=alignment, which looks at every access, and what it finds stops the emulation too.

#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

namespace emulated {

inline dim3 thread_index, block_index, block_size, grid_size;

template <typename T>
T load(const T* from) {
  return *from;
}

class Block {
 public:
  template <typename Body>
  static void run(unsigned threads, const Body& body) {
    Block block(threads);
    try {
      block.go(body);
    } catch (...) {
      threads_.clear();  // some stand in the middle of a kernel
      current_ = nullptr;
      throw;
    }
  }

  // The running thread goes no further, and nothing is thrown here: its own stack ends where no handler is.
  [[noreturn]] static void stop_misaligned() {
    if (current_ == nullptr) std::abort();  // of a host's code, which has no loop to go back to
    current_->is_misaligned_ = true;
    _longjmp(current_->loop_, 1);
  }

  // A place where all threads meet.
  static void meet(int where) {
    Block& own = *current_;
    own.places_[own.number_] = where;
    own.pause();
  }

  // Two shuffles in a row have their values apart: a thread that is at the second changes none that others still read.
  static float shuffle(float value, int step) {
    const unsigned number = current_->number_;
    const size_t first = (current_->threads_[number].shuffles++ & 1) * current_->places_.size();
    current_->values_[first + number] = value;
    meet(1);
    return current_->values_[first + (number ^ static_cast<unsigned>(step))];
  }

 private:
  // Started once, and waiting for the next block when one is done: a context costs calls of the system, a jump none.
  struct Thread {
    static constexpr size_t kStack = 64 * 1024;
    std::unique_ptr<char[]> stack{new char[kStack]};
    jmp_buf place;
    unsigned shuffles = 0;  // of the present block
    bool started = false;
  };

  explicit Block(unsigned threads) : places_(threads, 0), values_(2 * threads) {
    while (threads_.size() < threads) threads_.emplace_back();
    for (Thread& own : threads_) own.shuffles = 0;
  }

  template <typename Body>
  void go(const Body& body) {
    current_ = this;
    body_ = [](const void* own) { (*static_cast<const Body*>(own))(); };
    argument_ = &body;
    while (places_[0] != kDone) {
      for (number_ = 0; number_ < places_.size(); ++number_) {
        thread_index = dim3(number_ % block_size.x, number_ / block_size.x);
        if (_setjmp(loop_) == 0) resume(threads_[number_]);
      }
      if (is_misaligned_) throw std::runtime_error("an access is not aligned");
      for (int place : places_)
        if (place != places_[0]) throw std::runtime_error("threads of a block meet at different places");
    }
    current_ = nullptr;
  }

  [[noreturn]] static void resume(Thread& thread) {
    if (thread.started) _longjmp(thread.place, 1);
    thread.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = thread.stack.get();
    context.uc_stack.ss_size = Thread::kStack;
    context.uc_link = nullptr;
    makecontext(&context, &Block::enter, 0);
    setcontext(&context);
    std::abort();  // it does not come back
  }

  void pause() {
    if (_setjmp(threads_[number_].place) == 0) _longjmp(loop_, 1);
  }

  static void enter() {
    for (;;) {
      current_->body_(current_->argument_);
      meet(kDone);
    }
  }

  static constexpr int kDone = -1;
  static inline Block* current_ = nullptr;
  static inline std::vector<Thread> threads_;
  std::vector<int> places_;
  std::vector<float> values_;
  jmp_buf loop_;
  unsigned number_ = 0;
  bool is_misaligned_ = false;
  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
};

}  // namespace emulated

// What the sanitizer calls instead of its own library, which would print and end the process.
extern "C" __attribute__((used)) inline void __ubsan_handle_type_mismatch_v1_abort(void*, void*) {
  emulated::Block::stop_misaligned();
}

#define threadIdx emulated::thread_index
#define blockIdx emulated::block_index
#define blockDim emulated::block_size
#define gridDim emulated::grid_size

inline void __syncthreads() { emulated::Block::meet(3); }
inline float __shfl_xor_sync(unsigned, float value, int step) { return emulated::Block::shuffle(value, step); }
template <typename T>
T __ldg(const T* from) {
  return emulated::load(from);
}
template <typename T>
void __stcs(T* to, T value) {
  *to = value;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (by & 31));
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float value) { return std::exp(value); }
// A GPU's is within one unit of the last place, this machine's own may be within two.
#define tanhf(value) static_cast<float>(std::tanh(static_cast<double>(value)))
// A GPU's compiler never fuses these; through memory no other one does.
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline float __fadd_rn(float a, float b) {
  volatile float sum = a + b;
  return sum;
}
inline float __fsub_rn(float a, float b) { return __fadd_rn(a, -b); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32); }
inline float rsqrtf(float value) { return 1.f / std::sqrt(value); }
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };
enum { cudaDevAttrMultiProcessorCount };
inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
// A small GPU: of one multiprocessor, which a small test fills.
inline cudaError_t cudaDeviceGetAttribute(int* count, int, int) { return *count = 1, cudaSuccess; }

// A launch of a kernel whose argument its type tells.
template <typename Argument>
cudaError_t cudaLaunchKernel(void (*kernel)(Argument), dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t) {
  const auto& argument = *static_cast<const Argument*>(arguments[0]);
  emulated::grid_size = grid;
  emulated::block_size = block;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        emulated::block_index = dim3(x, y, z);
        emulated::Block::run(block.x * block.y, [&] { kernel(argument); });
      }
  return cudaSuccess;
}

// A family's emulation includes its kernels behind this line, and says with KERNWRIGHT_EMULATE what a kernel takes that is
// launched by its address alone.
inline cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t);

#define KERNWRIGHT_EMULATE(Argument)                                                                               \
  inline cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t bytes, \
                                      cudaStream_t stream) {                                                       \
    const auto kernel = reinterpret_cast<void (*)(Argument)>(const_cast<void*>(function));                         \
    return cudaLaunchKernel(kernel, grid, block, arguments, bytes, stream);                                        \
  }
