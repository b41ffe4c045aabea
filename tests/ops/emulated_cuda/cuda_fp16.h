#pragma once
#include <cuda_runtime.h>

struct __half {
  uint16_t bits;
};
struct __half2 {
  uint16_t low, high;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half half) {
  const uint32_t size = half.bits & 0x7fffu;
  const float sign = half.bits >> 15 ? -1.f : 1.f;
  if (size >= 0x7c00u) return size > 0x7c00u ? NAN : sign * INFINITY;
  return sign * __uint_as_float(size << 13) * 0x1p112f;  // the exponents' zeros are 112 apart
}
inline uint16_t emulated_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7fff;
  if (size >= 65520.f) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f));  // may round up to 2^-14
  const uint32_t bits = __float_as_uint(size) - (112u << 23);
  return sign | static_cast<uint16_t>((bits + 0xfffu + ((bits >> 13) & 1u)) >> 13);
}
inline __half2 __floats2half2_rn(float a, float b) { return {emulated_half(a), emulated_half(b)}; }
inline __half2 __hmul2_rn(__half2 a, __half2 b) {
  return __floats2half2_rn(__fmul_rn(__half2float({a.low}), __half2float({b.low})),
                           __fmul_rn(__half2float({a.high}), __half2float({b.high})));
}
inline __half2 __hadd2_rn(__half2 a, __half2 b) {
  return __floats2half2_rn(__fadd_rn(__half2float({a.low}), __half2float({b.low})),
                           __fadd_rn(__half2float({a.high}), __half2float({b.high})));
}
