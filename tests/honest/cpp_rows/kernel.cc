// Honest: one pass a row in C++, into the output that it is given.

#include <cmath>
#include <cstdint>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

namespace ffi = tvm::ffi;

void mix(ffi::TensorView x, ffi::TensorView w, double eps, ffi::TensorView y) {
  const int64_t rows = x.size(0), width = x.size(1);
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* weight = static_cast<const float*>(w.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t r = 0; r < rows; ++r, in += width, out += width) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += in[i];
    mean /= width;
    for (int64_t i = 0; i < width; ++i) variance += (in[i] - mean) * (in[i] - mean);
    const double inverse = 1 / std::sqrt(variance / width + eps);
    for (int64_t i = 0; i < width; ++i) {
      out[i] = static_cast<float>(std::tanh((in[i] - mean) * inverse * (1 + weight[i])));
    }
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mix, mix);
