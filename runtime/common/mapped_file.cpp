#include "common/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace menagerie {
OpenFile::OpenFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  require(descriptor_ >= 0, path_.string(), ": cannot be opened: ", std::strerror(errno));
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(path_.string(), ": is not a regular file");
  }
  bytes_ = static_cast<size_t>(status.st_size);
  identity_ = {status.st_dev, status.st_ino};
#ifdef __APPLE__
  const timespec& modified = status.st_mtimespec;
#else
  const timespec& modified = status.st_mtim;
#endif
  modified_ = int64_t{modified.tv_sec} * 1'000'000'000 + modified.tv_nsec;
}

OpenFile::~OpenFile() { ::close(descriptor_); }

MappedFile::MappedFile(const OpenFile& file) : size_(file.bytes()) {
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  require(mapped != MAP_FAILED, file.path().string(), ": cannot be mapped: ", std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
#ifdef MADV_NOHUGEPAGE
  // Otherwise pages that are released one by one would come back two MiB at a time with each small
  // neighbour.
  ::madvise(mapped, size_, MADV_NOHUGEPAGE);
#endif
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_text(const OpenFile& file, size_t most) {
  require(file.bytes() <= most, file.path().string(), ": is ", file.bytes(),
          " bytes long, more than ", most);
  const MappedFile mapped(file);
  return {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
}

}  // namespace menagerie
