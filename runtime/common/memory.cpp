#include "common/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <new>

#include "common/tensor.h"

namespace menagerie {
namespace {

// Round a size up to an eighth of its power of two, so that lengths that differ a little between
// runs still reuse each other's blocks; at most 12.5 % is wasted.
size_t rounded(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  size_t step = Arena::kAlignment;
  while (step * 16 < bytes) step *= 2;
  return std::max(step, (bytes + step - 1) / step * step);
}

}  // namespace

Arena::~Arena() {
  for (const auto& [data, chunk] : chunks_) std::free(data);
}

Arena::Chunks::iterator Arena::chunk_of(char* address) {
  return std::prev(chunks_.upper_bound(address));
}

// Return the most recently freed of the gaps that are large enough.
Arena::Gaps::iterator Arena::latest_gap(size_t bytes) {
  auto latest = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second.bytes < bytes) continue;
    if (latest == gaps_.end() || gap->second.freed > latest->second.freed) latest = gap;
  }
  return latest;
}

// Allocate a gap from the system; if that fails, give cached memory back to it and retry.
Arena::Gaps::iterator Arena::new_chunk(size_t bytes) {
  const auto ask = [&] { return static_cast<char*>(std::aligned_alloc(kAlignment, bytes)); };
  char* asked = ask();
  if (asked == nullptr) {
    drop_older_than(std::numeric_limits<uint64_t>::max());
    asked = ask();
  }
  std::unique_ptr<char, decltype(&std::free)> data(asked, std::free);
  if (data == nullptr) throw std::bad_alloc();
  const auto chunk = chunks_.emplace(asked, Chunk{bytes, 0, run_}).first;
  try {
    const auto gap = gaps_.emplace(asked, Gap{bytes, releases_}).first;
    data.release();
    cached_ += bytes;
    return gap;
  } catch (...) {
    chunks_.erase(chunk);
    throw;
  }
}

Arena::Block Arena::allocate(size_t bytes) {
  const size_t wanted = rounded(bytes);
  const std::lock_guard lock(mutex_);
  auto gap = latest_gap(wanted);
  if (gap == gaps_.end()) gap = new_chunk(wanted);
  char* data = gap->first;
  if (gap->second.bytes > wanted) {
    gaps_.emplace_hint(gap, data + wanted, Gap{gap->second.bytes - wanted, gap->second.freed});
  }
  gaps_.erase(gap);
  Chunk& chunk = chunk_of(data)->second;
  chunk.live += wanted;
  chunk.run = run_;
  live_ += wanted;
  cached_ -= wanted;
  return {data, wanted};
}

void Arena::release(Block block) noexcept {
  if (block.data == nullptr) return;
  const std::lock_guard lock(mutex_);
  char* data = static_cast<char*>(block.data);
  const auto chunk = chunk_of(data);
  chunk->second.live -= block.bytes;
  chunk->second.run = run_;
  live_ -= block.bytes;
  Gaps::iterator gap;
  try {
    gap = gaps_.emplace(data, Gap{block.bytes, ++releases_}).first;
  } catch (...) {
    return;  // no memory to record it: it is lost until the chunk is freed
  }
  cached_ += block.bytes;
  const char* end = chunk->first + chunk->second.bytes;
  if (const auto next = std::next(gap);
      next != gaps_.end() && next->first == data + block.bytes && next->first < end) {
    gap->second.bytes += next->second.bytes;
    gaps_.erase(next);
  }
  if (gap == gaps_.begin() || data == chunk->first) return;
  if (const auto before = std::prev(gap); before->first + before->second.bytes == data) {
    before->second = {before->second.bytes + gap->second.bytes, gap->second.freed};
    gaps_.erase(gap);
  }
}

void Arena::end_run() noexcept {
  const std::lock_guard lock(mutex_);
  ++run_;
  if (run_ > kKeptRuns) drop_older_than(run_ - kKeptRuns);
}

void Arena::drop_older_than(uint64_t run) noexcept {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    if (chunk->second.live > 0 || chunk->second.run >= run) {
      ++chunk;
      continue;
    }
    for (auto gap = gaps_.lower_bound(chunk->first);
         gap != gaps_.end() && gap->first < chunk->first + chunk->second.bytes;) {
      cached_ -= gap->second.bytes;
      gap = gaps_.erase(gap);
    }
    std::free(chunk->first);
    chunk = chunks_.erase(chunk);
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

namespace {

// MADV_POPULATE_WRITE of Linux 5.14, which older headers lack; other systems refuse it.
constexpr int kPopulate = 23;

constexpr size_t kLine = 64;
constexpr size_t kLarge = size_t{2} << 20;  // a large page of x86-64
constexpr size_t kRegion = 32 * kLarge;     // of addresses; its memory comes page by page

constexpr size_t rounded(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

void advise(const void* data, size_t bytes, int advice) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

// Small pages are faster where the system must find large ones first, or its own host must back
// them: no more large ones are requested after some came at less than 2 GB/s.
std::atomic<bool> large_are_slow = false;

struct Region {
  std::shared_ptr<char> memory;
  size_t used = 0, size = 0;
};

Region new_region(size_t least) {
  const size_t size = std::max(kRegion, rounded(least, kLarge));
  char* memory = static_cast<char*>(std::aligned_alloc(kLarge, size));
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  ::madvise(memory, size, MADV_HUGEPAGE);
#endif
  return {{memory, std::free}, 0, size};
}

}  // namespace

void populate(void* data, size_t bytes) {
  const auto begin = std::chrono::steady_clock::now();
  advise(data, bytes, kPopulate);
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
  if (static_cast<size_t>(taken.count()) > bytes / 2 + kLarge / 2) large_are_slow = true;
}

std::shared_ptr<float> lasting_memory(size_t bytes) {
  static auto& mutex = *new std::mutex;
  static auto& region = *new Region;  // never destroyed: threads may outlive the statics
  const std::scoped_lock lock(mutex);
  const size_t taken = rounded(bytes, kLine);
  if (region.size - region.used < taken) region = new_region(taken);
  char* data = region.memory.get() + region.used;
#ifdef MADV_NOHUGEPAGE
  if (large_are_slow) advise(data, region.size - region.used, MADV_NOHUGEPAGE);
#endif
  region.used += taken;
  return {reinterpret_cast<float*>(data),
          [taken, memory = region.memory](float* part) { advise(part, taken, MADV_DONTNEED); }};
}

void release_pages(const Storage& storage) {
  if (storage.is_mapped()) advise(storage.data(), storage.bytes(), MADV_DONTNEED);
}

}  // namespace menagerie
