// What the Metal backend keeps for each context: its stream, its buffers, dense copies of weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/backend.h"
#include "common/caches.h"
#include "common/tensor.h"
#include "metal/device.h"

namespace menagerie::metal {

// Device buffers that a program gave back, kept for its next ones: a buffer costs a call into the
// driver. One pool belongs to one context; it lives until its last storage is gone.
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

inline constexpr int32_t kMetalDevice = 13;  // c10::DeviceType::MPS

// A dense copy of a constant, which is kept so that its address stays its own.
struct DenseConstant : Prepared {
  DenseConstant(std::shared_ptr<Storage> of, Tensor made)
      : constant(std::move(of)), copy(std::move(made)) {}

  std::shared_ptr<Storage> constant;
  Tensor copy;
};

class State final : public BackendState {
 public:
  State();

  // Of the context that is running in this thread.
  static State& current();

  Stream& stream() { return *stream_; }
  BufferPool& pool() { return *pool_; }
  KernelCache& dense_constants() { return dense_constants_; }

  // Memory that generated code manages itself, by the host's address of its beginning.
  void* allocate_raw(size_t bytes);
  void free_raw(void* address);
  std::shared_ptr<Buffer> raw(const void* address) const;  // null if there is none

  // A number of 32 bits, 0, on the device: the kernel that it is given to writes there which of its
  // checks failed, from 1. The messages outlive the run.
  Tensor fault(std::span<const char* const> messages);
  // Runs what was encoded, and fails where a check did.
  void finish();

  // Has the stream sample what is encoded; of equal keys only the first of each run, so that every
  // run of the same inputs has the same bits.
  void sample(const Key& key, const std::function<void()>& encode);
  // Whether a kernel has computed what has the key that is made and so many operations in this run,
  // and the device need not prove it again. A GPU proves nothing, and no key is made for it.
  template <class MakeKey>
  bool is_repeated(double operations, const MakeKey& make_key) {
    return operations >= MetalDevice::instance().repeated_from() &&
           !sampled_.insert(make_key().bytes()).second;
  }
  void end_run() noexcept;

  // After a failure it is not known which of them have been computed.
  void forget_constants() { dense_constants_ = KernelCache(kDenseConstants); }

 private:
  static constexpr size_t kFaults = 1024;

  const char* found_fault();
  static constexpr size_t kDenseConstants = 512;

  std::shared_ptr<BufferPool> pool_;
  std::unique_ptr<Stream> stream_;
  std::map<const void*, std::shared_ptr<Buffer>> raw_;
  std::shared_ptr<Buffer> fault_words_;           // one for each of faults_
  std::vector<std::vector<const char*>> faults_;  // messages
  KernelCache dense_constants_{kDenseConstants};
  std::set<std::string> sampled_;  // keys, in this run, with those that kernels computed whole
};

inline bool on_device(const Tensor& tensor) { return tensor.storage->is_on_device(); }

// Where on the device a tensor begins; fails if it is in the host's memory alone.
Region region_of(const Tensor& tensor);

// A new tensor on the device, uninitialised.
Tensor empty_strided(Dtype dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides);
Tensor empty_contiguous(Dtype dtype, std::span<const int64_t> sizes);

}  // namespace menagerie::metal
