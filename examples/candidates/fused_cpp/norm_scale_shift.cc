// norm(x) * (1 + scale) + shift in one pass over each row, for a CPU.
//
// Contract: close. Statistics in float32, centred before they are squared; then one multiply-add chain and one rounding,
// where the eager chain rounds three times: closer to the oracle than what it replaces.
// Bytes: x is read and y written once; a row (a few KB) stays in the first-level cache between its three sweeps.
//
// The loops are written so that a compiler turns them into vector code without help: rows are widened to float32 once,
// sums run in independent lanes, and no loop has a branch inside. space.toml declares what may be tuned.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

// kernwright tune: begin
#define LANES 16  // independent sums of a row
#define UNROLL 1  // steps of a loop over a row that the compiler writes out
#define PREFETCH 0  // rows that are asked for ahead of their use
// kernwright tune: end

namespace ffi = tvm::ffi;

namespace {

constexpr int kLanes = LANES, kUnroll = UNROLL, kPrefetch = PREFETCH;
constexpr int64_t kCacheLine = 64;

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

inline float widen(float value) { return value; }
inline float widen(BFloat16 value) {
  uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}
inline float widen(Float16 value) {
  // Shift exponent and mantissa into place and rescale: right for subnormals too. Inf and NaN keep their exponent full.
  uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  const uint32_t scale_bits = (254u - 15u) << 23;
  float scale, out;
  std::memcpy(&scale, &scale_bits, sizeof(scale));
  std::memcpy(&out, &magnitude, sizeof(out));
  out *= scale;
  uint32_t bits;
  std::memcpy(&bits, &out, sizeof(bits));
  if ((value.bits & 0x7c00u) == 0x7c00u) bits |= 0x7f800000u;
  bits |= static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}

template <typename T>
T narrow(float value);
template <>
inline float narrow<float>(float value) {
  return value;
}
template <>
inline BFloat16 narrow<BFloat16>(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  // Round to nearest, ties to even; a NaN stays a NaN (the carry must not turn it into an infinity).
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40u;
  bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return BFloat16{static_cast<uint16_t>(is_nan ? quiet : rounded)};
}
template <>
inline Float16 narrow<Float16>(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return Float16{static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return Float16{static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Subnormal: adding a half lets the float unit do the rounding at the right place.
    float shifted, half = 0.5f;
    std::memcpy(&shifted, &magnitude, sizeof(shifted));
    shifted += half;
    uint32_t out;
    std::memcpy(&out, &shifted, sizeof(out));
    return Float16{static_cast<uint16_t>(sign | (out - 0x3f000000u))};
  }
  uint32_t odd = (magnitude >> 13) & 1u;
  magnitude += 0xc8000fffu + odd;
  return Float16{static_cast<uint16_t>(sign | (magnitude >> 13))};
}

inline float sum(const float* values, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  float total = 0.f;
  for (; i < count; ++i) total += values[i];
  for (int lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  return total;
}

inline float sum_of_squares(const float* values, float centre, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      float d = values[i + lane] - centre;
      lanes[lane] += d * d;
    }
  float total = 0.f;
  for (; i < count; ++i) total += (values[i] - centre) * (values[i] - centre);
  for (int lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  return total;
}

// A modulation or affine tensor seen from row (b, s): where that row starts, and the step along the last axis.
struct Modulation {
  ffi::TensorView tensor;
  int64_t batch_step = 0, frame_tokens = 1, frame_step = 0, last_step = 0;

  Modulation(ffi::TensorView view, int64_t tokens, int64_t width, const char* name) : tensor(view) {
    const int n = view.ndim();
    auto step = [&](int axis) { return view.size(axis) == 1 ? int64_t{0} : view.stride(axis); };
    if (n == 0) return;
    last_step = step(n - 1);
    if (view.size(n - 1) != 1 && view.size(n - 1) != width)
      TVM_FFI_THROW(ValueError) << name << " has last size " << view.size(n - 1) << ", x has " << width;
    if (n == 2) batch_step = step(0);
    if (n == 3) {
      batch_step = step(0);
      frame_step = step(1);
    }
    if (n == 4) {
      batch_step = step(0);
      frame_step = step(1);
      if (tokens % view.size(1) != 0)
        TVM_FFI_THROW(ValueError) << name << ": " << tokens << " tokens do not divide into " << view.size(1) << " frames";
      frame_tokens = tokens / view.size(1);
    }
    if (n > 4) TVM_FFI_THROW(ValueError) << name << " has " << n << " dimensions";
  }
  int64_t row(int64_t b, int64_t s) const { return b * batch_step + (s / frame_tokens) * frame_step; }
};

template <typename M>
inline void load_row(const Modulation& m, int64_t b, int64_t s, int64_t width, float* out) {
  const M* base = static_cast<const M*>(m.tensor.data_ptr()) + m.row(b, s);
  if (m.last_step == 1) {
    for (int64_t i = 0; i < width; ++i) out[i] = widen(base[i]);
  } else {
    for (int64_t i = 0; i < width; ++i) out[i] = widen(base[i * m.last_step]);
  }
}

void load_any(const Modulation& m, int64_t b, int64_t s, int64_t width, float* out) {
  DLDataType type = m.tensor.dtype();
  if (type.code == kDLFloat && type.bits == 32) return load_row<float>(m, b, s, width, out);
  if (type.code == kDLBfloat && type.bits == 16) return load_row<BFloat16>(m, b, s, width, out);
  if (type.code == kDLFloat && type.bits == 16) return load_row<Float16>(m, b, s, width, out);
  TVM_FFI_THROW(TypeError) << "modulation must be float32, bfloat16 or float16";
}

template <typename T>
void run(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, ffi::Optional<ffi::TensorView> weight,
         ffi::Optional<ffi::TensorView> bias, bool is_rms, float eps, ffi::TensorView y) {
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  Modulation scales(scale, tokens, width, "scale"), shifts(shift, tokens, width, "shift");
  std::vector<float> gain(width), offset(width), value(width), affine_w(width, 1.f), affine_b(width, 0.f);
  if (weight.has_value()) load_any(Modulation(weight.value(), tokens, width, "weight"), 0, 0, width, affine_w.data());
  if (bias.has_value() && !is_rms) load_any(Modulation(bias.value(), tokens, width, "bias"), 0, 0, width, affine_b.data());
  const bool affine = weight.has_value();
  int64_t last_gain = -1, last_offset = -1;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < tokens; ++s) {
      if (int64_t at = scales.row(b, s); at != last_gain) {
        load_any(scales, b, s, width, gain.data());
        for (int64_t i = 0; i < width; ++i) gain[i] = 1.f + gain[i];
        last_gain = at;
      }
      if (int64_t at = shifts.row(b, s); at != last_offset) {
        load_any(shifts, b, s, width, offset.data());
        last_offset = at;
      }
      const T* in = static_cast<const T*>(x.data_ptr()) + b * x.stride(0) + s * x.stride(1);
      T* out = static_cast<T*>(y.data_ptr()) + b * y.stride(0) + s * y.stride(1);
      if (kPrefetch > 0 && s + kPrefetch < tokens) {
        const char* ahead = reinterpret_cast<const char*>(in + kPrefetch * x.stride(1));
        for (int64_t at = 0; at < width * static_cast<int64_t>(sizeof(T)); at += kCacheLine) __builtin_prefetch(ahead + at);
      }
#pragma GCC unroll kUnroll
      for (int64_t i = 0; i < width; ++i) value[i] = widen(in[i]);
      const float mean = is_rms ? 0.f : sum(value.data(), width) / static_cast<float>(width);
      const float variance = sum_of_squares(value.data(), mean, width) / static_cast<float>(width);
      const float inverse = 1.f / std::sqrt(variance + eps);
      if (affine) {
#pragma GCC unroll kUnroll
        for (int64_t i = 0; i < width; ++i)
          out[i] = narrow<T>(((value[i] - mean) * inverse * affine_w[i] + affine_b[i]) * gain[i] + offset[i]);
      } else {
#pragma GCC unroll kUnroll
        for (int64_t i = 0; i < width; ++i) out[i] = narrow<T>((value[i] - mean) * inverse * gain[i] + offset[i]);
      }
    }
  }
}

void norm_scale_shift(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift,
                      ffi::Optional<ffi::TensorView> weight, ffi::Optional<ffi::TensorView> bias, ffi::String norm_type,
                      double eps, ffi::TensorView y) {
  if (x.ndim() != 3) TVM_FFI_THROW(ValueError) << "x must be [B, S, D], it has " << x.ndim() << " dimensions";
  if (x.size(2) > 1 && (x.stride(2) != 1 || y.stride(2) != 1))
    TVM_FFI_THROW(ValueError) << "the last axis of x and y must be contiguous";
  const bool is_rms = norm_type == "rms";
  DLDataType type = x.dtype();
  if (type.code == kDLBfloat && type.bits == 16)
    return run<BFloat16>(x, scale, shift, weight, bias, is_rms, static_cast<float>(eps), y);
  if (type.code == kDLFloat && type.bits == 16)
    return run<Float16>(x, scale, shift, weight, bias, is_rms, static_cast<float>(eps), y);
  if (type.code == kDLFloat && type.bits == 32)
    return run<float>(x, scale, shift, weight, bias, is_rms, static_cast<float>(eps), y);
  TVM_FFI_THROW(TypeError) << "x must be float32, bfloat16 or float16";
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_scale_shift, norm_scale_shift);
