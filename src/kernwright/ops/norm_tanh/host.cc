// The foreign function of one op and dtype on a GPU. It is compiled apart from the kernels, at the same time.

#include "calling.h"
#include "policy.h"

namespace kernwright {

int launch(const Problem& p, const TokenVariant& v, int device, void* stream);

namespace {

struct Call : CallDefaults {
  using Own = Problem;
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x),
      ARGUMENT(kModulation, scale, scale),
      ARGUMENT(kModulation, shift, shift),
#if KERNWRIGHT_TWICE
      ARGUMENT(kModulation, scale2, scale2),
#endif
      ARGUMENT(kAffine, weight, weight),
      ARGUMENT(kBias, bias, bias),
#if KERNWRIGHT_TWICE
      ARGUMENT(kAffine, weight2, weight2),
      ARGUMENT(kBias, bias2, bias2),
#endif
      ARGUMENT(kNormType, norm_type, is_rms),
      ARGUMENT(kNumber, eps, eps),
      ARGUMENT(kOutput, y, y),
#if KERNWRIGHT_TWICE
      ARGUMENT(kOutput, y2, y2),
#endif
  };

  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
  static TokenVariant choose(const Problem& p) { return choose_variant(p); }
  static int start(const Problem& p, int device, void* stream) { return launch(p, choose(p), device, stream); }
  static std::string describe(const Problem& p) {
    const TokenVariant v = choose(p);
    const bool may_keep = KERNWRIGHT_TWICE && p.type != Type::kFloat32 && may_keep_gains(p, v);
    return described(v, shapes_of<Type::KERNWRIGHT_TYPE>()) + (may_keep ? "; of many tokens: gains kept by a block" : "");
  }
};

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(KERNWRIGHT_OP, kernwright::call<kernwright::Call>)
KERNWRIGHT_EXPORT(variant, kernwright::variant<kernwright::Call>)
KERNWRIGHT_EXPORT(parameters, kernwright::parameters<kernwright::Call>)
