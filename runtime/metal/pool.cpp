#include "metal/pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace menagerie::metal {
namespace {

constexpr size_t kSmallest = 256;

// At most a quarter more than is asked for, above the smallest.
size_t size_class(size_t bytes) {
  const size_t step = std::bit_floor(std::max(bytes, kSmallest)) / 4;
  return bytes > SIZE_MAX - step ? bytes : std::max((bytes + step - 1) / step * step, kSmallest);
}

}  // namespace

std::shared_ptr<Storage> BufferPool::allocate(size_t bytes) {
  const size_t capacity = size_class(bytes);
  std::shared_ptr<Buffer> buffer = take(capacity);
  if (buffer == nullptr) buffer = MetalDevice::instance().allocate(capacity);
  // The storage's owner is only its way back to the pool.
  const std::shared_ptr<const void> way_back(
      buffer.get(), [pool = shared_from_this(), buffer](const void*) { pool->give_back(buffer); });
  return Storage::on_device(buffer->first(bytes), 0, bytes, way_back);
}

std::shared_ptr<Buffer> BufferPool::take(size_t capacity) {
  const std::lock_guard lock(mutex_);
  const auto found = free_.find(capacity);
  if (found == free_.end()) return nullptr;
  std::shared_ptr<Buffer> buffer = std::move(found->second.buffer);
  free_.erase(found);
  return buffer;
}

void BufferPool::give_back(std::shared_ptr<Buffer> buffer) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    const size_t capacity = buffer->bytes();
    free_.emplace(capacity, Kept{std::move(buffer), run_});
  } catch (...) {  // no memory to remember it by: it goes back to the device
  }
}

void BufferPool::end_run() noexcept {
  const std::lock_guard lock(mutex_);
  ++run_;
  std::erase_if(free_, [this](const auto& entry) { return entry.second.run + kKeptRuns < run_; });
}

size_t BufferPool::kept() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

}  // namespace menagerie::metal
