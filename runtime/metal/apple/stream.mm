#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <vector>

#import "metal/apple/device.h"
#import "metal/apple/graphs.h"
#import "metal/apple/support.h"

namespace menagerie::metal {
namespace {

MTLSize size_of(const std::array<uint64_t, 3>& extents) {
  return MTLSizeMake(extents[0], extents[1], extents[2]);
}

// Dispatches share one compute encoder for as long as nothing else is encoded between them.
// Encoders of this kind run their work in order, and Metal orders the buffers' uses across
// encoders.
class AppleStream final : public Stream {
 public:
  explicit AppleStream(id<MTLDevice> device) : queue_([device newCommandQueue]) {
    require(queue_ != nil, "the device gives no command queue");
  }

  ~AppleStream() override { end_encoder(); }

  void dispatch(const std::shared_ptr<Kernel>& kernel, std::span<const Argument> arguments,
                const Grid& grid) override {
    const uint64_t group = grid.group[0] * grid.group[1] * grid.group[2];
    require(group > 0 && group <= kernel->max_threads_per_group(), "kernel ", kernel->name(),
            ": a group of ", group, " threads, the pipeline takes ",
            kernel->max_threads_per_group());
    in_pool("dispatching kernel " + kernel->name(), [&] {
      id<MTLComputeCommandEncoder> encoder = compute_encoder();
      [encoder setComputePipelineState:static_cast<const AppleKernel&>(*kernel).metal()];
      for (const Argument& argument : arguments) bind(encoder, argument);
      [encoder dispatchThreads:size_of(grid.threads) threadsPerThreadgroup:size_of(grid.group)];
    });
    kernels_.push_back(kernel);
  }

  void copy(const Region& from, const Region& to, size_t bytes) override {
    if (bytes == 0) return;
    in_pool("copying", [&] {
      id<MTLBlitCommandEncoder> encoder = blit_encoder();
      [encoder copyFromBuffer:metal_buffer(from)
                 sourceOffset:from.offset
                     toBuffer:metal_buffer(to)
            destinationOffset:to.offset
                         size:bytes];
      [encoder endEncoding];
    });
    keep(from);
    keep(to);
  }

  void fill(const Region& to, size_t bytes, uint8_t value) override {
    if (bytes == 0) return;
    in_pool("filling", [&] {
      id<MTLBlitCommandEncoder> encoder = blit_encoder();
      [encoder fillBuffer:metal_buffer(to) range:NSMakeRange(to.offset, bytes) value:value];
      [encoder endEncoding];
    });
    keep(to);
  }

  void matmul(const MatmulDescriptor& descriptor, const MatmulOperands& operands) override {
    in_pool("a matrix product", [&] {
      end_encoder();
      graphs_.matmul(command_buffer(), descriptor, operands);
    });
    for (const Region* region : {&operands.a, &operands.b, &operands.addend, &operands.out}) {
      keep(*region);
    }
  }

  void convolution(const ConvolutionDescriptor& descriptor,
                   const ConvolutionOperands& operands) override {
    in_pool("a convolution", [&] {
      end_encoder();
      graphs_.convolution(command_buffer(), descriptor, operands);
    });
    for (const Region* region :
         {&operands.input, &operands.weight, &operands.bias, &operands.out}) {
      keep(*region);
    }
  }

  void synchronize() override {
    end_encoder();
    if (buffer_ == nil) return;
    MPSCommandBuffer* buffer = buffer_;
    buffer_ = nil;
    in_pool("running the command buffer", [&] {
      // A graph may have committed an earlier part and gone on in a new buffer: this is the last
      // one.
      id<MTLCommandBuffer> last = buffer.rootCommandBuffer;
      [buffer commit];
      [buffer waitUntilCompleted];
      kept_.clear();
      kernels_.clear();
      require(last.error == nil, "the GPU reports: ", text_of(last.error));
    });
  }

 private:
  void bind(id<MTLComputeCommandEncoder> encoder, const Argument& argument) {
    if (argument.region.buffer == nullptr) {
      [encoder setBytes:argument.value.data() length:argument.value_bytes atIndex:argument.index];
      return;
    }
    [encoder setBuffer:metal_buffer(argument.region)
                offset:argument.region.offset
               atIndex:argument.index];
    keep(argument.region);
  }

  MPSCommandBuffer* command_buffer() {
    if (buffer_ == nil) buffer_ = [MPSCommandBuffer commandBufferFromCommandQueue:queue_];
    return buffer_;
  }

  id<MTLComputeCommandEncoder> compute_encoder() {
    if (encoder_ == nil) encoder_ = [command_buffer() computeCommandEncoder];
    return encoder_;
  }

  id<MTLBlitCommandEncoder> blit_encoder() {
    end_encoder();
    return [command_buffer() blitCommandEncoder];
  }

  void end_encoder() {
    [encoder_ endEncoding];
    encoder_ = nil;
  }

  // Metal keeps its buffer until the work is done, but not the memory that a buffer wraps.
  void keep(const Region& region) {
    if (region.buffer != nullptr) kept_.push_back(region.buffer);
  }

  id<MTLCommandQueue> queue_;
  MPSCommandBuffer* buffer_ = nil;
  id<MTLComputeCommandEncoder> encoder_ = nil;
  std::vector<std::shared_ptr<Buffer>> kept_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  Graphs graphs_;
};

}  // namespace

std::unique_ptr<Stream> make_apple_stream(id<MTLDevice> device) {
  return std::make_unique<AppleStream>(device);
}

}  // namespace menagerie::metal
