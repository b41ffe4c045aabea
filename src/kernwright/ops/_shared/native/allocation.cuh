// Allocation: whether bytes beside a tensor are part of the memory that was given out for it.
//
// A kernel that reads whole vectors at a row's ends reads up to 14 bytes that are not the row's. Allocators round up, so these
// are nearly always there; where they are not, a kernel that reads nothing but its rows has to do.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tensors.h"

namespace kernwright {

#ifdef __CUDACC__
using AddressRange = int (*)(unsigned long long* base, size_t* bytes, unsigned long long of);

inline AddressRange address_range() {
  static const AddressRange found = [] {
    void* function = nullptr;
#if CUDART_VERSION >= 12050
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 3020, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) function = nullptr;
#endif
    return reinterpret_cast<AddressRange>(function);
  }();
  return found;
}

inline bool holds_whole_vectors(const void* data, int64_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(data) / 16 * 16;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes + 15) / 16 * 16;
  if (data == nullptr || (first == reinterpret_cast<uintptr_t>(data) && end == first + bytes)) return true;
  unsigned long long base = 0;
  size_t size = 0;
  const AddressRange ask = address_range();
  return ask != nullptr && ask(&base, &size, reinterpret_cast<uintptr_t>(data)) == 0 && base <= first && end <= base + size;
}
#else  // the tests' tensors lie in memory with room around it
inline bool holds_whole_vectors(const void*, int64_t) { return true; }
#endif

inline bool holds_whole_vectors(const Extent& e, const Tokens& of) {
  const int64_t last = (e.batches - 1) * of.batch_step + (e.tokens - 1) * of.token_step;
  return holds_whole_vectors(of.data, (last + e.width) * bytes_of(e.type));
}

inline bool holds_whole_vectors(const Extent& e, const Modulation& of) {
  const int64_t last = (e.batches - 1) * of.batch_step + (e.tokens - 1) / of.tokens_per_row * of.token_step;
  return holds_whole_vectors(of.data, (last + e.width) * bytes_of(of.type));
}

inline bool hold_whole_vectors(const Extent& e, std::initializer_list<const Tokens*> tokens,
                               std::initializer_list<const Modulation*> rows) {
  for (const Tokens* of : tokens)
    if (!holds_whole_vectors(e, *of)) return false;
  for (const Modulation* of : rows)
    if (!holds_whole_vectors(e, *of)) return false;
  return true;
}

}  // namespace kernwright
