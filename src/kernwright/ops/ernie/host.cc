// The foreign function of one of ERNIE's norms and one dtype on a GPU. It is compiled apart from the kernels, at the same time.

#include "calling.h"
#include "policy.h"

namespace kernwright {

int launch(const Problem& p, const TokenVariant& v, int device, void* stream);

namespace {

struct Call : CallDefaults {
  using Own = Problem;
  static constexpr Parameter<Problem> kParameters[] = {
#if KERNWRIGHT_RESIDUAL
      ARGUMENT(kFirst, residual, x),
      ARGUMENT(kSummand, update, update),
      ARGUMENT(kBroadcast, gate, gate),
#else
      ARGUMENT(kFirst, x, x),
#endif
      ARGUMENT(kRow, weight, weight),
      ARGUMENT(kBroadcast, scale, scale),
      ARGUMENT(kBroadcast, shift, shift),
      ARGUMENT(kNumber, eps, eps),
#if KERNWRIGHT_RESIDUAL
      ARGUMENT(kOutput, residual_out, sum),
#endif
      ARGUMENT(kOutput, y, y),
  };

  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
  static int start(const Problem& p, int device, void* stream) { return launch(p, choose_variant(p), device, stream); }
};

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(KERNWRIGHT_OP, kernwright::call<kernwright::Call>)
KERNWRIGHT_EXPORT(parameters, kernwright::parameters<kernwright::Call>)
