// The foreign function of one op and dtype on a GPU. It is compiled apart from the kernels, at the same time.

#include "arguments.h"
#include "calling.h"
#include "policy.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);

namespace {

struct Call : Listed {
  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
  static int start(const Problem& p, int device, void* stream) { return launch(p, choose_variant(p), device, stream); }
  static std::string describe(const Problem& p) {
    const std::string words = described(p, choose_variant(p));
    return p.batches > 1 ? words + ", " + std::to_string(p.batches) + " batches" : words;
  }
};

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(KERNWRIGHT_OP, kernwright::call<kernwright::Call>)
KERNWRIGHT_EXPORT(variant, kernwright::variant<kernwright::Call>)
KERNWRIGHT_EXPORT(parameters, kernwright::parameters<kernwright::Call>)
