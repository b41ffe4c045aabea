// The `device` metric of native code on a CPU: a block of calls with no Python between them.
//
// `kernel` is the exported function of the side, `slots` its arguments (outputs last), `order` the slots to call with.

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

namespace ffi = tvm::ffi;

namespace {

constexpr int kMostArguments = 64;

void run(ffi::Function kernel, ffi::Array<ffi::Array<ffi::Any>> slots, ffi::TensorView order) {
  const int64_t* index = static_cast<const int64_t*>(order.data_ptr());
  for (int64_t call = 0; call < order.numel(); ++call) {
    ffi::Array<ffi::Any> slot = slots[index[call]];
    if (slot.size() > kMostArguments) TVM_FFI_THROW(ValueError) << "more than " << kMostArguments << " arguments";
    ffi::AnyView arguments[kMostArguments];
    int32_t count = 0;
    for (const ffi::Any& argument : slot) arguments[count++] = argument;
    ffi::Any result;
    kernel.CallPacked(arguments, count, &result);
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
