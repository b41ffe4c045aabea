// The norms alone on a CPU: the same kernels without a modulation, over rows of any leading axes.

#include "emulation.cc"

#include <set>

#include "plain_norm/kernel.cu"

// The exports of host.cc launch on a GPU alone; those below have their names.
#define KERNWRIGHT_EMULATED
#include "plain_norm/host.cc"

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

template <typename Call>
bool norm_here(ffi::PackedArgs given) {
  return each_row_of<Call>(given, kDLCPU, [](const Problem& own) {
    const NarrowVariant narrow = choose_narrow(own, kBytesToSpreadHere);
    if (narrow.vectors > 0) {
      narrow_ones().insert(described(narrow));
      launch_narrow(narrow_rows_of(own), narrow, 0, nullptr);
    } else {
      launch(own, chosen(own), 0, nullptr);
    }
  });
}

}  // namespace kernwright

KERNWRIGHT_EXPORT(layer_norm, kernwright::norm_here<kernwright::LayerCall>)
KERNWRIGHT_EXPORT(rms_norm, kernwright::norm_here<kernwright::RmsCall>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(narrow_reached, kernwright::narrow_reached);
