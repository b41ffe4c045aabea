// Calling: from a foreign call to launches on the caller's stream.

#pragma once

#include <string>

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include "parameters.h"

namespace kernwright {

const char* error_text(int error);  // defined in a kernel's file, which includes CUDA's headers

// Runs `launch(device, stream)`, which returns 0 or CUDA's number of an error.
template <typename Launch>
void launch_for_caller(DLDevice device, const Launch& launch) {
  void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  if (const int error = launch(device.device_id, stream))
    TVM_FFI_THROW(RuntimeError) << "the launch failed: " << error_text(error);
}

// Lays the work of a Problem out (`part`), chooses the variant and launches it. False: it is compiled elsewhere.
template <typename Call>
bool launched(typename Call::Own* own, DLDevice device) {
  if (!Call::is_compiled(*own)) return false;
  if (is_empty(*own)) return true;
  part(own);
  launch_for_caller(device, [&](int number, void* stream) { return Call::start(*own, number, stream); });
  return true;
}

// The foreign function of an op.
template <typename Call>
bool call(ffi::PackedArgs given) {
  const DLDevice device = device_of<Call>(given);
  return each<Call>(given, kDLCUDA, [&](typename Call::Own* own) { return launched<Call>(own, device); });
}

// What a call would run, in words, a line for each launch; of tensors on any device, since nothing is launched.
template <typename Call>
ffi::String variant(ffi::PackedArgs given) {
  std::string words;
  const bool takes = each<Call>(given, device_of<Call>(given).device_type, [&](typename Call::Own* own) {
    if (!Call::is_compiled(*own)) return false;
    part(own);
    words += (words.empty() ? "" : "\n") + Call::describe(*own);
    return true;
  });
  return takes ? words : "none";
}

// The names of the parameters, for the test that compares them with the definition.
template <typename Call>
ffi::String parameters(ffi::PackedArgs) {
  std::string names;
  for (const auto& own : Call::kParameters) names += (names.empty() ? "" : " ") + std::string(own.name);
  return names;
}

}  // namespace kernwright
