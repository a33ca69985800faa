#import "metal/apple/device.h"

#include <unistd.h>

#import "metal/apple/support.h"

namespace menagerie::metal {
namespace {

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
      id<MTLComputePipelineState> pipeline =
          [library_.device newComputePipelineStateWithFunction:function error:&error];
      require(pipeline != nil, "kernel ", name, ": ", text_of(error));
      kernel = std::make_shared<AppleKernel>(name, pipeline);
    });
    return kernel;
  }

 private:
  id<MTLLibrary> library_;
};

class AppleDevice final : public MetalDevice {
 public:
  AppleDevice() : device_(MTLCreateSystemDefaultDevice()) {
    require(device_ != nil, "this Mac offers no Metal device to this process");
  }

  std::string name() const override { return text_of(device_.name); }

  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    std::shared_ptr<Buffer> buffer;
    in_pool("allocating a buffer", [&] {
      // Metal has no empty buffers; an empty tensor still needs something to bind.
      id<MTLBuffer> memory = [device_ newBufferWithLength:bytes > 0 ? bytes : 1
                                                  options:MTLResourceStorageModeShared];
      require(memory != nil, "the device has no ", bytes, " bytes left");
      buffer = std::make_shared<AppleBuffer>(memory, bytes, nullptr);
    });
    return buffer;
  }

  std::shared_ptr<Buffer> wrap(const void* data, size_t bytes,
                               std::shared_ptr<const void> owner) override {
    std::shared_ptr<Buffer> buffer;
    in_pool("lending memory to the device", [&] {
      id<MTLBuffer> memory = wrapped(data, bytes);
      if (memory == nil) {
        memory = [device_ newBufferWithBytes:data
                                      length:bytes
                                     options:MTLResourceStorageModeShared];
        owner = nullptr;
      }
      require(memory != nil, "the device cannot take ", bytes, " bytes");
      buffer = std::make_shared<AppleBuffer>(memory, bytes, std::move(owner));
    });
    return buffer;
  }

  std::shared_ptr<ShaderLibrary> compile(const std::string& source) override {
    std::shared_ptr<ShaderLibrary> library;
    in_pool("compiling shaders", [&] {
      MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
      options.languageVersion = MTLLanguageVersion3_1;
      // NaN, infinity and the last bits must come out as eager's do.
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

  std::unique_ptr<Stream> make_stream() override { return make_apple_stream(device_); }

 private:
  // Without a copy, or nil: only whole pages can be wrapped. Mapped files and large allocations
  // begin at a page, and what follows their end in its last page may be addressed too.
  id<MTLBuffer> wrapped(const void* data, size_t bytes) {
    const auto page = static_cast<size_t>(::getpagesize());
    if (bytes == 0 || reinterpret_cast<uintptr_t>(data) % page != 0) return nil;
    return [device_ newBufferWithBytesNoCopy:const_cast<void*>(data)
                                      length:(bytes + page - 1) / page * page
                                     options:MTLResourceStorageModeShared
                                 deallocator:nil];
  }

  id<MTLDevice> device_;
};

}  // namespace

MetalDevice& MetalDevice::instance() {
  // Never destroyed: generated code gives its shader libraries back when the process ends.
  static auto* device = new AppleDevice();
  return *device;
}

}  // namespace menagerie::metal
