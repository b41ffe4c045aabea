// Which of a family's kernels (token_norm.cuh) calls came by, for emulations of the families that have them.

#pragma once

#include <map>
#include <string>

#include "calling.h"
#include "token_norm.cuh"

namespace kernwright {

// Each kernel that is compiled, with a word for it; they are found by asking for every variant there could be.
template <typename Family>
std::map<TokenKernel<Family>, std::string>& unchosen() {
  static std::map<TokenKernel<Family>, std::string> found;
  static const bool is_filled = [] {
    for (const TokenKind kind : {TokenKind::kHeld, TokenKind::kSmall, TokenKind::kStreamed})
      for (const int vector : {1, kWidestOf<Family::kType>})
        for (int shape = 0; shape < kShapesOf<Family>; ++shape) {
          const TokenVariant v{kind, vector, shape};
          found.emplace(token_kernel_of<Family>(v), described(v, Family::kShapes));
        }
    return true;
  }();
  (void)is_filled;
  return found;
}

template <typename Family>
TokenVariant chosen(const TokenVariant& variant) {
  unchosen<Family>().erase(token_kernel_of<Family>(variant));
  return variant;
}

// Runs a call on a CPU and returns in words what it ran: "none" if it was not taken. The last argument, behind those of the op,
// is whether it only chooses and computes nothing.
template <typename Call, typename Family>
ffi::String emulated_call(ffi::PackedArgs given) {
  std::string ran = "none";
  const bool only_chooses = given[given.size() - 1].template cast<bool>();
  each<Call>(given.Slice(0, given.size() - 1), kDLCPU, [&](typename Call::Own* own) {
    if (is_empty(*own)) return ran = "nothing", true;
    part(own);
    const TokenVariant variant = chosen<Family>(Call::choose(*own));
    if (!only_chooses) launch(*own, variant, 0, nullptr);
    return ran = described(variant, Family::kShapes), true;
  });
  return ran;
}

// The compiled kernels that no call so far came by, a line each.
template <typename Family>
ffi::String kernels_left(ffi::PackedArgs) {
  std::string lines;
  for (const auto& [kernel, words] : unchosen<Family>()) lines += words + "\n";
  return lines;
}

}  // namespace kernwright
