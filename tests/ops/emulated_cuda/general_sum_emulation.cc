// general_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#pragma GCC optimize("O0")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include "general_kernel.cu"

#include "general_host.cc"  // on tensors of a CPU it launches nothing
#include "token_emulation.h"

namespace kernwright {

const char* error_text(int) { return "an error"; }

template <typename Family>
std::string run_of(const GeneralSum& p, bool only_chooses) {
  const TokenVariant variant = chosen<Family>(choose_variant(p));
  if (!only_chooses) launch(p, variant, 0, nullptr);
  return described(variant, Family::kShapes);
}

// Answers in words what it ran, a line for each launch: "none" if it did not take the call. Nothing is computed if it
// `only_chooses`.
ffi::String run(ffi::TensorView x, MaybeTensor residual, MaybeTensor weight, MaybeTensor bias, MaybeTensor second,
                MaybeTensor row_scale, bool is_rms, double eps, ffi::TensorView y, ffi::TensorView sum, bool only_chooses) {
  std::string ran;
  auto own = [&](GeneralSum* p) {
    if (p->type != Type::KERNWRIGHT_TYPE) return false;
    if (is_empty(*p)) return ran = "nothing", true;
    fold_batches(p);
    ran += (ran.empty() ? "" : "\n") + std::to_string(p->batches) + " x " + std::to_string(p->tokens) + " ";
    ran += with_family(*p, [&](auto family) { return run_of<decltype(family)>(*p, only_chooses); });
    return true;
  };
  return each_sum(kDLCPU, {x, residual, second, row_scale, y, sum}, {weight, bias, is_rms, eps}, own) ? ran : "none";
}

ffi::String kernels_left() {
  std::string lines;
  for (const Type total : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const bool is_rms : {false, true}) {
      GeneralSum p;
      p.type = Type::KERNWRIGHT_TYPE, p.total = total, p.is_rms = is_rms;
      lines += with_family(p, [](auto family) { return left<decltype(family)>(); });
    }
  return lines;
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, kernwright::run);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_general, kernwright::run_general);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernels_left, kernwright::kernels_left);
