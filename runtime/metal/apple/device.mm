#import "metal/apple/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#import "metal/apple/support.h"

namespace menagerie::metal {

struct Residency::Kept {
  Residency& residency;
  std::shared_ptr<const void> owner;
  std::vector<id<MTLBuffer>> buffers;

  // The set releases the buffers before they, and then their memory, are freed.
  ~Kept() {
    @autoreleasepool {
      const std::lock_guard lock(residency.mutex_);
      for (id<MTLBuffer> buffer : buffers) [residency.set_ removeAllocation:buffer];
      [residency.set_ commit];
    }
  }
};

Residency::Residency(id<MTLDevice> device) {
  if (@available(macOS 15.0, *)) {
    in_pool("making a residency set", [&] {
      NSError* error = nil;  // without a set the system decides
      set_ = [device newResidencySetWithDescriptor:[[MTLResidencySetDescriptor alloc] init]
                                             error:&error];
    });
  }
}

std::shared_ptr<const void> Residency::keep(std::vector<id<MTLBuffer>> buffers,
                                            std::shared_ptr<const void> owner) {
  const std::lock_guard lock(mutex_);
  for (id<MTLBuffer> buffer : buffers) [set_ addAllocation:buffer];
  [set_ commit];
  [set_ requestResidency];
  return std::shared_ptr<const Kept>(new Kept{*this, std::move(owner), std::move(buffers)});
}

void Residency::serve(id<MTLCommandQueue> queue) const {
  if (set_ != nil) [queue addResidencySet:set_];
}

namespace {

// Return the buffers that the kernel reads or writes; the compiler omits what it does not use.
std::map<uint32_t, std::string> buffers_of(MTLComputePipelineReflection* reflection) {
  std::map<uint32_t, std::string> buffers;
  for (NSUInteger i = 0; i < reflection.bindings.count; ++i) {
    id<MTLBinding> binding = [reflection.bindings objectAtIndex:i];
    if (binding.type == MTLBindingTypeBuffer && binding.used) {
      buffers[static_cast<uint32_t>(binding.index)] = text_of(binding.name);
    }
  }
  return buffers;
}

class AppleLibrary final : public ShaderLibrary {
 public:
  explicit AppleLibrary(id<MTLLibrary> library) : library_(library) {}

  std::shared_ptr<Kernel> kernel(const std::string& name) override {
    std::shared_ptr<Kernel> kernel;
    in_pool("preparing kernel " + name, [&] {
      id<MTLFunction> function =
          [library_ newFunctionWithName:[NSString stringWithUTF8String:name.c_str()]];
      require(function != nil, "the shader library has no kernel ", name);
      NSError* error = nil;
      MTLComputePipelineReflection* reflection = nil;
      id<MTLComputePipelineState> pipeline =
          [library_.device newComputePipelineStateWithFunction:function
                                                       options:MTLPipelineOptionBindingInfo
                                                    reflection:&reflection
                                                         error:&error];
      require(pipeline != nil, "kernel ", name, ": ", text_of(error));
      kernel = std::make_shared<AppleKernel>(name, pipeline, buffers_of(reflection));
    });
    return kernel;
  }

 private:
  id<MTLLibrary> library_;
};

// A process without a session at the screen may have no default device but still have devices.
id<MTLDevice> the_device() {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  if (device == nil) device = MTLCopyAllDevices().firstObject;
  require(device != nil, "this Mac offers no Metal device to this process");
  return device;
}

// Return whether the GPU has matrix units. Its architecture's name ends with its generation and a
// letter, p for a phone's: applegpu_g17s. For those with the units, and since which system, see
// github.com/ml-explore/mlx, is_nax_available() of mlx/backend/metal/device.cpp.
bool finds_matrix_units(id<MTLDevice> device) {
  if (@available(macOS 26.2, *)) {
    const std::string name = text_of(device.architecture.name);
    const size_t at = name.rfind("_g");
    if (at == std::string::npos) return false;
    return std::atoi(name.c_str() + at + 2) >= (name.back() == 'p' ? 18 : 17);
  }
  return false;
}

// Headers before macOS 26 do not declare it.
constexpr auto kMetal4 = static_cast<MTLLanguageVersion>(4 << 16);

size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(::getpagesize());
  return (bytes + page - 1) / page * page;
}

class AppleDevice final : public MetalDevice {
 public:
  AppleDevice()
      : device_(the_device()),
        residency_(device_),
        has_matrix_units_(finds_matrix_units(device_)) {}

  std::string name() const override { return text_of(device_.name); }

  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    std::shared_ptr<Buffer> buffer;
    in_pool("allocating a buffer", [&] {
      const size_t most = device_.maxBufferLength;
      require(bytes <= most, bytes, " bytes are more than the device's longest buffer, ", most);
      // Metal has no empty buffers; an empty tensor still needs something to bind.
      id<MTLBuffer> memory = [device_ newBufferWithLength:bytes > 0 ? bytes : 1
                                                  options:MTLResourceStorageModeShared];
      require(memory != nil, "the device has no ", bytes, " bytes left");
      buffer = std::make_shared<AppleBuffer>(memory, bytes);
    });
    return buffer;
  }

  std::shared_ptr<Buffer> wrap(const void* data, size_t bytes,
                               std::shared_ptr<const void> owner) override {
    if (bytes == 0) return allocate(0);
    std::shared_ptr<Buffer> buffer;
    in_pool("lending memory to the device", [&] {
      auto views = wrapped(data, bytes);
      if (!views.empty()) {
        std::vector<id<MTLBuffer>> buffers;
        for (const auto& view : views) buffers.push_back(view.buffer);
        buffer =
            std::make_shared<AppleBuffer>(std::move(views), const_cast<void*>(data), bytes,
                                          residency_.keep(std::move(buffers), std::move(owner)));
        return;
      }
      id<MTLBuffer> memory = [device_ newBufferWithBytes:data
                                                  length:bytes
                                                 options:MTLResourceStorageModeShared];
      require(memory != nil, "the device cannot take ", bytes, " bytes; its longest buffer has ",
              static_cast<size_t>(device_.maxBufferLength));
      buffer = std::make_shared<AppleBuffer>(memory, bytes);
    });
    return buffer;
  }

  std::shared_ptr<ShaderLibrary> compile(const std::string& source) override {
    std::shared_ptr<ShaderLibrary> library;
    in_pool("compiling shaders", [&] {
      MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
      const bool tensors = source.find("<MetalPerformancePrimitives/") != std::string::npos;
      options.languageVersion = tensors ? kMetal4 : MTLLanguageVersion3_1;
      // NaN, infinity and the last bits must match eager's.
      options.mathMode = MTLMathModeSafe;
      options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
      NSError* error = nil;
      id<MTLLibrary> compiled =
          [device_ newLibraryWithSource:[NSString stringWithUTF8String:source.c_str()]
                                options:options
                                  error:&error];
      require(compiled != nil, "the shaders do not compile: ", text_of(error));
      library = std::make_shared<AppleLibrary>(compiled);
    });
    return library;
  }

  std::unique_ptr<Stream> make_stream() override { return make_apple_stream(device_, residency_); }

  bool has_matrix_units() const override { return has_matrix_units_; }

 private:
  // Wrap memory without a copy, or return no views: only whole pages can be wrapped. Mapped files
  // and large allocations begin at a page, and what follows their end in the last page may be
  // addressed too. A virtual Mac returns buffers of length zero (github.com/actions/runner-images,
  // issue 10663). For a length beyond the longest buffer, each view begins a quarter of that after
  // the one before, so that any three quarters of it lie in one view.
  std::vector<AppleBuffer::View> wrapped(const void* data, size_t bytes) {
    const auto page = static_cast<size_t>(::getpagesize());
    if (reinterpret_cast<uintptr_t>(data) % page != 0) return {};
    const size_t whole = whole_pages(bytes);
    const size_t most = device_.maxBufferLength / page * page;
    const size_t step = whole_pages(most / 4);
    std::vector<AppleBuffer::View> views;
    for (size_t begin = 0; begin == 0 || views.back().begin + views.back().bytes < whole;
         begin += step) {
      const size_t length = std::min(most, whole - begin);
      auto* start = static_cast<std::byte*>(const_cast<void*>(data)) + begin;
      id<MTLBuffer> buffer = [device_ newBufferWithBytesNoCopy:start
                                                        length:length
                                                       options:MTLResourceStorageModeShared
                                                   deallocator:nil];
      if (buffer == nil || buffer.length < length) return {};
      views.push_back({buffer, begin, length});
    }
    return views;
  }

  id<MTLDevice> device_;
  Residency residency_;
  bool has_matrix_units_;
};

}  // namespace

MetalDevice& MetalDevice::instance() {
  // Never destroyed: generated code releases its shader libraries when the process ends.
  static auto* device = new AppleDevice();
  return *device;
}

}  // namespace menagerie::metal
