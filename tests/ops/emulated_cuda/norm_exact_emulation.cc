// norm_modulation's exact kernels on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

#include <set>

#include "norm_modulation/exact_kernel.cu"
#include "norm_modulation/exact_host.cc"

#include "emulated_call.h"

namespace kernwright {

// Shapes that no call so far came by, in the tables of every dtype: choosing looks at no content and at no kernel.
std::set<const ExactShape*>& unchosen() {
  static std::set<const ExactShape*> found;
  static const bool is_filled = [] {
    for (const Type type : {Type::kFloat32, Type::kBFloat16}) {
      const ExactShapes shapes = exact_shapes_of(type, kResidual);
      for (int i = 0; i < shapes.count; ++i) found.insert(shapes.first + i);
    }
    return true;
  }();
  (void)is_filled;
  return found;
}

std::string& latest() {
  static std::string words;
  return words;
}

bool run(ffi::PackedArgs given) {
  return emulated_or_chosen<Call>(given, [](const ExactProblem& own, bool only_chooses) {
    const ExactVariant variant = choose_variant(own);
    if (variant.shape >= 0) unchosen().erase(exact_shapes_of(own.type, own.has_residual).first + variant.shape);
    latest() = described(own, variant);
    return only_chooses || (own.type == kType && launch(own, variant, 0, nullptr) == 0);
  });
}

// The variant of the latest call, in words.
ffi::String latest_variant() { return latest(); }

// How many shapes no call so far came by.
int64_t shapes_left() { return static_cast<int64_t>(unchosen().size()); }

}  // namespace kernwright

KERNWRIGHT_EXPORT(run, kernwright::run)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::latest_variant);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(shapes_left, kernwright::shapes_left);
