#include "common/arena.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

namespace menagerie {
namespace {

// Sizes are rounded up to an eighth of their power of two, so that lengths that differ a little
// from run to run still find each other's blocks; at most 12.5 % is wasted.
size_t rounded(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  size_t step = Arena::kAlignment;
  while (step * 16 < bytes) step *= 2;
  return std::max(step, (bytes + step - 1) / step * step);
}

}  // namespace

Arena::~Arena() {
  for (const auto& [bytes, kept] : free_) std::free(kept.data);
}

Arena::Block Arena::allocate(size_t bytes) {
  const size_t wanted = rounded(bytes);
  const std::lock_guard lock(mutex_);
  Block block;
  const auto found = free_.lower_bound(wanted);
  if (found != free_.end() && found->first <= wanted + wanted / 4) {
    block = {found->second.data, found->first};
    free_.erase(found);
    cached_ -= block.bytes;
  } else {
    block = {std::aligned_alloc(kAlignment, wanted), wanted};
    if (block.data == nullptr) {
      drop_older_than(std::numeric_limits<uint64_t>::max());
      block.data = std::aligned_alloc(kAlignment, wanted);
    }
    if (block.data == nullptr) throw std::bad_alloc();
  }
  live_ += block.bytes;
  return block;
}

void Arena::release(Block block) noexcept {
  if (block.data == nullptr) return;
  const std::lock_guard lock(mutex_);
  live_ -= block.bytes;
  try {
    free_.emplace(block.bytes, Kept{block.data, run_});
    cached_ += block.bytes;
  } catch (...) {
    std::free(block.data);  // no memory to remember it by
  }
}

void Arena::end_run() noexcept {
  const std::lock_guard lock(mutex_);
  ++run_;
  if (run_ > kKeptRuns) drop_older_than(run_ - kKeptRuns);
}

void Arena::drop_older_than(uint64_t run) noexcept {
  for (auto block = free_.begin(); block != free_.end();) {
    if (block->second.run >= run) {
      ++block;
      continue;
    }
    std::free(block->second.data);
    cached_ -= block->first;
    block = free_.erase(block);
  }
}

size_t Arena::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

size_t Arena::cached() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

}  // namespace menagerie
