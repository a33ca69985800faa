#include "metal/bytes.h"

#include <bit>
#include <string>

#include "metal/dispatch.h"
#include "metal/operands.h"

namespace menagerie::metal {
namespace {

constexpr size_t kWidest = 16;

size_t address_of(const Region& region) {
  return reinterpret_cast<size_t>(region.buffer->contents()) + region.offset;
}

// The most bytes a thread may take where these addresses and lengths are whole numbers of them.
size_t unit_of(size_t of_all) { return size_t{1} << std::countr_zero(of_all | kWidest); }

void encode(const std::string& function, const Arguments& arguments, size_t unit, size_t bytes) {
  dispatch("bytes", function + std::to_string(unit), arguments,
           threads_for(static_cast<int64_t>(bytes / unit)));
}

}  // namespace

void copy_bytes(const Region& from, const Region& to, size_t bytes) {
  Arguments arguments;
  arguments.add(from).add(to);
  encode("copy_units_", arguments, unit_of(address_of(from) | address_of(to) | bytes), bytes);
}

void clear_bytes(const Region& to, size_t bytes) {
  Arguments arguments;
  arguments.add(to);
  encode("clear_units_", arguments, unit_of(address_of(to) | bytes), bytes);
}

}  // namespace menagerie::metal
