#include "metal/pool.h"

#include <utility>

namespace menagerie::metal {

std::shared_ptr<Storage> BufferPool::allocate(size_t bytes) {
  std::shared_ptr<Buffer> buffer = take(bytes);
  if (buffer == nullptr) buffer = MetalDevice::instance().allocate(bytes);
  // The storage's owner is only its way back to the pool.
  const std::shared_ptr<const void> way_back(
      buffer.get(), [pool = shared_from_this(), buffer](const void*) { pool->give_back(buffer); });
  return Storage::on_device(std::move(buffer), 0, bytes, way_back);
}

std::shared_ptr<Buffer> BufferPool::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = free_.find(bytes);
  if (found == free_.end()) return nullptr;
  std::shared_ptr<Buffer> buffer = std::move(found->second.buffer);
  free_.erase(found);
  return buffer;
}

void BufferPool::give_back(std::shared_ptr<Buffer> buffer) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    const size_t bytes = buffer->bytes();
    free_.emplace(bytes, Kept{std::move(buffer), run_});
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
