#include "metal/emulated/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/error.h"

namespace menagerie::metal::emulated {
namespace {

// More than a signed 32-bit index of eight-byte elements can reach on one side.
constexpr size_t kGuardBytes = size_t{4} << 30;
constexpr int kPoison = 0xFF;

class Allocated final : public HostBuffer {
 public:
  explicit Allocated(size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t inside = (bytes + page - 1) / page * page;
    require(inside >= bytes && inside < SIZE_MAX - 2 * kGuardBytes, "a buffer of ", bytes,
            " bytes is too large");
    reserved_bytes_ = inside + 2 * kGuardBytes;
    reserved_ = ::mmap(nullptr, reserved_bytes_, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(reserved_ != MAP_FAILED, "no addresses for a buffer of ", bytes,
            " bytes: ", std::strerror(errno));
    contents_ = static_cast<std::byte*>(reserved_) + kGuardBytes;
    if (inside > 0 && ::mprotect(contents_, inside, PROT_READ | PROT_WRITE) != 0) {
      ::munmap(reserved_, reserved_bytes_);
      fail("no memory for a buffer of ", bytes, " bytes: ", std::strerror(errno));
    }
    std::memset(contents_, kPoison, bytes);
  }
  Allocated(const Allocated&) = delete;
  Allocated& operator=(const Allocated&) = delete;
  ~Allocated() override { ::munmap(reserved_, reserved_bytes_); }

  void* contents() const override { return contents_; }
  size_t bytes() const override { return bytes_; }
  bool writable() const override { return true; }

 private:
  size_t bytes_;
  void* reserved_;
  size_t reserved_bytes_;
  std::byte* contents_;
};

class Wrapped final : public HostBuffer {
 public:
  Wrapped(const void* data, size_t bytes, std::shared_ptr<const void> owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}

  void* contents() const override { return const_cast<void*>(data_); }  // guarded by writable()
  size_t bytes() const override { return bytes_; }
  bool writable() const override { return false; }

 private:
  const void* data_;
  size_t bytes_;
  std::shared_ptr<const void> owner_;
};

class Part final : public HostBuffer {
 public:
  Part(std::shared_ptr<HostBuffer> whole, size_t bytes) : whole_(std::move(whole)), bytes_(bytes) {
    require(bytes <= whole_->bytes(), bytes, " bytes of a buffer of ", whole_->bytes());
  }

  void* contents() const override { return whole_->contents(); }
  size_t bytes() const override { return bytes_; }
  bool writable() const override { return whole_->writable(); }

 private:
  std::shared_ptr<HostBuffer> whole_;
  size_t bytes_;
};

}  // namespace

std::shared_ptr<Buffer> HostBuffer::first(size_t bytes) {
  return std::make_shared<Part>(shared_from_this(), bytes);
}

std::shared_ptr<HostBuffer> allocate_buffer(size_t bytes) {
  return std::make_shared<Allocated>(bytes);
}

std::shared_ptr<HostBuffer> wrap_buffer(const void* data, size_t bytes,
                                        std::shared_ptr<const void> owner) {
  return std::make_shared<Wrapped>(data, bytes, std::move(owner));
}

std::byte* checked_address(const Region& region, size_t bytes, bool write, const char* what) {
  require(region.buffer != nullptr, what, ": an operand has no buffer");
  const auto& buffer = static_cast<const HostBuffer&>(*region.buffer);
  require(region.offset <= buffer.bytes() && bytes <= buffer.bytes() - region.offset, what, ": ",
          bytes, " bytes at byte ", region.offset, " of a buffer of ", buffer.bytes(), " bytes");
  require(!write || buffer.writable(), what, ": writes to memory that is lent read-only");
  return static_cast<std::byte*>(buffer.contents()) + region.offset;
}

}  // namespace menagerie::metal::emulated
