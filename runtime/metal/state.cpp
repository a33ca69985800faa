#include "metal/state.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/context.h"
#include "common/error.h"
#include "common/shim_support.h"
#include "metal/operands.h"

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

State::State()
    : pool_(std::make_shared<BufferPool>()), stream_(MetalDevice::instance().make_stream()) {}

State& State::current() { return static_cast<State&>(Context::current().backend_state()); }

void* State::allocate_raw(size_t bytes) {
  std::shared_ptr<Buffer> buffer = MetalDevice::instance().allocate(bytes);
  void* address = buffer->contents();
  raw_.emplace(address, std::move(buffer));
  return address;
}

void State::free_raw(void* address) {
  require(raw_.erase(address) == 1, "the pointer is not from aoti_torch_mps_malloc");
}

std::shared_ptr<Buffer> State::raw(const void* address) const {
  const auto found = raw_.find(address);
  return found == raw_.end() ? nullptr : found->second;
}

Tensor State::fault(std::span<const char* const> messages) {
  if (faults_.size() == kFaults) finish();
  if (fault_words_ == nullptr) {
    fault_words_ = MetalDevice::instance().allocate(kFaults * sizeof(int32_t));
    std::memset(fault_words_->contents(), 0, fault_words_->bytes());
  }
  const size_t offset = faults_.size() * sizeof(int32_t);
  faults_.emplace_back(messages.begin(), messages.end());
  const int64_t one[] = {1};
  return make_view(Storage::on_device(fault_words_, offset, sizeof(int32_t), nullptr),
                   Dtype::kInt32, one, one, 0);
}

void State::sample(const Key& key, const std::function<void()>& encode) {
  if (sampled_.insert(key.bytes()).second) stream_->sample(encode);
}

void State::end_run() noexcept {
  sampled_.clear();
  pool_->end_run();
}

void State::finish() {
  try {
    stream_->synchronize();
  } catch (...) {  // a failed check may have led to it
    if (const char* message = found_fault()) fail(message);
    throw;
  }
  if (const char* message = found_fault()) fail(message);
}

// The message of the first check that failed; forgets all.
const char* State::found_fault() {
  const char* found = nullptr;
  auto* words = fault_words_ == nullptr ? nullptr : static_cast<int32_t*>(fault_words_->contents());
  for (size_t i = 0; i < faults_.size(); ++i) {
    const auto number = static_cast<size_t>(std::exchange(words[i], 0));
    if (number == 0 || found != nullptr) continue;
    found = number <= faults_[i].size() ? faults_[i][number - 1] : "a kernel's check failed";
  }
  faults_.clear();
  return found;
}

Region region_of(const Tensor& tensor) {
  require(on_device(tensor), tensor, " is not on the device");
  return {std::static_pointer_cast<Buffer>(tensor.storage->device()),
          tensor.storage->device_offset() + static_cast<size_t>(tensor.offset_bytes),
          static_cast<size_t>(bytes_of(tensor.dtype, tensor.sizes(), tensor.strides()))};
}

Tensor empty_strided(Dtype dtype, std::span<const int64_t> sizes,
                     std::span<const int64_t> strides) {
  const auto bytes = static_cast<size_t>(bytes_of(dtype, sizes, strides));
  return make_view(State::current().pool().allocate(bytes), dtype, sizes, strides, 0);
}

Tensor empty_contiguous(Dtype dtype, std::span<const int64_t> sizes) {
  const Extents strides = contiguous_strides(sizes);
  return metal::empty_strided(dtype, sizes, {strides.data(), sizes.size()});
}

}  // namespace menagerie::metal

using namespace menagerie;
using namespace menagerie::metal;

// Raw device memory: what a container asks for that keeps constants of its own. The pointers are
// the host's addresses; each program knows its own ones.

namespace {

std::byte* place_in(void* buffer, size_t offset) {
  return static_cast<std::byte*>(buffer) + offset;
}

// A part of memory that this program has allocated.
Region region_at(void* buffer, size_t offset, size_t bytes) {
  const std::shared_ptr<Buffer> found = State::current().raw(buffer);
  require(found != nullptr, "the pointer is not from aoti_torch_mps_malloc");
  require(offset <= found->bytes() && bytes <= found->bytes() - offset, bytes, " bytes at ", offset,
          " pass the end of ", found->bytes());
  return {found, offset, bytes};
}

}  // namespace

MENAGERIE_SHIM aoti_torch_mps_malloc(void** buffer, size_t num_bytes) {
  return guarded(__func__, [&] {
    *buffer = num_bytes == 0 ? nullptr : State::current().allocate_raw(num_bytes);
  });
}

MENAGERIE_SHIM aoti_torch_mps_free(void* ptr) {
  return guarded(__func__, [&] {
    if (ptr != nullptr) State::current().free_raw(ptr);
  });
}

MENAGERIE_SHIM aoti_torch_mps_memcpy(void* buffer, size_t constant_offset, size_t bytes_read,
                                     size_t data_size, uint8_t* constants_start) {
  return guarded(__func__, [&] {
    region_at(buffer, constant_offset, data_size);
    backend::finish();  // what was encoded may still read there
    std::memcpy(place_in(buffer, constant_offset), constants_start + bytes_read, data_size);
  });
}

MENAGERIE_SHIM aoti_torch_mps_copy_buffer(void* src_buffer, void* dst_buffer, size_t data_size,
                                          size_t src_offset, size_t dst_offset) {
  return guarded(__func__, [&] {
    copy_bytes(region_at(src_buffer, src_offset, data_size),
               region_at(dst_buffer, dst_offset, data_size), data_size);
  });
}
