// LTX-2's modulated norms on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

#include "ltx2_modulate/kernel.cu"
#include "ltx2_modulate/host.cc"

#include "emulated_call.h"

namespace kernwright {

std::string& latest() {
  static std::string words;
  return words;
}

template <Form kForm>
bool run(ffi::PackedArgs given) {
  return emulated<Call<kForm>>(given, [](const Problem& own) {
    const Variant variant = choose_variant(own);
    latest() = described(own, variant);
    return launch(own, variant, 0, nullptr) == 0;
  });
}

// The variant of the latest call, in words.
ffi::String latest_variant() { return latest(); }

}  // namespace kernwright

KERNWRIGHT_EXPORT(rms_modulate, kernwright::run<kernwright::Form::kOne>)
KERNWRIGHT_EXPORT(dual_modulate, kernwright::run<kernwright::Form::kTwo>)
KERNWRIGHT_EXPORT(rms_modulate_from_table, kernwright::run<kernwright::Form::kOneOfTable>)
KERNWRIGHT_EXPORT(dual_modulate_from_table, kernwright::run<kernwright::Form::kTwoOfTable>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::latest_variant);
