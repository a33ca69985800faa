// Raw device memory: what a container asks for that keeps constants of its own. The pointers are
// the host's addresses; each program knows its own ones.
#include <cstring>

#include "common/shim_support.h"
#include "metal/bytes.h"
#include "metal/state.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

std::byte* at(void* buffer, size_t offset) { return static_cast<std::byte*>(buffer) + offset; }

// A part of memory that this program has allocated.
Region region_at(void* buffer, size_t offset, size_t bytes) {
  const std::shared_ptr<Buffer> found = State::current().raw(buffer);
  require(found != nullptr, "the pointer is none of aoti_torch_mps_malloc");
  require(offset <= found->bytes() && bytes <= found->bytes() - offset, bytes, " bytes at ", offset,
          " pass the end of ", found->bytes());
  return {found, offset, bytes};
}

}  // namespace

AOTITorchError aoti_torch_mps_malloc(void** buffer, size_t num_bytes) {
  return guarded(__func__, [&] {
    *buffer = num_bytes == 0 ? nullptr : State::current().allocate_raw(num_bytes);
  });
}

AOTITorchError aoti_torch_mps_free(void* ptr) {
  return guarded(__func__, [&] {
    if (ptr != nullptr) State::current().free_raw(ptr);
  });
}

AOTITorchError aoti_torch_mps_memcpy(void* buffer, size_t constant_offset, size_t bytes_read,
                                     size_t data_size, uint8_t* constants_start) {
  return guarded(__func__, [&] {
    region_at(buffer, constant_offset, data_size);
    backend::finish();  // what was encoded may still read there
    std::memcpy(at(buffer, constant_offset), constants_start + bytes_read, data_size);
  });
}

AOTITorchError aoti_torch_mps_copy_buffer(void* src_buffer, void* dst_buffer, size_t data_size,
                                          size_t src_offset, size_t dst_offset) {
  return guarded(__func__, [&] {
    copy_bytes(region_at(src_buffer, src_offset, data_size),
               region_at(dst_buffer, dst_offset, data_size), data_size);
  });
}
