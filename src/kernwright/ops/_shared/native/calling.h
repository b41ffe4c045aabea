// Calling: from a foreign function to a launch on the caller's stream.

#pragma once

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace kernwright {

const char* error_text(int error);  // a kernel's file has it: that knows CUDA

// Runs `launch(device, stream)`, which answers 0 or CUDA's number for what went wrong.
template <typename Launch>
void launch_for_caller(DLDevice device, const Launch& launch) {
  void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  if (const int error = launch(device.device_id, stream))
    TVM_FFI_THROW(RuntimeError) << "the launch failed: " << error_text(error);
}

}  // namespace kernwright
