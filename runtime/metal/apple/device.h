// The Apple GPU behind metal/device.h: its buffers and kernels, as the stream and the graphs see
// them.
#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <string>

#include "metal/device.h"

namespace menagerie::metal {

// Shared storage: host and GPU address the same memory.
class AppleBuffer final : public Buffer {
 public:
  // The owner of wrapped memory is kept with it; null for the device's own.
  AppleBuffer(id<MTLBuffer> buffer, size_t bytes, std::shared_ptr<const void> owner)
      : buffer_(buffer), bytes_(bytes), owner_(std::move(owner)) {}

  void* contents() const override { return buffer_.contents; }
  size_t bytes() const override { return bytes_; }
  id<MTLBuffer> metal() const { return buffer_; }

 private:
  id<MTLBuffer> buffer_;
  size_t bytes_;
  std::shared_ptr<const void> owner_;
};

class AppleKernel final : public Kernel {
 public:
  AppleKernel(std::string name, id<MTLComputePipelineState> pipeline)
      : name_(std::move(name)), pipeline_(pipeline) {}

  const std::string& name() const override { return name_; }
  uint64_t max_threads_per_group() const override {
    return pipeline_.maxTotalThreadsPerThreadgroup;
  }
  uint64_t simd_width() const override { return pipeline_.threadExecutionWidth; }
  id<MTLComputePipelineState> metal() const { return pipeline_; }

 private:
  std::string name_;
  id<MTLComputePipelineState> pipeline_;
};

// The buffer behind a region; only this device's buffers ever reach it.
inline id<MTLBuffer> metal_buffer(const Region& region) {
  return static_cast<const AppleBuffer&>(*region.buffer).metal();
}

std::unique_ptr<Stream> make_apple_stream(id<MTLDevice> device);

}  // namespace menagerie::metal
