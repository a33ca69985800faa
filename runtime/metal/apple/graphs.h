// Matrix products and convolutions as MPSGraphs, kept by their whole descriptor.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include "metal/device.h"
#include "metal/lru.h"

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
  struct Graph {
    MPSGraph* graph = nil;
    MPSDataType type = MPSDataTypeFloat32;
    Port first, second, third, out;  // the third is the addend or the bias, or nil
  };

  static Graph make(const MatmulDescriptor& descriptor);
  static Graph make(const ConvolutionDescriptor& descriptor);
  void encode(MPSCommandBuffer* buffer, const Graph& graph, const Region& first,
              const Region& second, const Region& third, const Region& out) const;

  // Compiled graphs hold device memory: as many as a large model has shapes, and no more.
  static constexpr size_t kKept = 1024;
  MPSGraphExecutionDescriptor* execution_;
  Lru<MatmulDescriptor, Graph> matmuls_{kKept};
  Lru<ConvolutionDescriptor, Graph> convolutions_{kKept};
};

}  // namespace menagerie::metal
