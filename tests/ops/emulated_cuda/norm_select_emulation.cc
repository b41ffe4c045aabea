// norm_modulation's kernels that select a modulation on a CPU, behind the same checks as on a GPU.

#include <cuda_runtime.h>

#include "norm_modulation/select_kernel.cu"
#include "norm_modulation/select_host.cc"

#include "token_emulation.h"

KERNWRIGHT_EXPORT(run, kernwright::emulated_call<kernwright::Call, kernwright::Family>)
KERNWRIGHT_EXPORT(kernels_left, kernwright::kernels_left<kernwright::Family>)
