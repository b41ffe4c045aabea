// ERNIE's norms on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

#include "ernie/kernel.cu"
#include "ernie/host.cc"

#include "emulated_call.h"

namespace kernwright {

bool run(ffi::PackedArgs given) {
  return emulated<Call>(given, [](const Problem& own) { return launch(own, choose_variant(own), 0, nullptr) == 0; });
}

}  // namespace kernwright

KERNWRIGHT_EXPORT(run, kernwright::run)
