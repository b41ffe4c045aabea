// The foreign functions layer_norm and rms_norm for one dtype on a GPU. RMS norms of narrow rows have a kernel in kernel.cu. All
// other kernels are those of norm_scale_shift, compiled without a modulation: see norm_modulation/kernel.cu for their contract.
// Bytes per row: 2 D s for D elements of s bytes. Share of a copy's bandwidth: judged row by row, see tasks/norm_infer/RESULTS.md.

#include "calling.h"
#include "norm_modulation/policy.h"
#include "policy.h"
#include "rows.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);
int launch_narrow(const NarrowRows& rows, const NarrowVariant& v, int device, void* stream);

namespace {

struct RmsCall {
  using Own = Problem;
  static constexpr bool kIsRms = true;
  static constexpr Parameter<Problem> kParameters[] = {ARGUMENT(kFirst, x, x), ARGUMENT(kAffine, weight, weight),
                                                       ARGUMENT(kNumber, eps, eps), ARGUMENT(kOutput, y, y)};
  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
};

struct LayerCall : RmsCall {
  static constexpr bool kIsRms = false;
  static constexpr Parameter<Problem> kParameters[] = {ARGUMENT(kFirst, x, x), ARGUMENT(kAffine, weight, weight),
                                                       ARGUMENT(kAffine, bias, bias), ARGUMENT(kNumber, eps, eps),
                                                       ARGUMENT(kOutput, y, y)};
};

template <typename Call, typename Run>
bool each_row_of(ffi::PackedArgs given, int32_t device_type, const Run& run) {
  Problem problem;
  const auto arguments = take(Call::kParameters, given, &problem);
  problem.is_rms = Call::kIsRms;
  return each_run<Call>(problem, device_type, arguments, run);
}

template <typename Call>
bool norm(ffi::PackedArgs given) {
  const DLDevice device = device_of<Call>(given);
  return each_row_of<Call>(given, kDLCUDA, [&](const Problem& own) {
    const NarrowVariant narrow = choose_narrow(own);
    launch_for_caller(device, [&](int number, void* stream) {
      return narrow.vectors > 0 ? launch_narrow(narrow_rows_of(own), narrow, number, stream)
                                : launch(own, choose_variant(own), number, stream);
    });
  });
}

// What a call would launch, in words, a line each; of tensors on any device, since nothing is launched.
template <typename Call>
ffi::String norm_variant(ffi::PackedArgs given) {
  std::string words;
  const bool takes = each_row_of<Call>(given, device_of<Call>(given).device_type, [&](const Problem& own) {
    const NarrowVariant narrow = choose_narrow(own);
    words += (words.empty() ? "" : "\n") + std::to_string(own.batches) + " x " + std::to_string(own.tokens) + " " +
             (narrow.vectors > 0 ? described(narrow) : described(own, choose_variant(own)));
  });
  return takes ? words : "none";
}

}  // namespace
}  // namespace kernwright

#ifndef KERNWRIGHT_EMULATED  // tests export the same names for a CPU
KERNWRIGHT_EXPORT(layer_norm, kernwright::norm<kernwright::LayerCall>)
KERNWRIGHT_EXPORT(rms_norm, kernwright::norm<kernwright::RmsCall>)
KERNWRIGHT_EXPORT(variant, kernwright::norm_variant<kernwright::LayerCall>)
KERNWRIGHT_EXPORT(rms_variant, kernwright::norm_variant<kernwright::RmsCall>)
KERNWRIGHT_EXPORT(layer_norm_parameters, kernwright::parameters<kernwright::LayerCall>)
KERNWRIGHT_EXPORT(rms_norm_parameters, kernwright::parameters<kernwright::RmsCall>)
#endif
