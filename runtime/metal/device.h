// What the Metal operators need of a GPU, and no more. Two devices implement it: apple/ with Metal,
// emulated/ on the host. Work is encoded on a stream and runs, in order, no later
// than the stream's next synchronize(); until then the host sees none of its results.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/caches.h"
#include "common/dtype.h"
#include "common/error.h"
#include "common/tensor.h"

namespace menagerie::metal {

// Memory that the host and the device both address.
class Buffer : public DeviceMemory {
 public:
  virtual size_t bytes() const = 0;
  // The same memory as a buffer of fewer bytes.
  virtual std::shared_ptr<Buffer> first(size_t bytes) = 0;
};

// A place in a buffer. Views bind their parent's buffer at an offset; there is no second buffer
// over the same memory.
struct Region {
  std::shared_ptr<Buffer> buffer;
  size_t offset = 0;  // bytes
  size_t bytes = 0;   // that work may address from there, as far as known
};

// A compute function, ready to be dispatched.
class Kernel {
 public:
  // `buffers` are the names of those that it takes, by index.
  explicit Kernel(std::map<uint32_t, std::string> buffers) : buffers_(std::move(buffers)) {}
  virtual ~Kernel() = default;
  const std::map<uint32_t, std::string>& buffers() const { return buffers_; }
  virtual const std::string& name() const = 0;
  virtual uint64_t max_threads_per_group() const = 0;
  virtual uint64_t simd_width() const = 0;

 private:
  std::map<uint32_t, std::string> buffers_;
};

class ShaderLibrary {
 public:
  virtual ~ShaderLibrary() = default;
  // Fails, naming the function, if the library has none of this name.
  virtual std::shared_ptr<Kernel> kernel(const std::string& name) = 0;
};

inline constexpr size_t kMaxInlineBytes = 64;

// One argument of a dispatch: a place in a buffer, or a few bytes by value.
struct Argument {
  uint32_t index = 0;
  Region region;  // without a buffer: by value
  std::array<std::byte, kMaxInlineBytes> value{};
  size_t value_bytes = 0;
};

// Threads in all and threads a group, as dispatchThreads:threadsPerThreadgroup: takes them: the
// last groups may be smaller.
struct Grid {
  std::array<uint64_t, 3> threads{1, 1, 1};
  std::array<uint64_t, 3> group{1, 1, 1};
};

enum class ImageLayout { kNchw, kNhwc };

// Everything that shapes a convolution of dense images. One-dimensional ones have height 1. The
// weight lies as [O, C / groups, KH, KW], or as [C, O / groups, KH, KW] when transposed, the result
// as [N, O, H, W].
struct ConvolutionDescriptor {
  Dtype dtype = Dtype::kFloat32;  // of all operands: float32, float16 or bfloat16
  ImageLayout input_layout = ImageLayout::kNchw;
  int64_t batch = 1, in_channels = 0, in_height = 0, in_width = 0;
  int64_t out_channels = 0, out_height = 0, out_width = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  std::array<int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1}, output_padding{0, 0};
  bool transposed = false;
  int64_t groups = 1;
  bool has_bias = false;  // [O]
  bool gated = false;     // see is_gated in metal/products.h

  Key key() const {  // all of it
    Key key("convolution");
    key.add(static_cast<int64_t>(dtype)).add(static_cast<int64_t>(input_layout));
    key.add(batch).add(in_channels).add(in_height).add(in_width).add(out_channels).add(out_height);
    key.add(out_width).add(kernel_height).add(kernel_width).add(stride).add(padding).add(dilation);
    key.add(output_padding);
    return key.add(int64_t{transposed}).add(groups).add(int64_t{has_bias}).add(int64_t{gated});
  }
};

struct ConvolutionOperands {
  Region input, weight, bias, out;
};

// An ordered queue of work, used by one thread at a time. What it is given stays alive until it has
// run; it may begin to run at once. Errors of the device surface in synchronize().
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void dispatch(const std::shared_ptr<Kernel>& kernel, std::span<const Argument> arguments,
                        const Grid& grid) = 0;
  // By the library of an emulated device (MetalDevice::library_from).
  // out[B, M, N] = alpha * a[1 or B, M, K] * b[1 or B, K, N] + beta * addend, which broadcasts.
  virtual void matmul(const Tensor& /*out*/, const Tensor& /*a*/, const Tensor& /*b*/,
                      const Tensor* /*addend*/, float /*alpha*/, float /*beta*/) {
    fail_without_library();
  }
  virtual void convolution(const ConvolutionDescriptor&, const ConvolutionOperands&) {
    fail_without_library();
  }
  // What `encode` dispatches is a part of the library's work, which no GPU does so: no access to
  // memory is checked.
  virtual void for_library(const std::function<void()>&) { fail_without_library(); }
  // Of what `encode` dispatches, runs a few groups alone: those at the ends and in the middle. What
  // they write takes the place of the library's numbers.
  virtual void sample(const std::function<void()>&) { fail_without_library(); }
  // Runs all that was encoded and waits for it.
  virtual void synchronize() = 0;

 private:
  [[noreturn]] static void fail_without_library() { fail("a GPU has no library of products"); }
};

class MetalDevice {
 public:
  virtual ~MetalDevice() = default;
  // "Apple M2", or "emulated" with what emulates it.
  virtual std::string name() const = 0;
  virtual std::shared_ptr<Buffer> allocate(size_t bytes) = 0;
  // The caller's memory without a copy where the device can (page-aligned), else a copy. It is
  // never written. The owner is kept for as long as the buffer.
  virtual std::shared_ptr<Buffer> wrap(const void* data, size_t bytes,
                                       std::shared_ptr<const void> owner) = 0;
  // Compiles Metal source, of Metal 4 where it includes operations on tensors; fails with the
  // compiler's first error.
  virtual std::shared_ptr<ShaderLibrary> compile(const std::string& source) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // Whether it has units for matrices of half precision, which kernels reach through Metal 4.
  virtual bool has_matrix_units() const { return false; }
  // An emulated device saves time: from so many operations on a product, a convolution or an
  // attention (two products, and a softmax between them) is its library's, and a kernel computes a
  // sample of it. A GPU computes all by kernels.
  virtual double library_from() const { return std::numeric_limits<double>::infinity(); }
  // The same where a kernel has computed one of the same sizes in this run, which proves the rest.
  virtual double repeated_from() const { return std::numeric_limits<double>::infinity(); }

  // This process's device: the build links one of the two.
  static MetalDevice& instance();
};

}  // namespace menagerie::metal
