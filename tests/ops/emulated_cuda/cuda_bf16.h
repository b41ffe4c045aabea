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
inline float emulated_float(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }
inline __nv_bfloat162 __hmul2_rn(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__fmul_rn(emulated_float(a.low), emulated_float(b.low)),
                               __fmul_rn(emulated_float(a.high), emulated_float(b.high)));
}
inline __nv_bfloat162 __hadd2_rn(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__fadd_rn(emulated_float(a.low), emulated_float(b.low)),
                               __fadd_rn(emulated_float(a.high), emulated_float(b.high)));
}
