#import <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <string_view>

#include "common/error.h"
#import "double.h"
#include "metal/emulated/shaders.h"
#include "metal/emulated/stream.h"

using menagerie::metal::Argument;
using menagerie::metal::Grid;
using menagerie::metal::Kernel;
using menagerie::metal::kMaxInlineBytes;
using menagerie::metal::Region;
using menagerie::metal::ShaderLibrary;
using menagerie::metal::Stream;
using menagerie::metal::emulated::HostBuffer;

Knobs& knobs() {
  static Knobs knobs;
  return knobs;
}

Counts& counts() {
  static Counts counts;
  return counts;
}

namespace {

// Apple's limits for every GPU that Metal runs on (Metal feature set tables).
constexpr NSUInteger kMostInlineBytes = 4096;  // setBytes
constexpr NSUInteger kMostArguments = 31;
// What attend_one of attention.metal takes for a head.
constexpr NSUInteger kThreadsOfOne = 256;
constexpr size_t kMostUncompleted = 64;  // mtldevice/makecommandqueue()

// Of what all queues share: command buffers of several threads run one after another.
std::recursive_mutex& running() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

std::vector<DoubleCommandBuffer*>& committed() {
  static auto* buffers = new std::vector<DoubleCommandBuffer*>;
  return *buffers;
}

// The allocations in residency sets, by address: in any, and those that a set has made resident.
std::set<const void*>& in_sets() {
  static auto* allocations = new std::set<const void*>;
  return *allocations;
}
std::set<const void*>& resident() {
  static auto* allocations = new std::set<const void*>;
  return *allocations;
}

std::string text(const char* what, NSUInteger number) {
  return std::string(what) + " " + std::to_string(number);
}

// What the emulated device refuses at once, Metal's validation refuses too.
template <class Body>
Work encoded(Body&& body) {
  const std::shared_ptr<Stream> stream = menagerie::metal::emulated::make_host_stream();
  try {
    body(*stream);
  } catch (const std::exception& error) {
    fault(error.what());
  }
  return [stream] { stream->synchronize(); };
}

std::string said(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void menagerie_double_set(const char* name,
                                                                            int64_t value) {
  const std::pair<std::string, int64_t Knobs::*> all[] = {
      {"most_buffer_bytes", &Knobs::most_buffer_bytes},
      {"empty_wraps", &Knobs::empty_wraps},
      {"no_default_device", &Knobs::no_default_device},
      {"no_residency_sets", &Knobs::no_residency_sets},
      {"gpu_generation", &Knobs::gpu_generation},
      {"phone", &Knobs::phone},
      {"metal_4", &Knobs::metal_4},
      {"failing_buffer", &Knobs::failing_buffer}};
  for (const auto& [known, member] : all) {
    if (known == name) return void(knobs().*member = value);
  }
  fault(std::string("no knob is called ") + name);
}

extern "C" __attribute__((visibility("default"))) void menagerie_double_reset() {
  knobs() = {};
  counts() = {};
}

extern "C" __attribute__((visibility("default"))) int64_t menagerie_double_count(const char* name) {
  const std::pair<std::string, int64_t Counts::*> all[] = {
      {"dispatches", &Counts::dispatches}, {"by_units", &Counts::by_units},
      {"threads", &Counts::threads},       {"encoders", &Counts::encoders},
      {"commits", &Counts::commits},       {"bytes", &Counts::bytes},
      {"operations", &Counts::operations}};
  if (std::string_view(name) == "resident") return static_cast<int64_t>(resident().size());
  for (const auto& [known, member] : all) {
    if (known == name) return counts().*member;
  }
  return live_objects(name);
}

@implementation DoubleBuffer {
  std::shared_ptr<HostBuffer> _memory;
  NSUInteger _length;
}
- (instancetype)initWithMemory:(std::shared_ptr<HostBuffer>)memory length:(NSUInteger)length {
  _memory = std::move(memory);
  _length = length;
  return self;
}
- (void)dealloc {
  // mtlresidencyset: what it holds stays resident, so its memory must not go
  if (in_sets().contains((__bridge const void*)self)) {
    fault("a buffer is released that a residency set holds");
  }
}
- (void*)contents {
  return _memory->contents();
}
- (BOOL)isLent {
  return !_memory->writable();
}
- (NSUInteger)length {
  return _length;
}
- (Region)regionAt:(NSUInteger)offset length:(NSUInteger)length {
  if (offset > _length || length > _length - offset) {
    fault(text("bytes", length) + text(" at", offset) + text(" of a buffer of", _length));
  }
  return {_memory, offset, length};
}
@end

@implementation MTLCompileOptions
@synthesize languageVersion, mathMode, mathFloatingPointFunctions;
@end

@implementation MTLArchitecture
- (NSString*)name {
  const std::string letter = knobs().phone != 0 ? "p" : "s";
  const std::string text = "applegpu_g" + std::to_string(knobs().gpu_generation) + letter;
  return [NSString stringWithUTF8String:text.c_str()];
}
@end

@interface DoubleFunction : NSObject <MTLFunction> {
 @public
  std::shared_ptr<Kernel> kernel;
}
@end
@implementation DoubleFunction
@end

@interface DoubleBinding : NSObject <MTLBinding> {
 @public
  NSString* _name;
  NSUInteger _index;
}
@end
@implementation DoubleBinding
- (NSString*)name {
  return _name;
}
- (MTLBindingType)type {
  return MTLBindingTypeBuffer;
}
- (NSUInteger)index {
  return _index;
}
- (BOOL)isUsed {
  return YES;
}
@end

@implementation MTLComputePipelineReflection {
  NSMutableArray<id<MTLBinding>>* _bindings;
}
+ (MTLComputePipelineReflection*)of:(const Kernel&)kernel {
  MTLComputePipelineReflection* made = [[self alloc] init];
  made->_bindings = [NSMutableArray arrayWithCapacity:kernel.buffers().size()];
  for (const auto& [index, name] : kernel.buffers()) {
    DoubleBinding* binding = [[DoubleBinding alloc] init];
    binding->_name = [NSString stringWithUTF8String:name.c_str()];
    binding->_index = index;
    [made->_bindings addObject:binding];
  }
  return made;
}
- (NSArray<id<MTLBinding>>*)bindings {
  return _bindings;
}
@end

@interface DoublePipeline : NSObject <MTLComputePipelineState> {
 @public
  std::shared_ptr<Kernel> kernel;
}
@end
@implementation DoublePipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return kernel->max_threads_per_group();
}
- (NSUInteger)threadExecutionWidth {
  return kernel->simd_width();
}
@end

@interface DoubleLibrary : NSObject <MTLLibrary> {
 @public
  std::shared_ptr<ShaderLibrary> shaders;
  id<MTLDevice> owner;
}
@end
@implementation DoubleLibrary
- (id<MTLDevice>)device {
  return owner;
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
  try {
    DoubleFunction* made = [[DoubleFunction alloc] init];
    made->kernel = shaders->kernel(name.UTF8String);
    return made;
  } catch (const menagerie::Error&) {
    return nil;  // mtllibrary/makefunction(name:): nil if there is none
  }
}
@end

@interface DoubleEncoder : NSObject <MTLCommandEncoder> {
 @public
  DoubleCommandBuffer* buffer;
  bool ended;
}
@end
@implementation DoubleEncoder
- (void)mustBeOpenFor:(const char*)action {
  if (ended) fault(std::string(action) + " after endEncoding");
  [buffer mustBeOpenFor:action];
}
- (void)endEncoding {
  [self mustBeOpenFor:"endEncoding"];
  ended = true;
  [buffer encoderHasEnded];
}
- (void)dealloc {
  // Metal's own assertion: "Command encoder released without endEncoding"
  if (!ended) fault("a command encoder is released without endEncoding");
}
@end

@interface DoubleComputeEncoder : DoubleEncoder <MTLComputeCommandEncoder> {
  DoublePipeline* _pipeline;
  std::vector<Argument> _arguments;
  std::vector<id> _bound;
}
@end
@implementation DoubleComputeEncoder
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self mustBeOpenFor:"setComputePipelineState"];
  if (state == nil) fault("the pipeline state is nil");
  _pipeline = (DoublePipeline*)state;
}
- (void)place:(const Argument&)argument {
  if (argument.index >= kMostArguments) fault(text("an argument has index", argument.index));
  const auto same = std::find_if(_arguments.begin(), _arguments.end(), [&](const Argument& other) {
    return other.index == argument.index;
  });
  if (same != _arguments.end()) {
    *same = argument;
  } else {
    _arguments.push_back(argument);
  }
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  [self mustBeOpenFor:"setBytes"];
  // mtlcomputecommandencoder/setbytes(_:length:index:): less than 4 KB
  if (bytes == nullptr || length == 0 || length > kMostInlineBytes) {
    fault(text("setBytes with a length of", length));
  }
  if (length > kMaxInlineBytes) fault(text("the device sets more bytes than it says:", length));
  Argument argument{static_cast<uint32_t>(index), {}, {}, length};
  std::copy_n(static_cast<const std::byte*>(bytes), length, argument.value.begin());
  [self place:argument];
}
- (void)setBuffer:(id<MTLBuffer>)given offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self mustBeOpenFor:"setBuffer"];
  if (given == nil) fault("the buffer is nil");
  DoubleBuffer* bound = (DoubleBuffer*)given;
  // Metal's validation: the offset is within the buffer
  if (offset >= bound.length) {
    fault(text("offset", offset) + text(" of a buffer of", bound.length) + " bytes");
  }
  [self place:{static_cast<uint32_t>(index), [bound regionAt : offset length : 0], {}, 0}];
  const bool again = std::find(_bound.begin(), _bound.end(), bound) != _bound.end();
  _bound.push_back(bound);
  if (!bound.isLent && !again) counts().bytes += static_cast<int64_t>(bound.length - offset);
}
- (const std::byte*)valueAt:(uint32_t)index {
  const auto found = std::find_if(_arguments.begin(), _arguments.end(),
                                  [&](const Argument& other) { return other.index == index; });
  return found->value.data();
}
// Of the kernels that multiply, by their arguments.
- (int64_t)operationsOf:(MTLSize)threads {
  const std::string& name = _pipeline->kernel->name();
  if (name.starts_with("convolve_elements_") || name.starts_with("convolve_channels_")) {
    std::array<int32_t, 3> image;
    std::array<int32_t, 2> window;
    int32_t groups = 1;
    std::memcpy(image.data(), [self valueAt:4], sizeof image);
    std::memcpy(window.data(), [self valueAt:6], sizeof window);
    std::memcpy(&groups, [self valueAt:7], sizeof groups);
    const int64_t terms = int64_t{image[0]} / groups * window[0] * window[1];
    return 2 * terms * (name.starts_with("convolve_channels_") ? 4 : 1) *
           static_cast<int64_t>(threads.width);
  }
  if (name.starts_with("multiply_") || name.starts_with("convolve_")) {
    std::array<uint32_t, 3> sizes;  // m, n, k
    uint32_t parts = 1;
    std::memcpy(sizes.data(), [self valueAt:4], sizeof sizes);
    const uint32_t last = name.starts_with("convolve_") ? 15 : 14;
    std::memcpy(&parts, [self valueAt:last], sizeof parts);
    return int64_t{2} * sizes[0] * sizes[1] * sizes[2] *
           static_cast<int64_t>(threads.depth / parts);
  }
  if (name.starts_with("attend_")) {
    std::array<uint32_t, 6> sizes;  // heads, sharing, queries, keys, width, columns
    std::memcpy(sizes.data(), [self valueAt:5], sizeof sizes);
    const bool one = name.starts_with("attend_one_");
    const auto heads = static_cast<int64_t>(one ? threads.width / kThreadsOfOne : threads.depth);
    return 2 * heads * sizes[2] * sizes[3] * (int64_t{sizes[4]} + sizes[5]);
  }
  if (name.starts_with("dot_rows_") || name.starts_with("sum_columns_")) {
    std::array<uint32_t, 2> sizes;  // n, k
    std::memcpy(sizes.data(), [self valueAt:4], sizeof sizes);
    return int64_t{2} * sizes[0] * sizes[1] * static_cast<int64_t>(threads.height);
  }
  return 0;
}
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group {
  [self mustBeOpenFor:"dispatchThreads"];
  if (_pipeline == nil) fault("a dispatch without a pipeline state");
  const NSUInteger size = group.width * group.height * group.depth;
  // mtlcomputepipelinestate/maxtotalthreadsperthreadgroup
  if (size == 0 || size > _pipeline.maxTotalThreadsPerThreadgroup) {
    fault(text("a threadgroup of", size) + " threads");
  }
  if (threads.width * threads.height * threads.depth == 0) fault("a grid without threads");
  const Grid grid{{threads.width, threads.height, threads.depth},
                  {group.width, group.height, group.depth}};
  ++counts().dispatches;
  counts().by_units += _pipeline->kernel->name().starts_with("multiply_by_units");
  counts().threads += static_cast<int64_t>(threads.width * threads.height * threads.depth);
  counts().operations += [self operationsOf:threads];
  [buffer add:encoded([&](Stream& stream) { stream.dispatch(_pipeline->kernel, _arguments, grid); })
      keeping:_pipeline];
  for (id each : _bound) [buffer add:nullptr keeping:each];
  _bound.clear();
}
@end

enum class Stage { kOpen, kCommitted, kCompleted };

@implementation DoubleCommandBuffer {
  id<MTLCommandQueue> _queue;
  std::vector<Work> _work;
  std::vector<id> _kept;  // mtlcommandqueue/makecommandbuffer(): it keeps what its commands need
  Stage _stage;
  bool _encoding;
  NSError* _error;
}
- (instancetype)initWithQueue:(id<MTLCommandQueue>)queue {
  _queue = queue;
  return self;
}
- (void)mustBeOpenFor:(const char*)action {
  if (_stage != Stage::kOpen) fault(std::string(action) + " on a command buffer that is committed");
}
- (void)mustHaveNoEncoderFor:(const char*)action {
  // mtlcommandencoder: one at a time, ended before the next begins or the buffer is committed
  if (_encoding) fault(std::string(action) + " while an encoder is open");
}
- (void)encoderHasEnded {
  _encoding = false;
}
- (void)begin:(DoubleEncoder*)encoder {
  [self mustBeOpenFor:"a new encoder"];
  [self mustHaveNoEncoderFor:"a new encoder"];
  encoder->buffer = self;
  _encoding = true;
  ++counts().encoders;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  DoubleComputeEncoder* encoder = [[DoubleComputeEncoder alloc] init];
  [self begin:encoder];
  return encoder;
}
- (void)add:(Work)work keeping:(id)object {
  if (work != nullptr) _work.push_back(std::move(work));
  if (object != nil && (_kept.empty() || _kept.back() != object)) _kept.push_back(object);
}
- (void)commit {
  [self mustBeOpenFor:"commit"];
  [self mustHaveNoEncoderFor:"commit"];
  const std::lock_guard lock(running());
  _stage = Stage::kCommitted;
  ++counts().commits;
  committed().push_back(self);
  // The queue has no room for more: the host would wait for the first.
  if (committed().size() > kMostUncompleted) [committed().front() execute];
}
// As late as a GPU may, and in the order of commits: a read without waiting finds poison.
- (void)waitUntilCompleted {
  if (_stage == Stage::kOpen) fault("waitUntilCompleted before commit never ends");
  const std::lock_guard lock(running());
  while (_stage == Stage::kCommitted) [committed().front() execute];
}
- (void)execute {
  DoubleCommandBuffer* self_kept = self;
  committed().erase(committed().begin());
  if (knobs().failing_buffer >= 0 && knobs().failing_buffer-- == 0) {
    _error = [NSError errorWithText:"the double is set to fail"];
  } else {
    try {
      for (const Work& work : _work) work();
    } catch (...) {  // the rest is dropped
      _error = [NSError errorWithText:said(std::current_exception())];
    }
  }
  _work.clear();
  _kept.clear();
  self_kept->_stage = Stage::kCompleted;
}
- (NSError*)error {
  return _error;
}
- (void)dealloc {
  if (_encoding) fault("a command buffer is released while an encoder is open");
}
@end

@implementation MTLResidencySetDescriptor
@end

@interface DoubleResidencySet : NSObject <MTLResidencySet>
@end
@implementation DoubleResidencySet {
  std::set<const void*> _held;       // with what commit has not made so yet
  std::set<const void*> _committed;  // mtlresidencyset/commit()
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  if (allocation == nil) fault("a residency set is given nil");
  _held.insert((__bridge const void*)allocation);
  in_sets().insert((__bridge const void*)allocation);
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  const void* address = (__bridge const void*)allocation;
  if (_held.erase(address) == 0) fault("a residency set does not hold what is removed from it");
  in_sets().erase(address);
}
- (void)commit {
  _committed = _held;
  std::erase_if(resident(), [&](const void* each) { return !_committed.contains(each); });
}
- (void)requestResidency {
  // mtlresidencyset/requestresidency(): of what was committed
  resident().insert(_committed.begin(), _committed.end());
}
@end

@interface DoubleQueue : NSObject <MTLCommandQueue>
@end
@implementation DoubleQueue
- (id<MTLCommandBuffer>)commandBuffer {
  return [[DoubleCommandBuffer alloc] initWithQueue:self];
}
- (void)addResidencySet:(id<MTLResidencySet>)set {
  if (set == nil) fault("a command queue is given no residency set");
}
@end

@interface DoubleDevice : NSObject <MTLDevice>
@end
@implementation DoubleDevice
- (NSString*)name {
  return [NSString stringWithUTF8String:"double of an Apple GPU, emulated on the host's processor"];
}
- (MTLArchitecture*)architecture {
  return [[MTLArchitecture alloc] init];
}
- (NSUInteger)maxBufferLength {
  return static_cast<NSUInteger>(knobs().most_buffer_bytes);
}
- (id<MTLCommandQueue>)newCommandQueue {
  return [[DoubleQueue alloc] init];
}
- (DoubleBuffer*)bufferOf:(std::shared_ptr<HostBuffer>)memory {
  const size_t bytes = memory->bytes();
  return [[DoubleBuffer alloc] initWithMemory:std::move(memory) length:bytes];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  // Metal's validation: a buffer of length zero
  if (length == 0) fault("a buffer of length zero");
  if (options != MTLResourceStorageModeShared) fault("the storage is not shared");
  if (length > self.maxBufferLength) return nil;
  return [self bufferOf:menagerie::metal::emulated::allocate_buffer(length)];
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)bytes
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  DoubleBuffer* made = (DoubleBuffer*)[self newBufferWithLength:length options:options];
  if (made != nil) {
    std::copy_n(static_cast<const char*>(bytes), length, static_cast<char*>(made.contents));
  }
  return made;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void* bytes, NSUInteger length))deallocator {
  // mtldevice/makebuffer(bytesnocopy:length:options:deallocator:): whole pages, page-aligned
  const auto page = static_cast<NSUInteger>(::getpagesize());
  if (reinterpret_cast<uintptr_t>(bytes) % page != 0 || length % page != 0 || length == 0) {
    fault(text("memory of", length) + " bytes is wrapped that are not whole pages");
  }
  if (options != MTLResourceStorageModeShared) fault("the storage is not shared");
  if (deallocator != nullptr) fault("a deallocator is not called here");
  if (length > self.maxBufferLength) return nil;
  auto memory = menagerie::metal::emulated::wrap_buffer(bytes, length, nullptr);
  return [[DoubleBuffer alloc] initWithMemory:std::move(memory)
                                       length:knobs().empty_wraps != 0 ? 0 : length];
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
  // Fast math is the default (mtlcompileoptions/mathmode), and eager's bits are lost with it.
  if (options == nil || options.mathMode != MTLMathModeSafe ||
      options.mathFloatingPointFunctions != MTLMathFloatingPointFunctionsPrecise) {
    fault("shaders are compiled with fast math");
  }
  std::string shaders = source.UTF8String;
  const bool tensors = shaders.find("<metal_tensor>") != std::string::npos;
  const MTLLanguageVersion wanted = tensors ? 4 << 16 : MTLLanguageVersion3_1;
  if (options.languageVersion != wanted) fault("bfloat needs Metal 3.1, tensors need Metal 4");
  if (tensors && knobs().metal_4 == 0) {
    *error = [NSError errorWithText:"'MetalPerformancePrimitives.h' file not found"];
    return nil;
  }
  if (tensors && knobs().metal_4 == 2) {
    const std::string sum = "= sums[i]";
    shaders.insert(shaders.find(sum) + sum.size(), " + 1.0f");
  }
  DoubleLibrary* made = [[DoubleLibrary alloc] init];
  made->owner = self;
  try {
    made->shaders = menagerie::metal::emulated::load_shaders(shaders);
  } catch (const menagerie::Error& failure) {
    *error = [NSError errorWithText:failure.what()];
    return nil;
  }
  return made;
}
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                options:(MTLPipelineOption)options
                             reflection:(MTLComputePipelineReflection**)reflection
                                  error:(NSError**)error {
  if (function == nil) fault("the function is nil");
  DoublePipeline* made = [[DoublePipeline alloc] init];
  made->kernel = ((DoubleFunction*)function)->kernel;
  if ((options & MTLPipelineOptionBindingInfo) != 0) {
    *reflection = [MTLComputePipelineReflection of:*made->kernel];
  }
  return made;
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError**)error {
  if (descriptor == nil) fault("a residency set without a descriptor");
  if (knobs().no_residency_sets == 0) return [[DoubleResidencySet alloc] init];
  *error = [NSError errorWithText:"the double is set to give no residency sets"];
  return nil;
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice() {
  return knobs().no_default_device != 0 ? nil : [[DoubleDevice alloc] init];
}

NSArray<id<MTLDevice>>* MTLCopyAllDevices() {
  NSMutableArray* devices = [NSMutableArray arrayWithCapacity:1];
  [devices addObject:[[DoubleDevice alloc] init]];
  return devices;
}
