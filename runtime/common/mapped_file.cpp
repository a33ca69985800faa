#include "common/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace menagerie {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    require(number_ >= 0, path.string(), ": cannot be opened: ", std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path);
  struct stat status{};
  require(::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode), path.string(),
          ": is not a regular file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  require(mapped != MAP_FAILED, path.string(), ": cannot be mapped: ", std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_text(const std::filesystem::path& path, size_t most) {
  const MappedFile file(path);
  require(file.bytes().size() <= most, path.string(), ": is ", file.bytes().size(),
          " bytes long, more than ", most);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace menagerie
