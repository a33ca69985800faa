// Hashes of what caches are keyed by, from the hashes of its members.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <ranges>

#include "metal/device.h"

namespace menagerie::metal {

template <class Value>
size_t hash_of_member(const Value& value) {
  if constexpr (std::ranges::range<Value>) {
    size_t hash = 0;
    for (const auto& item : value) hash = hash * 1099511628211u + hash_of_member(item);
    return hash;
  } else {
    return std::hash<Value>{}(value);
  }
}

// As FNV-1 mixes bytes (http://www.isthe.com/chongo/tech/comp/fnv/): a product, then the next
// value.
template <class... Values>
size_t hash_of_all(const Values&... values) {
  size_t hash = 14695981039346656037u;
  ((hash = (hash * 1099511628211u) ^ hash_of_member(values)), ...);
  return hash;
}

size_t hash_of(std::integral auto number) { return hash_of_all(number); }

inline size_t hash_of(const MatmulDescriptor& d) {
  const auto addend = d.addend.value_or(std::array<int64_t, 3>{});
  return hash_of_all(d.dtype, d.batch, d.m, d.n, d.k, d.a_transposed, d.b_transposed, d.a_batch,
                     d.b_batch, d.alpha, d.beta, addend);
}

inline size_t hash_of(const ConvolutionDescriptor& d) {
  return hash_of_all(d.dtype, d.input_layout, d.output_layout, d.batch, d.in_channels, d.in_height,
                     d.in_width, d.out_channels, d.out_height, d.out_width, d.kernel_height,
                     d.kernel_width, d.stride, d.padding, d.dilation, d.output_padding,
                     d.transposed, d.groups, d.has_bias);
}

}  // namespace menagerie::metal
