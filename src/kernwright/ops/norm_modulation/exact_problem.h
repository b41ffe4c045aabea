// ExactProblem: a call of norm_scale_shift or residual_norm_scale_shift that asks for the bits of the eager chain, and where that
// chain rounds; LayerNorm without weight and bias alone.
//
// By torch's rules of promotion: 1 + scale rounds in scale's own dtype. A product rounds in x's, if its factor has it too, or
// is one number without an axis; else in float32, which holds any two dtypes. The sum would be rounded to x's dtype, the
// summand's or float32 and then to x's: of the two only the last can change a bit, so one rounding is both. The norm rounds to
// x's dtype, as does the sum with the residual ahead of it.

#pragma once

#include "problem.h"

namespace kernwright {

// Of one product: `factor * value`, whatever is added then.
struct Product {
  bool is_rounded = false;      // to x's dtype
  bool is_factor_cast = false;  // to x's dtype: on a GPU a number without an axis is, before its use
};

struct ExactProblem : Problem {
  Product modulated, gated;
  bool is_shift_cast = false;  // to x's dtype, as a factor is
};

inline Product product_of(const Modulation& factor, bool is_number, Type type) {
  Product own;
  const bool is_half = type != Type::kFloat32;
  own.is_rounded = is_half && (is_number || factor.type == type);
  own.is_factor_cast = is_half && is_number && factor.type != type;
  return own;
}

}  // namespace kernwright
