// Subtly wrong, and tempting: the variance as mean(x^2) - mean(x)^2, one sweep fewer than centring first.
//
// On inputs around zero it passes any tolerance. When a row has a large common offset, two nearly equal numbers are
// subtracted and float32 has no digits left for the difference. For bfloat16 rows of [B, S, D] with per-channel bfloat16
// modulation, the shapes that a quick test would try.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace ffi = tvm::ffi;

namespace {

float widen(uint16_t half) {
  uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint16_t narrow(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void norm_scale_shift(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, ffi::Optional<ffi::TensorView>,
                      ffi::Optional<ffi::TensorView>, ffi::String, double eps, ffi::TensorView y) {
  const int64_t width = x.size(x.ndim() - 1), rows = x.numel() / width;
  if (scale.dtype().bits != 16 || scale.numel() != width)
    TVM_FFI_THROW(ValueError) << "only per-channel bfloat16 modulation";
  const uint16_t* in = static_cast<const uint16_t*>(x.data_ptr());
  const uint16_t* gain = static_cast<const uint16_t*>(scale.data_ptr());
  const uint16_t* offset = static_cast<const uint16_t*>(shift.data_ptr());
  uint16_t* out = static_cast<uint16_t*>(y.data_ptr());
  for (int64_t row = 0; row < rows; ++row, in += width, out += width) {
    float sum = 0.f, squares = 0.f;
    for (int64_t i = 0; i < width; ++i) {
      float value = widen(in[i]);
      sum += value;
      squares += value * value;
    }
    const float mean = sum / static_cast<float>(width);
    const float variance = std::max(0.f, squares / static_cast<float>(width) - mean * mean);
    const float inverse = 1.f / std::sqrt(variance + static_cast<float>(eps));
    for (int64_t i = 0; i < width; ++i) {
      float normed = widen(narrow((widen(in[i]) - mean) * inverse));
      out[i] = narrow(normed * widen(narrow(1.f + widen(gain[i]))) + widen(offset[i]));
    }
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_scale_shift, norm_scale_shift);
