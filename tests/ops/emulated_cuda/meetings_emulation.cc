// Kernels that say nothing of ours, but of the emulation: one that is right, and one for each thing that it must find.

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

namespace {

struct Call {
  float* values;  // one a thread, the sum of a warp's in each
  bool is_split, is_misaligned;
};

void sum_of_a_warp(Call call) {
  __shared__ float totals[2];  // the second is room for what is not aligned
  float value = call.values[threadIdx.x];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (call.is_split && threadIdx.x == 3) return;
  if (threadIdx.x == 0) totals[0] = value;
  __syncthreads();
  const char* place = reinterpret_cast<const char*>(totals) + (call.is_misaligned ? 1 : 0);
  call.values[threadIdx.x] = *reinterpret_cast<const float*>(place);
}

void run(tvm::ffi::TensorView values, int64_t blocks, bool is_split, bool is_misaligned) {
  Call call{static_cast<float*>(values.data_ptr()), is_split, is_misaligned};
  void* arguments[] = {&call};
  cudaLaunchKernel(sum_of_a_warp, dim3(static_cast<unsigned>(blocks)), dim3(32), arguments, 0, nullptr);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
