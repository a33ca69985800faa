#import "metal/apple/graphs.h"

#include <initializer_list>
#include <mutex>
#include <utility>

#import "metal/apple/device.h"
#import "metal/apple/support.h"

// Of MPSGraphCompilationDescriptor since macOS 26
// (developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraphcompilationdescriptor),
// declared here for older SDKs.
@protocol FastMath
@property(nonatomic) NSUInteger reducedPrecisionFastMath;
@end

namespace menagerie::metal {
namespace {

constexpr NSUInteger kNoFastMath = 0;  // MPSGraphReducedPrecisionFastMathNone

MPSDataType data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return MPSDataTypeFloat32;
    case Dtype::kFloat16:
      return MPSDataTypeFloat16;
    case Dtype::kBFloat16:
      return MPSDataTypeBFloat16;
    default:
      fail("MPSGraph computes in floating point, not in ", info(dtype).name);
  }
}

NSArray<NSNumber*>* shape_of(std::initializer_list<int64_t> sizes) {
  NSMutableArray<NSNumber*>* shape = [NSMutableArray arrayWithCapacity:sizes.size()];
  for (const int64_t size : sizes) [shape addObject:[NSNumber numberWithLongLong:size]];
  return shape;
}

NSArray<NSNumber*>* image_shape(ImageLayout layout, int64_t batch, int64_t channels, int64_t height,
                                int64_t width) {
  return layout == ImageLayout::kNchw ? shape_of({batch, channels, height, width})
                                      : shape_of({batch, height, width, channels});
}

MPSGraphTensor* change_layout(MPSGraph* graph, MPSGraphTensor* image, ImageLayout from,
                              ImageLayout to) {
  if (from == to) return image;
  NSArray<NSNumber*>* order =
      to == ImageLayout::kNchw ? shape_of({0, 3, 1, 2}) : shape_of({0, 2, 3, 1});
  return [graph transposeTensor:image permutation:order name:nil];
}

MPSGraphTensor* scaled(MPSGraph* graph, MPSGraphTensor* tensor, float factor, MPSDataType type) {
  if (factor == 1) return tensor;
  MPSGraphTensor* constant = [graph constantWithScalar:factor dataType:type];
  return [graph multiplicationWithPrimaryTensor:tensor secondaryTensor:constant name:nil];
}

// One pair of matrices has two axes: with three there are more faults (github.com/pytorch/pytorch,
// issue 180776).
NSArray<NSNumber*>* matrix_shape(const MatmulDescriptor& given, int64_t batch, int64_t rows,
                                 int64_t columns) {
  return given.batch == 1 ? shape_of({rows, columns}) : shape_of({batch, rows, columns});
}

MPSGraphConvolution2DOpDescriptor* forward_descriptor(const ConvolutionDescriptor& given,
                                                      ImageLayout layout) {
  const auto [stride_y, stride_x] = given.stride;
  const auto [dilation_y, dilation_x] = given.dilation;
  const auto [padding_y, padding_x] = given.padding;
  return [MPSGraphConvolution2DOpDescriptor
      descriptorWithStrideInX:static_cast<NSUInteger>(stride_x)
                    strideInY:static_cast<NSUInteger>(stride_y)
              dilationRateInX:static_cast<NSUInteger>(dilation_x)
              dilationRateInY:static_cast<NSUInteger>(dilation_y)
                       groups:static_cast<NSUInteger>(given.groups)
                  paddingLeft:static_cast<NSUInteger>(padding_x)
                 paddingRight:static_cast<NSUInteger>(padding_x)
                   paddingTop:static_cast<NSUInteger>(padding_y)
                paddingBottom:static_cast<NSUInteger>(padding_y)
                 paddingStyle:MPSGraphPaddingStyleExplicit
                   dataLayout:layout == ImageLayout::kNchw ? MPSGraphTensorNamedDataLayoutNCHW
                                                           : MPSGraphTensorNamedDataLayoutNHWC
                weightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
}

// The images, in the output's layout. A transposed convolution is the gradient of the one that its
// weight describes; MPSGraph's gradient is asked for in NCHW only, as PyTorch asks for it.
MPSGraphTensor* convolved(MPSGraph* graph, const ConvolutionDescriptor& given,
                          MPSGraphTensor* images, MPSGraphTensor* weights) {
  if (!given.transposed) {
    MPSGraphTensor* result =
        [graph convolution2DWithSourceTensor:images
                               weightsTensor:weights
                                  descriptor:forward_descriptor(given, given.input_layout)
                                        name:nil];
    return change_layout(graph, result, given.input_layout, given.output_layout);
  }
  constexpr ImageLayout kLayout = ImageLayout::kNchw;
  MPSGraphTensor* result = [graph
      convolution2DDataGradientWithIncomingGradientTensor:change_layout(graph, images,
                                                                        given.input_layout, kLayout)
                                            weightsTensor:weights
                                              outputShape:image_shape(kLayout, given.batch,
                                                                      given.out_channels,
                                                                      given.out_height,
                                                                      given.out_width)
                             forwardConvolutionDescriptor:forward_descriptor(given, kLayout)
                                                     name:nil];
  return change_layout(graph, result, kLayout, given.output_layout);
}

// Without a copy, at the region's offset.
MPSGraphTensorData* tensor_data(const Region& region, MPSDataType type, NSArray<NSNumber*>* shape) {
  MPSNDArrayDescriptor* descriptor = [MPSNDArrayDescriptor descriptorWithDataType:type shape:shape];
  descriptor.preferPackedRows = YES;  // else rows may be expected to be padded
  const Bound place = bound(region);
  MPSNDArray* array = [[MPSNDArray alloc] initWithBuffer:place.buffer
                                                  offset:place.offset
                                              descriptor:descriptor];
  require(array != nil, "the device cannot view a buffer as an array");
  return [[MPSGraphTensorData alloc] initWithMPSNDArray:array];
}

// For the GPU alone. Without a descriptor level 1 may place work on the Neural Engine and take
// convolutions of reduced precision; PyTorch takes level 0 (pytorch:
// aten/src/ATen/mps/MPSStream.mm).
MPSGraphExecutionDescriptor* execution_descriptor() {
  MPSGraphCompilationDescriptor* compilation = [[MPSGraphCompilationDescriptor alloc] init];
  compilation.optimizationLevel = MPSGraphOptimizationLevel0;
  if ([compilation respondsToSelector:@selector(setReducedPrecisionFastMath:)]) {  // macOS 26
    static_cast<id<FastMath>>(compilation).reducedPrecisionFastMath = kNoFastMath;
  }
  MPSGraphExecutionDescriptor* execution = [[MPSGraphExecutionDescriptor alloc] init];
  execution.compilationDescriptor = compilation;
  return execution;
}

// Graphs are compiled as they are first encoded, which PyTorch does under one lock too.
std::mutex& encoding() {
  static auto* mutex = new std::mutex;  // never destroyed: threads may outlive the statics
  return *mutex;
}

}  // namespace

Graphs::Graphs() : execution_(execution_descriptor()) {}

std::shared_ptr<Graphs::Graph> Graphs::make(const MatmulDescriptor& given) {
  const auto result = std::make_shared<Graph>();
  Graph& made = *result;
  made.graph = [[MPSGraph alloc] init];
  made.type = data_type(given.dtype);
  const auto port = [&](NSArray<NSNumber*>* shape) {
    return Port{[made.graph placeholderWithShape:shape dataType:made.type name:nil], shape};
  };
  made.first = port(matrix_shape(given, given.a_batch, given.m, given.k));
  made.second = port(matrix_shape(given, given.b_batch, given.k, given.n));
  MPSGraphTensor* product = [made.graph matrixMultiplicationWithPrimaryTensor:made.first.tensor
                                                              secondaryTensor:made.second.tensor
                                                                         name:nil];
  product = scaled(made.graph, product, given.alpha, made.type);
  if (given.addend.has_value()) {
    const auto& [batch, rows, columns] = *given.addend;
    made.third = port(matrix_shape(given, batch, rows, columns));
    product = [made.graph
        additionWithPrimaryTensor:product
                  secondaryTensor:scaled(made.graph, made.third.tensor, given.beta, made.type)
                             name:nil];
  }
  made.out = {product, matrix_shape(given, given.batch, given.m, given.n)};
  return result;
}

std::shared_ptr<Graphs::Graph> Graphs::make(const ConvolutionDescriptor& given) {
  const auto result = std::make_shared<Graph>();
  Graph& made = *result;
  made.graph = [[MPSGraph alloc] init];
  made.type = data_type(given.dtype);
  const auto port = [&](NSArray<NSNumber*>* shape) {
    return Port{[made.graph placeholderWithShape:shape dataType:made.type name:nil], shape};
  };
  made.first = port(image_shape(given.input_layout, given.batch, given.in_channels, given.in_height,
                                given.in_width));
  const auto [leading, divided] = given.transposed
                                      ? std::pair(given.in_channels, given.out_channels)
                                      : std::pair(given.out_channels, given.in_channels);
  made.second =
      port(shape_of({leading, divided / given.groups, given.kernel_height, given.kernel_width}));
  MPSGraphTensor* image = convolved(made.graph, given, made.first.tensor, made.second.tensor);
  if (given.has_bias) {
    made.third = port(image_shape(given.output_layout, 1, given.out_channels, 1, 1));
    image = [made.graph additionWithPrimaryTensor:image secondaryTensor:made.third.tensor name:nil];
  }
  made.out = {image, image_shape(given.output_layout, given.batch, given.out_channels,
                                 given.out_height, given.out_width)};
  return result;
}

void Graphs::encode(MPSCommandBuffer* buffer, const Graph& graph, const Region& first,
                    const Region& second, const Region& third, const Region& out) const {
  NSMutableDictionary<MPSGraphTensor*, MPSGraphTensorData*>* feeds =
      [NSMutableDictionary dictionary];
  const auto feed = [&](const Port& port, const Region& region) {
    [feeds setObject:tensor_data(region, graph.type, port.shape) forKey:port.tensor];
  };
  feed(graph.first, first);
  feed(graph.second, second);
  if (graph.third.tensor != nil) feed(graph.third, third);
  NSMutableDictionary<MPSGraphTensor*, MPSGraphTensorData*>* results =
      [NSMutableDictionary dictionary];
  [results setObject:tensor_data(out, graph.type, graph.out.shape) forKey:graph.out.tensor];
  [graph.graph encodeToCommandBuffer:buffer
                               feeds:feeds
                    targetOperations:nil
                   resultsDictionary:results
                 executionDescriptor:execution_];
}

void Graphs::matmul(MPSCommandBuffer* buffer, const MatmulDescriptor& descriptor,
                    const MatmulOperands& operands) {
  const std::lock_guard lock(encoding());
  const auto graph = kept_.get<Graph>(descriptor.key(), [&] { return make(descriptor); });
  encode(buffer, *graph, operands.a, operands.b, operands.addend, operands.out);
}

void Graphs::convolution(MPSCommandBuffer* buffer, const ConvolutionDescriptor& descriptor,
                         const ConvolutionOperands& operands) {
  const std::lock_guard lock(encoding());
  const auto graph = kept_.get<Graph>(descriptor.key(), [&] { return make(descriptor); });
  encode(buffer, *graph, operands.input, operands.weight, operands.bias, operands.out);
}

}  // namespace menagerie::metal
