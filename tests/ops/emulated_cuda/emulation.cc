// norm_modulation's kernels on a CPU, behind the same checks and the same choice of a variant as on a GPU, but for the sizes
// from which a call counts as large.

#include <cuda_runtime.h>

#include "norm_modulation/kernel.cu"

#include <map>

#include "emulated_call.h"
#include "norm_modulation/arguments.h"

namespace kernwright {

constexpr Thresholds kThresholds{1000, 4};

// Each module's own: a static of an inline function would be one for all modules that a process has loaded.
namespace {

const void* address_of(const Variant& v) {
  const BriefKernel brief = brief_kernel_of(v);
  if (v.kind == Kind::kShared) return reinterpret_cast<const void*>(shared_rows_of(v.shape));
  return brief ? reinterpret_cast<const void*>(brief) : reinterpret_cast<const void*>(kernel_of(v));
}

// Each kernel that is compiled, with a word for it; they are found by asking for every variant there could be.
std::map<const void*, std::string>& unchosen() {
  static std::map<const void*, std::string> found;
  static const bool is_filled = [] {
    for (const Kind kind :
         {Kind::kLean, Kind::kShifted, Kind::kShared, Kind::kHeld, Kind::kSmall, Kind::kOdd, Kind::kStreamed}) {
      const int shapes = kind == Kind::kLean      ? lean_shapes_of(kResidual).count
                         : kind == Kind::kShared  ? static_cast<int>(std::size(kSharedShapes))
                         : kind == Kind::kShifted ? shifted_shapes_of(kResidual).count
                                                  : shapes_of(kType, kResidual).count;
      for (const int vector : {1, kWidestVector})
        for (int shape = 0; shape < shapes; ++shape)
          for (const int lanes : {8, 16, 32, 256, 512})
            for (const int tokens : {1, 2})
              for (const bool is_gated : {false, true}) {
                Problem p;
                p.type = kType;
                p.has_residual = kResidual;
                Variant v;
                v.kind = kind, v.vector = vector, v.shape = shape, v.lanes = lanes, v.tokens = tokens;
                v.is_gated = is_gated;
                if (kind == Kind::kHeld) v.rows = shapes_of(kType, kResidual).first[shape].rows;
                if (const void* kernel = address_of(v)) found.emplace(kernel, described(p, v) + (is_gated ? ", gated" : ""));
              }
    }
    return true;
  }();
  (void)is_filled;
  return found;
}

Variant chosen(const Problem& p) {
  const Variant variant = choose_variant(p, kThresholds);
  unchosen().erase(address_of(variant));
  return variant;
}

}  // namespace

bool run(ffi::PackedArgs given) {
  return emulated_or_chosen<Listed>(given, [](const Problem& own, bool only_chooses) {
    const Variant variant = chosen(own);
    return only_chooses || launch(own, variant, 0, nullptr) == 0;
  });
}

// The compiled kernels that no call so far came by, a line each.
ffi::String kernels_left() {
  std::string lines;
  for (const auto& [kernel, words] : unchosen()) lines += words + "\n";
  return lines;
}

}  // namespace kernwright

KERNWRIGHT_EXPORT(run, kernwright::run)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernels_left, kernwright::kernels_left);
