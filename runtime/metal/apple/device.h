// The Apple GPU behind metal/device.h: its buffers and kernels, as the stream sees them.
#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/error.h"
#include "metal/device.h"

namespace menagerie::metal {

// A location in one of Metal's buffers.
struct Bound {
  id<MTLBuffer> buffer = nil;
  size_t offset = 0;  // bytes
};

// Shared storage: host and GPU address the same memory. Wrapped memory that is longer than Metal's
// longest buffer is seen through several buffers, which overlap.
class AppleBuffer final : public Buffer {
 public:
  struct View {
    id<MTLBuffer> buffer = nil;
    size_t begin = 0, bytes = 0;
  };

  // The device's own memory, of which `bytes` are in use.
  AppleBuffer(id<MTLBuffer> buffer, size_t bytes)
      : contents_(buffer.contents), bytes_(bytes), views_{{buffer, 0, buffer.length}} {}
  // Memory of an owner, which is kept with it.
  AppleBuffer(std::vector<View> views, void* contents, size_t bytes,
              std::shared_ptr<const void> owner)
      : contents_(contents), bytes_(bytes), owner_(std::move(owner)), views_(std::move(views)) {}

  void* contents() const override { return contents_; }
  size_t bytes() const override { return bytes_; }
  std::shared_ptr<Buffer> first(size_t bytes) override {
    return std::make_shared<AppleBuffer>(views_, contents_, bytes, owner_);
  }
  // Metal keeps its buffers until the work is done, but not the memory that they wrap.
  bool is_wrapped() const { return owner_ != nullptr; }

  // Return the buffer that holds the whole region; fail if none does.
  Bound bound(const Region& region) const {
    if (region.bytes == 0 && region.offset == bytes_) return {views_.front().buffer, 0};  // empty
    for (const View& view : views_) {
      const size_t end = view.begin + view.bytes;
      if (region.offset >= view.begin && region.offset < end &&
          region.bytes <= end - region.offset) {
        return {view.buffer, region.offset - view.begin};
      }
    }
    fail(region.bytes, " bytes at ", region.offset, " of ", bytes_,
         " are more than the device binds at once");
  }

 private:
  void* contents_;
  size_t bytes_;
  std::shared_ptr<const void> owner_;  // releases its memory after the buffers over it
  std::vector<View> views_;
};

class AppleKernel final : public Kernel {
 public:
  AppleKernel(std::string name, id<MTLComputePipelineState> pipeline,
              std::map<uint32_t, std::string> buffers)
      : Kernel(std::move(buffers)), name_(std::move(name)), pipeline_(pipeline) {}

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

// Return what to bind for a region, which is always one of this device's buffers.
inline Bound bound(const Region& region) {
  return static_cast<const AppleBuffer&>(*region.buffer).bound(region);
}

// The memory that the GPU finds resident at any time: weights.
// Without a residency set the system may unwire memory that no work has touched for a while, and
// the next run waits until it is wired again
// (developer.apple.com/documentation/metal/simplifying-gpu-resource-management-with-residency-sets).
// Safe to use from several threads. Does nothing where the system has no such sets.
class Residency {
 public:
  explicit Residency(id<MTLDevice> device);

  // Keep buffers, and the owner of their memory, resident for as long as the result lives.
  std::shared_ptr<const void> keep(std::vector<id<MTLBuffer>> buffers,
                                   std::shared_ptr<const void> owner);

  // Let all of a queue's work find them resident.
  void serve(id<MTLCommandQueue> queue) const;

 private:
  struct Kept;

  std::mutex mutex_;  // a set is changed by one thread at a time
  id<MTLResidencySet> set_ = nil;
};

std::unique_ptr<Stream> make_apple_stream(id<MTLDevice> device, const Residency& residency);

}  // namespace menagerie::metal
