// The runtime's own kernels: the files of metal/kernels/, whose texts the build puts in.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metal/device.h"

namespace menagerie::metal {

// A file's name without .metal, and its text. Made by embed_kernels.py.
extern const std::vector<std::pair<std::string_view, std::string_view>> kOwnSources;

// A function of one of these files. Each file is compiled when it is first asked for, and kept, as
// its kernels are, for as long as the process lives. Safe to call from several threads.
std::shared_ptr<Kernel> own_kernel(const std::string& file, const std::string& function);

}  // namespace menagerie::metal
