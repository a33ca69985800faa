#pragma once

#include <memory>

#include "metal/device.h"

namespace menagerie::metal::emulated {

std::unique_ptr<Stream> make_host_stream();

}  // namespace menagerie::metal::emulated
