// What wrappers are compiled behind; precompiled with MENAGERIE_DEVICE, torch's shims of a device.
//
// Torch's own header of a model includes files, clocks, threads and regular expressions. A compiler
// instantiates what their inline functions need, anew for each wrapper, and wrappers call none of
// them: that was half of the time that a small one takes. Here is what wrappers do call.
#pragma once

#include <c10/util/generic_math.h>
#include <torch/csrc/inductor/aoti_runtime/constant_type.h>
#include <torch/csrc/inductor/aoti_runtime/scalar_to_tensor.h>
#include <torch/csrc/inductor/aoti_runtime/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include MENAGERIE_DEVICE

namespace torch::aot_inductor {

using DeviceStreamType = void*;

}  // namespace torch::aot_inductor

// The members that Inductor writes are this class's; the interface has torch's (cpp_wrapper.h).
#define AOTInductorModel Program
