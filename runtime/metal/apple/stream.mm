#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#import "metal/apple/device.h"
#import "metal/apple/graphs.h"
#import "metal/apple/support.h"

namespace menagerie::metal {
namespace {

MTLSize size_of(const std::array<uint64_t, 3>& extents) {
  return MTLSizeMake(extents[0], extents[1], extents[2]);
}

// The GPU begins while the host goes on encoding: after as much as mlx encodes for most of Apple's
// GPUs (mlx: backend/metal/device.cpp). While it is at work, each command buffer may be a few times
// as long as the one before, since a commit ends the encoder; none grows into the time that the
// system grants one.
constexpr size_t kFirstPieces = 40;
constexpr size_t kFirstBytes = size_t{40} << 20;
constexpr size_t kGrowth = 3;
constexpr size_t kMostTimes = 16;

// Dispatches share one compute encoder for as long as nothing else is encoded between them.
// Encoders of this kind run their work in order, and Metal orders the buffers' uses across
// encoders.
class AppleStream final : public Stream {
 public:
  AppleStream(id<MTLDevice> device, const Residency& residency) : queue_([device newCommandQueue]) {
    require(queue_ != nil, "the device gives no command queue");
    residency.serve(queue_);
  }

  // What the GPU is still reading outlives the stream.
  ~AppleStream() override {
    try {
      synchronize();
    } catch (...) {  // the results were not asked for
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

  void matmul(const MatmulDescriptor& descriptor, const MatmulOperands& operands) override {
    graph("a matrix product", {&operands.a, &operands.b, &operands.addend, &operands.out},
          [&] { graphs_.matmul(command_buffer(), descriptor, operands); });
  }

  void convolution(const ConvolutionDescriptor& descriptor,
                   const ConvolutionOperands& operands) override {
    graph("a convolution", {&operands.input, &operands.weight, &operands.bias, &operands.out},
          [&] { graphs_.convolution(command_buffer(), descriptor, operands); });
  }

  void synchronize() override {
    in_pool("running the command buffer", [&] {
      end_encoder();
      if (buffer_ != nil) {
        note_root();
        [buffer_ commit];
      }
      buffer_ = nil;
      const auto roots = std::exchange(roots_, {});
      for (id<MTLCommandBuffer> root : roots) [root waitUntilCompleted];
      kept_.clear();
      pieces_ = bytes_ = 0;
      times_ = 1;
      // What follows the first failure has failed for its sake.
      for (id<MTLCommandBuffer> root : roots) {
        require(root.error == nil, "the GPU reports: ", text_of(root.error));
      }
    });
  }

 private:
  template <class Encode>
  void graph(const char* what, std::initializer_list<const Region*> regions, Encode&& encode) {
    in_pool(what, [&] {
      end_encoder();
      command_buffer();
      note_root();
      encode();
      note_root();  // a graph may have committed what was there and gone on in a new one
      size_t bytes = 0;
      for (const Region* region : regions) {
        keep(*region);
        bytes += region->bytes;
      }
      encoded(bytes);
    });
  }

  void bind(id<MTLComputeCommandEncoder> encoder, const Argument& argument) {
    if (argument.region.buffer == nullptr) {
      [encoder setBytes:argument.value.data() length:argument.value_bytes atIndex:argument.index];
      return;
    }
    const Bound place = bound(argument.region);
    [encoder setBuffer:place.buffer offset:place.offset atIndex:argument.index];
    keep(argument.region);
  }

  MPSCommandBuffer* command_buffer() {
    if (buffer_ == nil) buffer_ = [MPSCommandBuffer commandBufferFromCommandQueue:queue_];
    return buffer_;
  }

  // Remembers the command buffer that is open, so that its error is seen.
  void note_root() {
    id<MTLCommandBuffer> root = buffer_.rootCommandBuffer;
    if (roots_.empty() || roots_.back() != root) roots_.push_back(root);
  }

  // A piece of work that touches so many bytes has been encoded.
  void encoded(size_t bytes) {
    ++pieces_;
    bytes_ += bytes;
    if (pieces_ < times_ * kFirstPieces && bytes_ < times_ * kFirstBytes) return;
    end_encoder();
    note_root();
    [buffer_ commitAndContinue];
    pieces_ = bytes_ = 0;
    times_ = std::min(kGrowth * times_, kMostTimes);
  }

  id<MTLComputeCommandEncoder> compute_encoder() {
    if (encoder_ == nil) encoder_ = [command_buffer() computeCommandEncoder];
    return encoder_;
  }

  void end_encoder() {
    [encoder_ endEncoding];
    encoder_ = nil;
  }

  // Metal keeps its buffer until the work is done, but not the memory that a buffer wraps.
  void keep(const Region& region) {
    if (region.buffer == nullptr || !static_cast<AppleBuffer&>(*region.buffer).is_wrapped()) return;
    if (kept_.empty() || kept_.back() != region.buffer) kept_.push_back(region.buffer);
  }

  id<MTLCommandQueue> queue_;
  MPSCommandBuffer* buffer_ = nil;
  id<MTLComputeCommandEncoder> encoder_ = nil;
  std::vector<id<MTLCommandBuffer>> roots_;  // in the order of their work
  size_t pieces_ = 0, bytes_ = 0;            // since the last commit
  size_t times_ = 1;                         // as long as the run's first command buffer
  std::vector<std::shared_ptr<Buffer>> kept_;
  Graphs graphs_;
};

}  // namespace

std::unique_ptr<Stream> make_apple_stream(id<MTLDevice> device, const Residency& residency) {
  return std::make_unique<AppleStream>(device, residency);
}

}  // namespace menagerie::metal
