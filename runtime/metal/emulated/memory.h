// Buffers of the emulated device, each alone in its own stretch of addresses: an index that is out
// of one buffer, by up to gigabytes, hits no other.
#pragma once

#include <memory>

#include "metal/device.h"

namespace menagerie::metal::emulated {

class HostBuffer : public Buffer, public std::enable_shared_from_this<HostBuffer> {
 public:
  std::shared_ptr<Buffer> first(size_t bytes) override;
  // Whether kernels and copies may write it.
  virtual bool writable() const = 0;
};

// Page-aligned memory whose bytes are all 0xFF, a NaN in every floating type: a kernel that reads
// what was never written shows it in its results.
std::shared_ptr<HostBuffer> allocate_buffer(size_t bytes);

// The caller's memory, in place, never written.
std::shared_ptr<HostBuffer> wrap_buffer(const void* data, size_t bytes,
                                        std::shared_ptr<const void> owner);

// The address of `bytes` bytes at the region, checked to lie in its buffer and, if they are to be
// written, to be writable. `what` begins the message.
std::byte* checked_address(const Region& region, size_t bytes, bool write, const char* what);

}  // namespace menagerie::metal::emulated
