#include <algorithm>
#include <utility>
#include <vector>

#import "metal/apple/device.h"
#import "metal/apple/support.h"

namespace menagerie::metal {
namespace {

MTLSize size_of(const std::array<uint64_t, 3>& extents) {
  return MTLSizeMake(extents[0], extents[1], extents[2]);
}

// The GPU begins while the host is still encoding: after as much as mlx encodes for most of Apple's
// GPUs (mlx: backend/metal/device.cpp). While it is at work, each command buffer may be a few times
// as long as the one before, since a commit ends the encoder; none grows into the time limit that
// the system sets for one.
constexpr size_t kFirstDispatches = 40;
constexpr size_t kFirstBytes = size_t{40} << 20;
constexpr size_t kGrowth = 4;
constexpr size_t kMostTimes = 16;

// The dispatches of a command buffer share one compute encoder, which runs them in order. Metal
// orders the uses of buffers across encoders.
class AppleStream final : public Stream {
 public:
  AppleStream(id<MTLDevice> device, const Residency& residency) : queue_([device newCommandQueue]) {
    require(queue_ != nil, "the device gives no command queue");
    residency.serve(queue_);
  }

  // Wait, so that what the GPU is still reading lives until it is done.
  ~AppleStream() override {
    try {
      synchronize();
    } catch (...) {  // nobody asked for the results
    }
  }

  void dispatch(const std::shared_ptr<Kernel>& kernel, std::span<const Argument> arguments,
                const Grid& grid) override {
    const uint64_t group = grid.group[0] * grid.group[1] * grid.group[2];
    require(group > 0 && group <= kernel->max_threads_per_group(), "kernel ", kernel->name(),
            ": a group of ", group, " threads, the pipeline takes ",
            kernel->max_threads_per_group());
    in_pool("dispatching kernel " + kernel->name(), [&] {
      id<MTLComputeCommandEncoder> encoder = compute_encoder();
      [encoder setComputePipelineState:static_cast<const AppleKernel&>(*kernel).metal()];
      size_t bytes = 0;
      for (const Argument& argument : arguments) {
        bind(encoder, argument);
        bytes += argument.region.bytes;
      }
      [encoder dispatchThreads:size_of(grid.threads) threadsPerThreadgroup:size_of(grid.group)];
      encoded(bytes);
    });
  }

  void synchronize() override {
    in_pool("running the command buffer", [&] {
      commit();
      const auto committed = std::exchange(committed_, {});
      for (id<MTLCommandBuffer> buffer : committed) [buffer waitUntilCompleted];
      kept_.clear();
      times_ = 1;
      // Buffers after the first failure have failed because of it.
      for (id<MTLCommandBuffer> buffer : committed) {
        require(buffer.error == nil, "the GPU reports: ", text_of(buffer.error));
      }
    });
  }

 private:
  void bind(id<MTLComputeCommandEncoder> encoder, const Argument& argument) {
    if (argument.region.buffer == nullptr) {
      [encoder setBytes:argument.value.data() length:argument.value_bytes atIndex:argument.index];
      return;
    }
    const Bound place = bound(argument.region);
    [encoder setBuffer:place.buffer offset:place.offset atIndex:argument.index];
    keep(argument.region);
  }

  // Count an encoded dispatch that touches `bytes` bytes; commit once there is enough work.
  void encoded(size_t bytes) {
    ++dispatches_;
    bytes_ += bytes;
    if (dispatches_ < times_ * kFirstDispatches && bytes_ < times_ * kFirstBytes) return;
    commit();
    times_ = std::min(kGrowth * times_, kMostTimes);
  }

  id<MTLComputeCommandEncoder> compute_encoder() {
    if (encoder_ != nil) return encoder_;
    buffer_ = [queue_ commandBuffer];
    encoder_ = [buffer_ computeCommandEncoder];
    require(encoder_ != nil, "the device gives no encoder");
    return encoder_;
  }

  void commit() {
    if (encoder_ == nil) return;
    [std::exchange(encoder_, nil) endEncoding];
    [buffer_ commit];
    committed_.push_back(std::exchange(buffer_, nil));
    dispatches_ = bytes_ = 0;
  }

  // Metal keeps its buffer until the work is done, but not the memory that a buffer wraps.
  void keep(const Region& region) {
    if (region.buffer == nullptr || !static_cast<AppleBuffer&>(*region.buffer).is_wrapped()) return;
    if (kept_.empty() || kept_.back() != region.buffer) kept_.push_back(region.buffer);
  }

  id<MTLCommandQueue> queue_;
  id<MTLCommandBuffer> buffer_ = nil;  // open as long as its encoder
  id<MTLComputeCommandEncoder> encoder_ = nil;
  std::vector<id<MTLCommandBuffer>> committed_;  // in the order of their work
  size_t dispatches_ = 0, bytes_ = 0;            // since the last commit
  size_t times_ = 1;                             // as long as the run's first command buffer
  std::vector<std::shared_ptr<Buffer>> kept_;
};

}  // namespace

std::unique_ptr<Stream> make_apple_stream(id<MTLDevice> device, const Residency& residency) {
  return std::make_unique<AppleStream>(device, residency);
}

}  // namespace menagerie::metal
