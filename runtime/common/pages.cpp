#include "common/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "common/tensor.h"

namespace menagerie {
namespace {

// MADV_POPULATE_WRITE of Linux 5.14, which older headers lack; elsewhere it is refused.
constexpr int kPopulate = 23;

void advise(const void* data, size_t bytes, int advice) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

void populate(void* data, size_t bytes) { advise(data, bytes, kPopulate); }

void release_pages(const Storage& storage) {
  if (storage.is_mapped()) advise(storage.data(), storage.bytes(), MADV_DONTNEED);
}

}  // namespace menagerie
