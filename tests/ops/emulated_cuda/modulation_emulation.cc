// The kernels of scale_shift and its kin on a CPU, behind the same checks and the same folds as on a GPU.

#include <cuda_runtime.h>

#include <set>

#include "modulation/kernel.cu"

// The exports of host.cc launch on a GPU alone; those below have their names.
#define KERNWRIGHT_EMULATED
#include "modulation/host.cc"

#include "emulated_call.h"

namespace kernwright {

std::set<FlatKernel>& reached() {
  static std::set<FlatKernel> kernels;
  return kernels;
}

// The compiled kernels for dense tokens that no call so far came by, a line each.
ffi::String kernels_left() {
  std::string lines;
  Problem of;
  of.type = kType, of.result = kResult;
  for (int pair = 0; pair < kPairs; ++pair)
    for (const bool is_ragged : {false, true}) {
      const FlatVariant v{pair, is_ragged};
      if (!reached().count(flat_kernel_of(v))) lines += described(of, v) + "\n";
    }
  return lines;
}

bool run(const Problem& own) {
  const Variant variant = choose_variant(own, 1);
  if (variant.flat.pair >= 0) reached().insert(flat_kernel_of(variant.flat));
  return launch_here(own, variant, nullptr) == cudaSuccess;
}

// As residual_gate, but only the result is rounded.
bool late_residual_gate(ffi::PackedArgs given) {
  return emulated<ResidualGate>(given, [](Problem own) {
    own.is_product_rounded = false;
    return run(own);
  });
}

template <typename Call>
bool run_call(ffi::PackedArgs given) {
  return emulated<Call>(given, run);
}

}  // namespace kernwright

KERNWRIGHT_EXPORT(late_residual_gate, kernwright::late_residual_gate)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernels_left, kernwright::kernels_left);
KERNWRIGHT_EXPORT(scale_shift, kernwright::run_call<kernwright::ScaleShift>)
KERNWRIGHT_EXPORT(residual_gate, kernwright::run_call<kernwright::ResidualGate>)
KERNWRIGHT_EXPORT(ernie_residual_gate, kernwright::run_call<kernwright::ErnieResidualGate>)
KERNWRIGHT_EXPORT(broadcast_add, kernwright::run_call<kernwright::BroadcastAdd>)
