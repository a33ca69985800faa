// Running one dispatch of a compiled kernel on the host.
#pragma once

#include <string>
#include <vector>

#include "metal/device.h"
#include "metal/emulated/prelude/abi.h"

namespace menagerie::metal::emulated {

// A dispatch whose arguments have been checked to be complete.
struct Dispatch {
  const menagerie::emulated::KernelEntry* kernel;
  std::vector<Argument> arguments;
  Grid grid;
};

// Runs all threadgroups, spread over the threads of the calling thread's context. Fails with the
// first threadgroup, in order, that does what a GPU would punish.
void run(const Dispatch& dispatch);

}  // namespace menagerie::metal::emulated
