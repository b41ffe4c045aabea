#pragma once
#include <cuda_runtime.h>

struct __nv_bfloat162 {
  uint16_t low, high;
};
inline uint16_t emulated_bfloat16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // as the hardware's NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {emulated_bfloat16(a), emulated_bfloat16(b)}; }
