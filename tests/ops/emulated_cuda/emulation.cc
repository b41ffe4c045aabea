// cuda_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

inline cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t);

#include "cuda_kernel.cu"

#include "arguments.h"

// The kernel's address is all that a launch gets; what it takes is known here.
inline cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t,
                                    cudaStream_t) {
  const auto kernel = reinterpret_cast<void (*)(kernwright::Problem)>(const_cast<void*>(function));
  const auto& problem = *static_cast<const kernwright::Problem*>(arguments[0]);
  emulated::grid_size = grid;
  emulated::block_size = block;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      emulated::block_index = dim3(x, y);
      emulated::Block::run(block.x * block.y, [&] { kernel(problem); });
    }
  return cudaSuccess;
}

namespace kernwright {

bool run(ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate,
         MaybeTensor weight, MaybeTensor bias, ffi::String norm_type, double eps, ffi::TensorView y, MaybeTensor sum) {
  Problem problem;
  if (!read(&problem, kDLCPU, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum)) return false;
  if (problem.batches * problem.tokens * problem.width == 0) return true;
  fold_batches(&problem);
  launch(problem, choose_variant(problem), 0, nullptr);
  return true;
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, kernwright::run);
