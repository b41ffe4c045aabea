// norm_tanh's kernels on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

#include "norm_tanh/kernel.cu"
#include "norm_tanh/host.cc"

#include "token_emulation.h"

KERNWRIGHT_EXPORT(run, kernwright::emulated_call<kernwright::Call, kernwright::Family>)
KERNWRIGHT_EXPORT(kernels_left, kernwright::kernels_left<kernwright::Family>)
