// overlaps.h as it is: it needs no GPU.

#include "overlaps.h"

#include <tvm/ffi/function.h>

TVM_FFI_DLL_EXPORT_TYPED_FUNC(overlaps_itself, kernwright::overlaps_itself);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(share_memory, kernwright::share_memory);
