// The foreign function of one op and dtype on a GPU with the bits of the eager chain.
//
// Beside what every kernel of the family refuses, it refuses what torch itself norms in another order than these kernels:
// tokens of no multiple of four channels, and tokens that torch would read in place, from an address that is not one of four
// elements. Tokens that lie apart are copied by torch first, and so is the sum with a residual.

#include "arguments.h"
#include "calling.h"
#include "exact_policy.h"

namespace kernwright {

int launch(const ExactProblem& p, const ExactVariant& v, int device, void* stream);

namespace {

struct ExactOwn : ExactProblem {
  bool is_copied = false;  // torch copies x before it norms it
};

bool lies_dense(ffi::TensorView own) {
  int64_t step = 1;
  for (int axis = own.ndim() - 1; axis >= 0; --axis) {
    if (own.size(axis) == 1) continue;
    if (own.stride(axis) != step) return false;
    step *= own.size(axis);
  }
  return true;
}

struct Call : Listed {
  using Own = ExactOwn;

  template <typename Given>
  static bool begin(ExactOwn* start, const Given& given) {
    start->is_copied = KERNWRIGHT_RESIDUAL || !lies_dense(given.first());  // of all of x: a part may lie dense by itself
    return Listed::begin(start, given) && !start->is_rms && !given.maybe("weight").has_value();
  }

  template <typename Given>
  static void finish(ExactOwn* p, Reader* reader, const Given& given) {
    if (!reader->takes()) return;
    const auto address = reinterpret_cast<uintptr_t>(given.first().data_ptr());
    if (p->width % kGroup != 0 || (!p->is_copied && address % (kGroup * bytes_of(p->type)) != 0)) return reader->refuse();
    p->modulated = product_of(p->scale, given["scale"].ndim() == 0, p->type);
    p->is_shift_cast = p->modulated.is_rounded && given["shift"].ndim() == 0 && p->shift.type != p->type;
    if (p->gate.data) p->gated = product_of(p->gate, given["gate"].ndim() == 0, p->type);
  }

  static bool is_compiled(const ExactProblem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
  static int start(const ExactProblem& p, int device, void* stream) {
    return launch(p, choose_variant(p), device, stream);
  }
};

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(KERNWRIGHT_OP, kernwright::call<kernwright::Call>)
KERNWRIGHT_EXPORT(parameters, kernwright::parameters<kernwright::Call>)
