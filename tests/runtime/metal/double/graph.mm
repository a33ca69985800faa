#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <thread>

#include "common/dtype.h"
#include "common/error.h"
#import "double.h"
#include "metal/emulated/stream.h"

using menagerie::Dtype;
using menagerie::metal::ConvolutionDescriptor;
using menagerie::metal::ImageLayout;
using menagerie::metal::MatmulDescriptor;
using menagerie::metal::Region;
using menagerie::metal::Stream;
using menagerie::metal::emulated::allocate_buffer;
using menagerie::metal::emulated::checked_address;

namespace {

using Shape = std::vector<int64_t>;

// What a node of a graph is computed into: dense, in the graph's dtype.
struct Value {
  Region region;
  Shape shape;
};

int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

size_t width_of(MPSDataType type) { return type == MPSDataTypeFloat32 ? 4 : 2; }

Dtype dtype_of(MPSDataType type) {
  if (type == MPSDataTypeFloat32) return Dtype::kFloat32;
  if (type == MPSDataTypeFloat16) return Dtype::kFloat16;
  if (type == MPSDataTypeBFloat16) return Dtype::kBFloat16;
  fault("MPSGraph is given another type than a floating one");
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

Value fresh(const Shape& shape, MPSDataType type) {
  const size_t bytes = static_cast<size_t>(elements_of(shape)) * width_of(type);
  return {{allocate_buffer(std::max<size_t>(bytes, 1)), 0, bytes}, shape};
}

template <class Encode>
void run(Encode&& encode) {
  const auto stream = menagerie::metal::emulated::make_host_stream();
  encode(*stream);
  stream->synchronize();
}

// PyTorch encodes graphs by one thread at a time (pytorch: aten/src/ATen/mps/MPSStream.mm); nothing
// says that MPSGraph is safe without.
class OneEncodes {
 public:
  OneEncodes() {
    if (busy_.exchange(true)) fault("two threads encode graphs at once");
    std::this_thread::yield();
  }
  ~OneEncodes() { busy_ = false; }

 private:
  static inline std::atomic<bool> busy_ = false;
};

std::byte* bytes_of(const Value& value) {
  return static_cast<std::byte*>(value.region.buffer->contents()) + value.region.offset;
}

// The place of an element of the result among those of an operand that broadcasts.
template <class Visit>
void each_broadcast(const Shape& shape, const Shape& from, Visit&& visit) {
  std::vector<int64_t> at(shape.size());
  const int64_t elements = elements_of(shape);
  for (int64_t i = 0; i < elements; ++i) {
    int64_t place = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      place = place * from[axis] + (from[axis] == 1 ? 0 : at[axis]);
    }
    visit(i, place);
    for (size_t axis = shape.size(); axis-- > 0 && ++at[axis] == shape[axis];) at[axis] = 0;
  }
}

// A number broadcasts to any rank.
Shape ranked(const Shape& shape, size_t rank) {
  return elements_of(shape) == 1 ? Shape(rank, 1) : shape;
}

Shape joined(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) fault("ranks differ: " + text_of(a) + " and " + text_of(b));
  Shape shape(a.size());
  for (size_t axis = 0; axis < a.size(); ++axis) {
    if (a[axis] != b[axis] && a[axis] != 1 && b[axis] != 1) {
      fault("shapes do not broadcast: " + text_of(a) + " and " + text_of(b));
    }
    shape[axis] = a[axis] == 1 ? b[axis] : a[axis];
  }
  return shape;
}

}  // namespace

// One node: its shape, and how it is computed from its operands'.
struct Node {
  Shape shape;
  MPSDataType type = MPSDataTypeFloat32;
  std::vector<std::shared_ptr<Node>> operands;
  std::function<Value(const std::vector<Value>&)> compute;  // none: fed
  int64_t operations = 0;
  bool transposed = false;
};

using Nodes = std::map<const Node*, Value>;

namespace {

int64_t operations_of(const Node& node) {
  int64_t operations = node.operations;
  for (const auto& operand : node.operands) operations += operations_of(*operand);
  return operations;
}

const Value& value_of(const std::shared_ptr<Node>& node, Nodes& known) {
  const auto found = known.find(node.get());
  if (found != known.end()) return found->second;
  if (node->compute == nullptr) fault("a placeholder " + text_of(node->shape) + " is not fed");
  std::vector<Value> operands;
  for (const auto& operand : node->operands) operands.push_back(value_of(operand, known));
  return known.emplace(node.get(), node->compute(operands)).first->second;
}

}  // namespace

@interface MPSGraphTensor () {
 @public
  std::shared_ptr<Node> node;
}
@end
@implementation MPSGraphTensor
@end

@implementation MPSNDArrayDescriptor {
 @public
  Shape _shape;
  MPSDataType _type;
  BOOL _packed;
}
+ (instancetype)descriptorWithDataType:(MPSDataType)type shape:(NSArray<NSNumber*>*)shape {
  MPSNDArrayDescriptor* made = [[self alloc] init];
  made->_type = type;
  made->_shape = extents_of(shape);
  return made;
}
- (BOOL)preferPackedRows {
  return _packed;
}
- (void)setPreferPackedRows:(BOOL)packed {
  _packed = packed;
}
@end

@implementation MPSNDArray {
  DoubleBuffer* _buffer;
  Region _region;
  Shape _shape;
  MPSDataType _type;
}
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSNDArrayDescriptor*)descriptor {
  if (buffer == nil) fault("an array is made of no buffer");
  // mpsndarraydescriptor/preferpackedrows: else rows may be padded, here to sixteen bytes
  if (!descriptor->_packed) fault("rows of an array may be padded");
  // mpsndarray/init(buffer:offset:descriptor:): nil if the buffer is too short
  const NSUInteger bytes = elements_of(descriptor->_shape) * width_of(descriptor->_type);
  if (offset > buffer.length || bytes > buffer.length - offset) return nil;
  _buffer = (DoubleBuffer*)buffer;
  _region = [_buffer regionAt:offset length:bytes];
  _shape = descriptor->_shape;
  _type = descriptor->_type;
  return self;
}
- (Region)region {
  return _region;
}
- (BOOL)isLent {
  return _buffer.isLent;
}
- (Shape)shape {
  return _shape;
}
- (MPSDataType)type {
  return _type;
}
@end

@interface MPSGraphTensorData () {
 @public
  MPSNDArray* array;
}
@end
@implementation MPSGraphTensorData
- (instancetype)initWithMPSNDArray:(MPSNDArray*)given {
  array = given;
  return self;
}
@end

@implementation MPSGraphCompilationDescriptor {
  MPSGraphOptimization _level;
  NSUInteger _fastMath;
}
- (instancetype)init {
  _level = 1;  // mpsgraphcompilationdescriptor/optimizationlevel: level 1 is the default
  return self;
}
- (MPSGraphOptimization)optimizationLevel {
  return _level;
}
- (void)setOptimizationLevel:(MPSGraphOptimization)level {
  _level = level;
}
- (NSUInteger)reducedPrecisionFastMath {
  return _fastMath;
}
- (void)setReducedPrecisionFastMath:(NSUInteger)math {
  _fastMath = math;
}
@end

@implementation MPSGraphExecutionDescriptor {
  MPSGraphCompilationDescriptor* _compilation;
}
- (MPSGraphCompilationDescriptor*)compilationDescriptor {
  return _compilation;
}
- (void)setCompilationDescriptor:(MPSGraphCompilationDescriptor*)descriptor {
  _compilation = descriptor;
}
@end

@interface MPSGraphConvolution2DOpDescriptor () {
 @public
  ConvolutionDescriptor given;  // sizes and types are the tensors'
}
@end
@implementation MPSGraphConvolution2DOpDescriptor
+ (instancetype)descriptorWithStrideInX:(NSUInteger)stride_x
                              strideInY:(NSUInteger)stride_y
                        dilationRateInX:(NSUInteger)dilation_x
                        dilationRateInY:(NSUInteger)dilation_y
                                 groups:(NSUInteger)groups
                            paddingLeft:(NSUInteger)left
                           paddingRight:(NSUInteger)right
                             paddingTop:(NSUInteger)top
                          paddingBottom:(NSUInteger)bottom
                           paddingStyle:(MPSGraphPaddingStyle)style
                             dataLayout:(MPSGraphTensorNamedDataLayout)data_layout
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weights_layout {
  if (left != right || top != bottom || style != MPSGraphPaddingStyleExplicit) {
    fault("the padding is not symmetric and explicit");
  }
  if (weights_layout != MPSGraphTensorNamedDataLayoutOIHW) fault("weights are not OIHW");
  MPSGraphConvolution2DOpDescriptor* made = [[self alloc] init];
  const auto whole = [](NSUInteger value) { return static_cast<int64_t>(value); };
  made->given.input_layout = made->given.output_layout =
      data_layout == MPSGraphTensorNamedDataLayoutNCHW ? ImageLayout::kNchw : ImageLayout::kNhwc;
  made->given.stride = {whole(stride_y), whole(stride_x)};
  made->given.dilation = {whole(dilation_y), whole(dilation_x)};
  made->given.padding = {whole(top), whole(left)};
  made->given.groups = whole(groups);
  return made;
}
@end

namespace {

MPSGraphTensor* tensor_of(Node node) {
  MPSGraphTensor* made = [[MPSGraphTensor alloc] init];
  made->node = std::make_shared<Node>(std::move(node));
  return made;
}

// [N, C, H, W] of an image's shape in a layout.
std::array<int64_t, 4> image_of(const Shape& shape, ImageLayout layout) {
  if (shape.size() != 4) fault("an image has shape " + text_of(shape));
  if (layout == ImageLayout::kNchw) return {shape[0], shape[1], shape[2], shape[3]};
  return {shape[0], shape[3], shape[1], shape[2]};
}

// Extents from which on MPSGraph computes wrong numbers.
constexpr int64_t kWrongKernel = 256;    // github.com/pytorch/pytorch, issues 188335 and 188359
constexpr int64_t kWrongExtent = 65536;  // the same, issue 129207
constexpr int64_t kWrongInner = 32767;   // the same, issues 195163 and 193487

void refuse_wrong_convolutions(const ConvolutionDescriptor& d) {
  if (d.kernel_height >= kWrongKernel || d.kernel_width >= kWrongKernel) {
    fault("MPSGraph computes convolutions wrong whose kernel has 256 places or more");
  }
  if (std::max({d.out_channels, d.out_height, d.out_width}) > kWrongExtent) {
    fault("MPSGraph computes convolutions wrong whose output has an extent over 65536");
  }
}

void fill_sizes(ConvolutionDescriptor& d, const Shape& input, const Shape& weight,
                const Shape& output) {
  const auto in = image_of(input, d.input_layout), out = image_of(output, d.output_layout);
  d.batch = in[0];
  std::tie(d.in_channels, d.in_height, d.in_width) = std::tuple(in[1], in[2], in[3]);
  std::tie(d.out_channels, d.out_height, d.out_width) = std::tuple(out[1], out[2], out[3]);
  d.kernel_height = weight[2];
  d.kernel_width = weight[3];
  refuse_wrong_convolutions(d);
}

// out = f(a, b), rounded to the type.
template <class Function>
MPSGraphTensor* elementwise(MPSGraphTensor* first, MPSGraphTensor* second, Function&& function) {
  const Shape& from = first->node->shape;
  const Shape shape = joined(from, ranked(second->node->shape, from.size()));
  const MPSDataType type = first->node->type;
  if (second->node->type != type) fault("the operands' types differ");
  return tensor_of(
      {shape, type, {first->node, second->node}, [=](const std::vector<Value>& of) {
         const Value out = fresh(shape, type);
         menagerie::with_type(dtype_of(type), [&](auto zero) {
           using T = decltype(zero);
           auto* to = reinterpret_cast<T*>(bytes_of(out));
           const auto* a = reinterpret_cast<const T*>(bytes_of(of[0]));
           const auto* b = reinterpret_cast<const T*>(bytes_of(of[1]));
           each_broadcast(shape, of[0].shape, [&](int64_t i, int64_t at) { to[i] = a[at]; });
           each_broadcast(shape, ranked(of[1].shape, shape.size()), [&](int64_t i, int64_t at) {
             to[i] = static_cast<T>(function(static_cast<float>(to[i]), static_cast<float>(b[at])));
           });
         });
         return out;
       }});
}

MPSGraphTensor* transposed(MPSGraphTensor* tensor, const Shape& order) {
  const Shape from = tensor->node->shape;
  const MPSDataType type = tensor->node->type;
  Shape shape;
  for (const int64_t axis : order) shape.push_back(from[axis]);
  return tensor_of({shape, type, {tensor->node}, [=](const std::vector<Value>& of) {
                      const Value out = fresh(shape, type);
                      Shape stride(from.size(), 1), at(from.size());
                      for (size_t axis = from.size() - 1; axis-- > 0;) {
                        stride[axis] = stride[axis + 1] * from[axis + 1];
                      }
                      const size_t width = width_of(type);
                      const int64_t elements = elements_of(shape);
                      for (int64_t i = 0; i < elements; ++i) {
                        int64_t place = 0;
                        for (size_t axis = 0; axis < at.size(); ++axis) {
                          place += at[axis] * stride[order[axis]];
                        }
                        std::copy_n(bytes_of(of[0]) + place * width, width,
                                    bytes_of(out) + i * width);
                        for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == shape[axis];) {
                          at[axis] = 0;
                        }
                      }
                      return out;
                    }});
}

}  // namespace

@implementation MPSGraph
- (MPSGraphTensor*)placeholderWithShape:(NSArray<NSNumber*>*)shape
                               dataType:(MPSDataType)type
                                   name:(NSString*)name {
  return tensor_of({extents_of(shape), type, {}, nullptr});
}
- (MPSGraphTensor*)constantWithScalar:(double)scalar dataType:(MPSDataType)type {
  return tensor_of({{1}, type, {}, [=](const std::vector<Value>&) {
                      const Value out = fresh({1}, type);
                      menagerie::with_type(dtype_of(type), [&](auto zero) {
                        using T = decltype(zero);
                        *reinterpret_cast<T*>(bytes_of(out)) =
                            static_cast<T>(static_cast<float>(scalar));
                      });
                      return out;
                    }});
}
- (MPSGraphTensor*)additionWithPrimaryTensor:(MPSGraphTensor*)primary
                             secondaryTensor:(MPSGraphTensor*)secondary
                                        name:(NSString*)name {
  return elementwise(primary, secondary, std::plus<float>());
}
- (MPSGraphTensor*)multiplicationWithPrimaryTensor:(MPSGraphTensor*)primary
                                   secondaryTensor:(MPSGraphTensor*)secondary
                                              name:(NSString*)name {
  return elementwise(primary, secondary, std::multiplies<float>());
}
- (MPSGraphTensor*)matrixMultiplicationWithPrimaryTensor:(MPSGraphTensor*)primary
                                         secondaryTensor:(MPSGraphTensor*)secondary
                                                    name:(NSString*)name {
  Shape a = primary->node->shape, b = secondary->node->shape;
  const MPSDataType type = primary->node->type;
  // github.com/pytorch/pytorch, issues 180776, 181466 and 197796
  if (type != MPSDataTypeFloat32) fault("MPSGraph does not multiply in half precision on M5");
  if (primary->node->transposed || secondary->node->transposed) {
    fault("MPSGraph ends the process for a product with a transposed operand");
  }
  const bool flat = a.size() == 2 && b.size() == 2;
  if (flat) {
    a.insert(a.begin(), 1);
    b.insert(b.begin(), 1);
  }
  if (a.size() != 3 || b.size() != 3 || a[2] != b[1] || (a[0] != b[0] && a[0] != 1 && b[0] != 1) ||
      secondary->node->type != type) {
    fault("matrices do not fit: " + text_of(a) + " and " + text_of(b));
  }
  if (!flat && a[0] == 1 && b[0] == 1) fault("one pair of matrices has three axes");
  if (a[2] >= kWrongInner && a[1] >= 16 && b[2] >= 16) {
    fault("MPSGraph computes products wrong that sum up 32767 terms or more");
  }
  const Shape shape{std::max(a[0], b[0]), a[1], b[2]};
  const Shape made = flat ? Shape{a[1], b[2]} : shape;
  return tensor_of({made,
                    type,
                    {primary->node, secondary->node},
                    [=](const std::vector<Value>& of) {
                      const Value out = fresh(made, type);
                      MatmulDescriptor product;
                      product.dtype = dtype_of(type);
                      product.batch = shape[0];
                      product.m = shape[1];
                      product.n = shape[2];
                      product.k = a[2];
                      product.a_batch = a[0];
                      product.b_batch = b[0];
                      run([&](Stream& stream) {
                        stream.matmul(product, {of[0].region, of[1].region, {}, out.region});
                      });
                      return out;
                    },
                    2 * elements_of(shape) * a[2]});
}
- (MPSGraphTensor*)transposeTensor:(MPSGraphTensor*)tensor
                       permutation:(NSArray<NSNumber*>*)permutation
                              name:(NSString*)name {
  const Shape order = extents_of(permutation);
  Shape sorted = order, all(tensor->node->shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) fault(text_of(order) + " is no permutation of the axes");
  MPSGraphTensor* result = transposed(tensor, order);
  result->node->transposed = true;
  return result;
}
- (MPSGraphTensor*)convolution2DWithSourceTensor:(MPSGraphTensor*)source
                                   weightsTensor:(MPSGraphTensor*)weights
                                      descriptor:(MPSGraphConvolution2DOpDescriptor*)descriptor
                                            name:(NSString*)name {
  ConvolutionDescriptor given = descriptor->given;
  const Shape w = weights->node->shape;
  const auto in = image_of(source->node->shape, given.input_layout);
  const auto places = [&](int axis) {
    const int64_t span = given.dilation[axis] * (w[2 + axis] - 1) + 1;
    return (in[2 + axis] + 2 * given.padding[axis] - span) / given.stride[axis] + 1;
  };
  const Shape shape = given.input_layout == ImageLayout::kNchw
                          ? Shape{in[0], w[0], places(0), places(1)}
                          : Shape{in[0], places(0), places(1), w[0]};
  given.dtype = dtype_of(source->node->type);
  fill_sizes(given, source->node->shape, w, shape);
  if (w[1] * given.groups != given.in_channels) fault("weights of other channels than the image");
  const MPSDataType type = source->node->type;
  return tensor_of({shape,
                    type,
                    {source->node, weights->node},
                    [=](const std::vector<Value>& of) {
                      const Value out = fresh(shape, type);
                      run([&](Stream& stream) {
                        stream.convolution(given, {of[0].region, of[1].region, {}, out.region});
                      });
                      return out;
                    },
                    2 * elements_of(shape) * w[1] * w[2] * w[3]});
}
- (MPSGraphTensor*)convolution2DDataGradientWithIncomingGradientTensor:(MPSGraphTensor*)gradient
                                                         weightsTensor:(MPSGraphTensor*)weights
                                                           outputShape:(NSArray<NSNumber*>*)output
                                          forwardConvolutionDescriptor:
                                              (MPSGraphConvolution2DOpDescriptor*)descriptor
                                                                  name:(NSString*)name {
  ConvolutionDescriptor given = descriptor->given;
  const Shape shape = extents_of(output), w = weights->node->shape;
  given.dtype = dtype_of(gradient->node->type);
  given.transposed = true;
  fill_sizes(given, gradient->node->shape, w, shape);
  const std::array<int64_t, 2> in{given.in_height, given.in_width};
  const std::array<int64_t, 2> out{given.out_height, given.out_width};
  for (int axis = 0; axis < 2; ++axis) {  // what the forward convolution's division has dropped
    given.output_padding[axis] =
        out[axis] - ((in[axis] - 1) * given.stride[axis] - 2 * given.padding[axis] +
                     given.dilation[axis] * (w[2 + axis] - 1) + 1);
    if (given.output_padding[axis] < 0 || given.output_padding[axis] >= given.stride[axis]) {
      fault("the gradient " + text_of(gradient->node->shape) + " is not of an image " +
            text_of(shape));
    }
  }
  const MPSDataType type = gradient->node->type;
  return tensor_of({shape,
                    type,
                    {gradient->node, weights->node},
                    [=](const std::vector<Value>& of) {
                      const Value out = fresh(shape, type);
                      run([&](Stream& stream) {
                        stream.convolution(given, {of[0].region, of[1].region, {}, out.region});
                      });
                      return out;
                    },
                    2 * elements_of(gradient->node->shape) * w[1] * w[2] * w[3]});
}
- (void)encodeToCommandBuffer:(MPSCommandBuffer*)buffer
                        feeds:(NSDictionary<MPSGraphTensor*, MPSGraphTensorData*>*)feeds
             targetOperations:(NSArray<MPSGraphOperation*>*)operations
            resultsDictionary:(NSDictionary<MPSGraphTensor*, MPSGraphTensorData*>*)results
          executionDescriptor:(MPSGraphExecutionDescriptor*)descriptor {
  [buffer.root mustBeOpenFor:"a graph"];
  [buffer.root mustHaveNoEncoderFor:"a graph"];
  const OneEncodes alone;
  // Level 1, the default, may place work on the Neural Engine, which computes in half precision.
  const bool exact = descriptor != nil && descriptor.compilationDescriptor != nil &&
                     descriptor.compilationDescriptor.optimizationLevel == 0;
  if (!exact) fault("a graph is compiled at a level that may leave the GPU");
  Nodes fed;
  std::vector<id> kept;
  const auto port = [&](id tensor, id data) {
    const auto& node = ((MPSGraphTensor*)tensor)->node;
    MPSNDArray* array = ((MPSGraphTensorData*)data)->array;
    if ([array shape] != node->shape || [array type] != node->type) {
      fault("an array " + text_of([array shape]) + " is bound where the graph has " +
            text_of(node->shape));
    }
    kept.push_back(data);
    if (![array isLent]) counts().bytes += static_cast<int64_t>([array region].bytes);
    return std::pair(node, Value{[array region], node->shape});
  };
  for (const auto& [tensor, data] : [feeds pairs]) {
    const auto [node, value] = port(tensor, data);
    fed.emplace(node.get(), value);
  }
  std::vector<std::pair<std::shared_ptr<Node>, Value>> targets;
  for (const auto& [tensor, data] : [results pairs]) targets.push_back(port(tensor, data));
  for (const auto& [node, value] : targets) counts().operations += operations_of(*node);
  if (targets.empty()) fault("a graph without results");
  if (knobs().graph_commits != 0) [buffer commitAndContinue];
  ++counts().graphs;
  ++counts().encoders;
  for (id each : kept) [buffer.root add:nullptr keeping:each];
  [buffer.root add:[fed, targets] {
    Nodes nodes = fed;
    for (const auto& [node, value] : targets) {
      const Value& made = value_of(node, nodes);
      std::memcpy(checked_address(value.region, value.region.bytes, true, "a graph's result"),
                  checked_address(made.region, value.region.bytes, false, "a graph's result"),
                  value.region.bytes);
    }
  }
           keeping:self];
}
@end
