#include "common/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#include "common/tensor.h"

namespace menagerie {
namespace {

// MADV_POPULATE_WRITE of Linux 5.14, which older headers lack; elsewhere it is refused.
constexpr int kPopulate = 23;

constexpr size_t kLarge = size_t{2} << 20;  // a large page of x86-64
constexpr size_t kLine = 64;

void advise(const void* data, size_t bytes, int advice) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

void populate(void* data, size_t bytes) { advise(data, bytes, kPopulate); }

LastingMemory::LastingMemory(size_t bytes)
    : data_(
          std::aligned_alloc(bytes < kLarge ? kLine : kLarge, (bytes + kLine - 1) / kLine * kLine),
          std::free) {
  if (data_ == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  advise(data_.get(), bytes / kLarge * kLarge, MADV_HUGEPAGE);
#endif
}

void release_pages(const Storage& storage) {
  if (storage.is_mapped()) advise(storage.data(), storage.bytes(), MADV_DONTNEED);
}

}  // namespace menagerie
