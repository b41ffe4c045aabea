"""A bundle must bring everything that is needed to build CUDA code on another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = r"""
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace ffi = tvm::ffi;

__global__ void add_kernel(const float* x, float* y, int64_t size, float term) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < size) y[i] = x[i] + term;
}

void add(ffi::TensorView x, double term, ffi::TensorView y) {
  int64_t size = x.numel();
  DLDevice device = x.device();
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  add_kernel<<<(size + 255) / 256, 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), size, static_cast<float>(term));
  cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(status);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, add);
"""


@pytest.mark.gpu
def test_a_cuda_source_builds_and_runs(tmp_path: Path) -> None:
    import torch
    import tvm_ffi
    import tvm_ffi.cpp

    source = tmp_path / "add.cu"
    source.write_text(SOURCE)
    library = tvm_ffi.cpp.build(name="add", cuda_files=[str(source)], build_directory=str(tmp_path / "build"))
    add = tvm_ffi.load_module(str(library)).add
    x = torch.randn(100_003, device="cuda")
    y = torch.full_like(x, float("nan"))
    add(x, 1.5, y)
    assert torch.equal(y, x + 1.5)
