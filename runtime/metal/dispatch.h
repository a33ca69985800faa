// Encoding one of the runtime's own kernels on the current context's stream.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "metal/state.h"

namespace menagerie::metal {

inline constexpr uint64_t kSimdWidth = 32;  // of every GPU that Metal runs on

// How many parts of a size make up another, the last one whole or not.
inline uint64_t quotient(int64_t size, int64_t by) {
  return static_cast<uint64_t>((size + by - 1) / by);
}

// Arguments in the order of their indices, from 0.
class Arguments {
 public:
  Arguments& add(const Tensor& tensor) { return add(region_of(tensor)); }
  Arguments& add(const Region& region) {
    all_.push_back({next_index(), region, {}, 0});
    return *this;
  }

  // A value as the kernel reads it through a `constant` reference or pointer.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  Arguments& add(const T& value) {
    static_assert(sizeof(T) <= kMaxInlineBytes);
    Argument argument{next_index(), {}, {}, sizeof(T)};
    std::memcpy(argument.value.data(), &value, sizeof(T));
    all_.push_back(argument);
    return *this;
  }

  std::span<const Argument> all() const { return all_; }

 private:
  uint32_t next_index() const { return static_cast<uint32_t>(all_.size()); }

  std::vector<Argument> all_;
};

// Runs metal/kernels/<file>.metal's function on so many threads in a row; none: does nothing.
void dispatch(const std::string& file, const std::string& function, const Arguments& arguments,
              uint64_t threads);
// The same on a grid of the caller's.
void dispatch(const std::string& file, const std::string& function, const Arguments& arguments,
              const Grid& grid);

}  // namespace menagerie::metal
