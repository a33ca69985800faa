// What a finding says to a person.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "metal/emulated/worker.h"

namespace menagerie::metal::emulated {

// One line naming the kernel, the thread and the fact. `indices` are the arguments that the group's
// ranges belong to.
std::string describe(const Finding& finding, const menagerie::emulated::KernelEntry& kernel,
                     const menagerie::emulated::Group& group, std::span<const uint32_t> indices);

}  // namespace menagerie::metal::emulated
