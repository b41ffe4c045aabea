// Problem: one call of norm_scale_shift or residual_norm_scale_shift, as every native kernel of the family takes it.
//
// Plain data, as the tensors in it are. What every kernel asks for first stands first: a GPU fetches its arguments a line at
// a time, and a thread waits for each line that it meets.

#pragma once

#include "tensors.h"

namespace kernwright {

struct Problem : Extent {  // its type is that of x, residual and both outputs
  bool is_rms = false, has_residual = false;
  float eps = 0.f;
  Tokens x;
  Modulation scale, shift;
  Tokens y;
  Tokens residual, sum;  // sum: residual + gate * x, the second output
  Modulation gate, weight, bias;
};

}  // namespace kernwright
