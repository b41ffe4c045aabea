// The norms alone on a CPU: the same kernels without a modulation, over rows of any leading axes.

#include "emulation.cc"

#include <set>

#include "narrow_rows.cu"
#include "rows.h"

namespace kernwright {

constexpr int64_t kBytesToSpreadHere = 20 << 10;

std::set<std::string>& narrow_ones() {
  static std::set<std::string> words;
  return words;
}

// What narrow rows came by so far, a line each.
ffi::String narrow_reached() {
  std::string lines;
  for (const std::string& own : narrow_ones()) lines += own + "\n";
  return lines;
}

bool norm(ffi::TensorView x, MaybeTensor weight, MaybeTensor bias, bool is_rms, double eps, ffi::TensorView y) {
  Problem problem;
  NormedRows rows = read_norm_rows(&problem, kDLCPU, x, weight, bias, is_rms, eps, y);
  if (!rows.takes()) return false;
  rows.each([](const Problem& own) {
    const NarrowVariant narrow = choose_narrow(own, kBytesToSpreadHere);
    if (narrow.vectors > 0) {
      narrow_ones().insert(described(narrow));
      launch_narrow(narrow_rows_of(own), narrow, 0, nullptr);
    } else {
      launch(own, chosen(own), 0, nullptr);
    }
  });
  return true;
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm, kernwright::norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(narrow_reached, kernwright::narrow_reached);
