// Inserted into every wrapper: describes a constant to AOTInductor. Not inlined, since the compiler
// would see eleven assignments for each constant again.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace torch::aot_inductor {

template <class Info>
[[gnu::noinline]] void describe(Info& info, const char* name, int32_t dtype, int32_t device_type,
                                int64_t offset, size_t data_size, bool from_folded, int32_t type,
                                std::initializer_list<int64_t> shape,
                                std::initializer_list<int64_t> stride, int32_t layout,
                                const char* original_fqn) {
  info.name = name;
  info.dtype = dtype;
  info.device_type = device_type;
  info.offset = offset;
  info.data_size = data_size;
  info.from_folded = from_folded;
  info.type = type;
  info.shape = shape;
  info.stride = stride;
  info.layout = layout;
  info.original_fqn = original_fqn;
}

}  // namespace torch::aot_inductor
