// Arguments of ernie_residual_gate, as the kernels of scale_shift and its kin take them: the update is x, the gate the scale,
// the residual the shift. Nothing is rounded but the result, which is what those kernels do unless they are told to round.

#pragma once

#include "problem.h"
#include "reader.h"

namespace kernwright {

inline bool read_ernie_residual_gate(Problem* p, int32_t device_type, ffi::TensorView residual, ffi::TensorView update,
                                     ffi::TensorView gate, ffi::TensorView out) {
  Reader reader(p, residual, device_type, "residual");
  p->result = p->type;
  reader.broadcast(residual, &p->shift, "residual");
  reader.broadcast(update, &p->scale, "update");  // for what is wrong with it
  p->scale = {};
  bool is_alike = update.ndim() == residual.ndim();
  for (int i = 0; is_alike && i < update.ndim(); ++i) is_alike = update.size(i) == residual.size(i);
  if (!is_alike) return false;  // the reference would broadcast them
  reader.tokens(update, &p->x, "update");
  reader.broadcast(gate, &p->scale, "gate");
  reader.tokens(out, &p->y, "out", true);
  return reader.takes();
}

}  // namespace kernwright
