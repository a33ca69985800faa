// Matrix products and convolutions as MPSGraphs, kept by their whole descriptor.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <memory>

#include "common/caches.h"
#include "metal/device.h"

namespace menagerie::metal {

class Graphs {
 public:
  Graphs();

  // Each encodes one piece of work; no other encoder may be open on the buffer.
  void matmul(MPSCommandBuffer* buffer, const MatmulDescriptor& descriptor,
              const MatmulOperands& operands);
  void convolution(MPSCommandBuffer* buffer, const ConvolutionDescriptor& descriptor,
                   const ConvolutionOperands& operands);

 private:
  // An operand of a graph and the shape its memory has.
  struct Port {
    MPSGraphTensor* tensor = nil;
    NSArray<NSNumber*>* shape = nil;
  };
  struct Graph : Prepared {
    MPSGraph* graph = nil;
    MPSDataType type = MPSDataTypeFloat32;
    Port first, second, third, out;  // the third is the addend or the bias, or nil
  };

  static std::shared_ptr<Graph> make(const MatmulDescriptor& descriptor);
  static std::shared_ptr<Graph> make(const ConvolutionDescriptor& descriptor);
  void encode(MPSCommandBuffer* buffer, const Graph& graph, const Region& first,
              const Region& second, const Region& third, const Region& out) const;

  // Compiled graphs hold device memory: as many as a large model has shapes, and no more.
  static constexpr size_t kKept = 2048;
  MPSGraphExecutionDescriptor* execution_;
  KernelCache kept_{kKept};
};

}  // namespace menagerie::metal
