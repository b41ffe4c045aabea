// A call of an op on a CPU, read and laid out as on a GPU.

#pragma once

#include "calling.h"

namespace kernwright {

// Hands each Problem of a call to `run`, which returns whether it ran.
template <typename Call, typename Run>
bool emulated(ffi::PackedArgs given, const Run& run) {
  return each<Call>(given, kDLCPU, [&](typename Call::Own* own) {
    if (!Call::is_compiled(*own)) return false;
    if (is_empty(*own)) return true;
    part(own);
    return run(*own);
  });
}

// As above. The last argument, behind those of the op, is whether the call only chooses and computes nothing.
template <typename Call, typename Run>
bool emulated_or_chosen(ffi::PackedArgs given, const Run& run) {
  const int count = given.size() - 1;
  const bool only_chooses = given[count].template cast<bool>();
  return each<Call>(given.Slice(0, count), kDLCPU, [&](typename Call::Own* own) {
    if (is_empty(*own)) return true;
    part(own);
    return run(*own, only_chooses);
  });
}

}  // namespace kernwright
