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
  const int exponent = half.bits >> 10 & 31, fraction = half.bits & 1023;
  const float sign = half.bits >> 15 ? -1.f : 1.f;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024.f + fraction, exponent - 25) : std::ldexp(static_cast<float>(fraction), -24));
}
inline uint16_t emulated_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7fff;
  if (size == 0.f) return sign;  // it has no exponent that frexp could tell
  if (size >= 65520.f) return sign | 0x7c00;
  int exponent;
  std::frexp(size, &exponent);
  if (exponent < -13) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));  // may round up to 2^-14
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));         // 1024 to 2048
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) + mantissa - 1024);
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
