// What the system is told about memory, page by page.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace menagerie {

class Storage;

// Asks for all whole pages of memory that is about to be written: one call instead of a fault for
// each. Systems that cannot lose nothing.
void populate(void* data, size_t bytes);

// Memory for what is written once and stays, in large pages as far as it fills them.
class LastingMemory {
 public:
  explicit LastingMemory(size_t bytes);
  float* floats() const { return static_cast<float*>(data_.get()); }

 private:
  std::unique_ptr<void, decltype(&std::free)> data_;
};

// The file's pages behind a constant that was packed are not needed soon; the system may take them
// back. Nothing happens to memory of our own, which would come back empty.
void release_pages(const Storage& storage);

}  // namespace menagerie
