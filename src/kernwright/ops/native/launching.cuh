// Launching: what a launch needs to know of its device, and being on it.

#pragma once

#include <cuda_runtime.h>

#include <atomic>

namespace kernwright {

// Asked once a device: asking costs as much as a launch.
inline int multiprocessors_of(int device, cudaError_t* error) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  int count = device < kDevices ? known[device].load(std::memory_order_relaxed) : 0;
  if (count == 0) {
    *error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    if (*error == cudaSuccess && device < kDevices) known[device].store(count, std::memory_order_relaxed);
  }
  return count;
}

// Runs `body` with the device current, and gives back whatever was current before. 0, or CUDA's number for what went wrong.
template <typename Body>
int on_device(int device, const Body& body) {
  int before = 0;
  cudaError_t error = cudaGetDevice(&before);
  if (error == cudaSuccess && before != device) error = cudaSetDevice(device);
  if (error != cudaSuccess) return static_cast<int>(error);
  error = body();
  if (error != cudaSuccess) cudaGetLastError();  // told here: whoever asks CUDA next is not to be told again
  if (before != device) cudaSetDevice(before);
  return static_cast<int>(error);
}

}  // namespace kernwright
