// Device buffers that a program gave back, kept for its next ones: a buffer costs a call into the
// driver. One pool belongs to one context; it lives until its last storage is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "common/tensor.h"
#include "metal/device.h"

namespace menagerie::metal {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // A buffer that this many runs have not asked for goes back to the device.
  static constexpr uint64_t kKeptRuns = 4;

  // Storage of exactly so many bytes, so that an access beyond them stays one beyond the buffer's
  // bytes; its capacity is the next of four sizes between a power of two and the next, so that
  // shapes which change from run to run find a buffer again.
  // What was encoded before on the context's stream may still write the memory: the stream keeps
  // the order, the host must not touch it before the stream has finished.
  std::shared_ptr<Storage> allocate(size_t bytes);

  // Tells the pool that a run has ended, so that it can return what recent runs did not use.
  void end_run() noexcept;

  size_t kept() const;  // buffers

 private:
  struct Kept {
    std::shared_ptr<Buffer> buffer;
    uint64_t run;
  };

  std::shared_ptr<Buffer> take(size_t capacity);
  void give_back(std::shared_ptr<Buffer> buffer) noexcept;

  mutable std::mutex mutex_;
  std::multimap<size_t, Kept> free_;
  uint64_t run_ = 0;
};

}  // namespace menagerie::metal
