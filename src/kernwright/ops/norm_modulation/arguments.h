// The arguments of norm_scale_shift and residual_norm_scale_shift, for every native kernel of both.

#pragma once

#include "parameters.h"
#include "problem.h"

namespace kernwright {

struct NormCall : CallDefaults {
  using Own = Problem;
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x),
      ARGUMENT(kModulation, scale, scale),
      ARGUMENT(kModulation, shift, shift),
      ARGUMENT(kAffine, weight, weight),
      ARGUMENT(kBias, bias, bias),
      ARGUMENT(kNormType, norm_type, is_rms),
      ARGUMENT(kNumber, eps, eps),
      ARGUMENT(kOutput, y, y),
  };
};

struct ResidualNormCall : CallDefaults {
  using Own = Problem;
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x),
      ARGUMENT(kTokens, residual, residual),
      ARGUMENT(kModulation, scale, scale),
      ARGUMENT(kModulation, shift, shift),
      OPTIONAL_ARGUMENT(kModulation, gate, gate),
      ARGUMENT(kAffine, weight, weight),
      ARGUMENT(kBias, bias, bias),
      ARGUMENT(kNormType, norm_type, is_rms),
      ARGUMENT(kNumber, eps, eps),
      ARGUMENT(kOutput, y, y),
      ARGUMENT(kOutput, res_out, sum),
  };

  template <typename Given>
  static bool begin(Problem* start, const Given&) {
    start->has_residual = true;
    return true;
  }
};

#ifdef KERNWRIGHT_RESIDUAL
using Listed = std::conditional_t<KERNWRIGHT_RESIDUAL, ResidualNormCall, NormCall>;
#endif

}  // namespace kernwright
