// Problem: one call of scale_shift, residual_gate or broadcast_add, as every native kernel of the family takes it, or of
// ernie_residual_gate, which is residual_gate with no rounding but the last one:
//
//   y = x * (constant + scale) + shift        scale_shift
//   out = update * gate + residual            residual_gate: x is the update, scale the gate, shift the residual; or, where
//                                             the residual has another half-width dtype than the update or is narrower,
//                                             crossed: x is the residual, shift the update
//   out = a + b                               broadcast_add: x is one, shift the other; there is no scale
//
// Where the eager chain rounds, in torch's rules of promotion. constant + scale: in scale's dtype. The product: in x's (or,
// crossed, in shift's), if scale has it too, or is one number without an axis; else in float32, which holds any two dtypes. The
// sum would be rounded to x's, shift's or float32 and then to y's: of the two only the last can change a bit, so one rounding
// is both.

#pragma once

#include "tensors.h"

namespace kernwright {

struct Problem : Extent {  // its type is x's
  Type result = Type::kFloat32;
  Tokens x, y;
  Modulation scale, shift;
  bool adds_constant = false;
  float constant = 0.f;
  bool is_crossed = false;          // x + shift * scale
  bool is_product_rounded = false;  // to x's dtype, or, crossed, to shift's, as below
  bool is_scale_cast = false, is_shift_cast = false;  // to x's dtype: on a GPU a number without an axis is, before its use
};

}  // namespace kernwright
