// Problem: one call of rms_modulate, dual_modulate, or either from table and timestep:
//
//   y = rms(x) * (1 + scale) + shift      for one pair of scale and shift, or for two of the same norm
//
// Results are float32. 1 + scale rounds in scale's own dtype; where scale and shift are sums of a timestep's row and a
// table's, these round before that in the dtype that holds both, and 1 + scale rounds in it too. All else is float32.

#pragma once

#include "tensors.h"

namespace kernwright {

enum class Form { kOne, kTwo, kOneOfTable, kTwoOfTable };

constexpr bool is_of_table(Form form) { return form == Form::kOneOfTable || form == Form::kTwoOfTable; }
constexpr int results_of(Form form) { return form == Form::kOne || form == Form::kOneOfTable ? 1 : 2; }

struct Pair {
  Modulation scale, shift;
  Modulation table_scale, table_shift;  // of a table alone: what is added to them
};

struct Problem : Extent {  // its type is x's
  Form form = Form::kOne;
  float eps = 0.f;
  Type sum = Type::kFloat32;  // of a table alone: the dtype of its sums
  Tokens x, y[2];
  Pair pairs[2];
};

}  // namespace kernwright
