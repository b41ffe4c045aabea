// norm_tanh's kernels on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

#include "norm_tanh/kernel.cu"
#include "norm_tanh/host.cc"

#include "token_emulation.h"

namespace kernwright {
namespace {

// Whether a call runs the kernel that keeps gains, on the one processor of the emulation.
bool keeps_gains(ffi::PackedArgs given) {
  bool keeps = false;
  each<Call>(given, kDLCPU, [&](Problem* own) {
    part(own);
    keeps = Family::kNorms == 2 && own->type != Type::kFloat32 && may_keep_gains(*own, Call::choose(*own)) &&
            blocks_of_kept(*own, 1) > 0;
    return true;
  });
  return keeps;
}

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(run, kernwright::emulated_call<kernwright::Call, kernwright::Family>)
KERNWRIGHT_EXPORT(kernels_left, kernwright::kernels_left<kernwright::Family>)
KERNWRIGHT_EXPORT(keeps_gains, kernwright::keeps_gains)
