// Encoding the runtime's own kernels, the files of metal/kernels/, on the current context's stream.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "metal/device.h"
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
  template <class... Values>
  explicit Arguments(const Values&... values) {
    (add(values), ...);
  }

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

// A file's name without .metal, and its text. Made by embed_kernels.py.
extern const std::vector<std::pair<std::string_view, std::string_view>> kOwnSources;

// A function of one of these files. Each file is compiled when it is first asked for, and kept, as
// its kernels are, for as long as the process lives. Safe to call from several threads.
std::shared_ptr<Kernel> own_kernel(const std::string& file, const std::string& function);

}  // namespace menagerie::metal
