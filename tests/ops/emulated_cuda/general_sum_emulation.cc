// residual_norm's kernels for all forms on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

#include "residual_norm/kernel.cu"

#include "residual_norm/host.cc"  // with its exports: on tensors of a CPU they launch nothing
#include "token_emulation.h"

namespace kernwright {

const char* error_text(int) { return "an error"; }
int launch(const Problem&, const Variant&, int, void*) { return 0; }
int launch_sum(const Problem&, int, int, void*) { return 0; }

template <typename Family>
std::string run_of(const GeneralSum& p, bool only_chooses) {
  const TokenVariant variant = chosen<Family>(choose_variant(p));
  if (!only_chooses) launch(p, variant, 0, nullptr);
  return described(variant, Family::kShapes);
}

// Runs a call and returns in words what it ran, a line for each launch: "none" if it was not taken. The last argument, behind those
// of add_norm, is whether it only chooses and computes nothing.
ffi::String run(ffi::PackedArgs given) {
  std::string ran;
  GeneralOwn start;
  const int count = given.size() - 1;
  const bool only_chooses = given[count].cast<bool>();
  const General of = take(GeneralCall::kParameters, given.Slice(0, count), &start);
  const bool takes = each_general(of, start, kDLCPU, [&](GeneralOwn* own) {
    if (!GeneralCall::is_compiled(*own)) return false;
    if (is_empty(*own)) return ran = "nothing", true;
    part(own);
    ran += (ran.empty() ? "" : "\n") + std::to_string(own->batches) + " x " + std::to_string(own->tokens) + " ";
    ran += with_family(*own, [&](auto family) { return run_of<decltype(family)>(*own, only_chooses); });
    return true;
  });
  return takes ? ran : "none";
}

ffi::String all_kernels_left() {
  std::string lines;
  for (const Type total : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const bool is_rms : {false, true}) {
      GeneralSum p;
      p.type = Type::KERNWRIGHT_TYPE, p.total = total, p.is_rms = is_rms;
      lines += with_family(p, [](auto family) { return std::string(kernels_left<decltype(family)>(ffi::PackedArgs(nullptr, 0))); });
    }
  return lines;
}

}  // namespace kernwright

KERNWRIGHT_EXPORT(run, kernwright::run)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernels_left, kernwright::all_kernels_left);
