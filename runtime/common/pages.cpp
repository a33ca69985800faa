#include "common/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#include "common/tensor.h"

namespace menagerie {
namespace {

// MADV_POPULATE_WRITE of Linux 5.14, which older headers lack; elsewhere it is refused.
constexpr int kPopulate = 23;

constexpr size_t kLine = 64;
constexpr size_t kLarge = size_t{2} << 20;  // a large page of x86-64
constexpr size_t kRegion = 32 * kLarge;     // of addresses: memory comes page by page

constexpr size_t rounded(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

void advise(const void* data, size_t bytes, int advice) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

// Where the system has to find large pages first, or its own host to back them, small ones are
// faster: none are asked for after some that came at less than 2 GB/s.
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
