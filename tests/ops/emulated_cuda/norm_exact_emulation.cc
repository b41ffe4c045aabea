// exact_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#pragma GCC optimize("O0")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include "exact_kernel.cu"

#include <set>

#include "exact_arguments.h"
#include "norm_call.h"

namespace kernwright {

// Of all tables, whatever is compiled here: to choose looks at no content, and at no kernel.
std::set<const ExactShape*>& unchosen() {
  static std::set<const ExactShape*> found;
  static const bool is_filled = [] {
    for (const Type type : {Type::kFloat32, Type::kBFloat16})
      for (const bool has_residual : {false, true}) {
        const ExactShapes shapes = exact_shapes_of(type, has_residual);
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

struct Kernels {
  using Problem = ExactProblem;
  template <typename... Given>
  static bool each(const Given&... given) {
    return kernwright::each_exact(given...);
  }

  static bool run(const Problem& problem, bool only_chooses) {
    const ExactVariant variant = choose_variant(problem);
    if (variant.shape >= 0) unchosen().erase(exact_shapes_of(problem.type, problem.has_residual).first + variant.shape);
    latest() = described(problem, variant);
    if (only_chooses) return true;
    return problem.type == kType && problem.has_residual == kResidual && launch(problem, variant, 0, nullptr) == 0;
  }
};

// Of the latest call, in words.
ffi::String variant() { return latest(); }

// How many shapes no call so far came by.
int64_t shapes_left() { return static_cast<int64_t>(unchosen().size()); }

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, kernwright::call_norm<kernwright::Kernels>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(shapes_left, kernwright::shapes_left);
