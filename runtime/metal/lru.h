// What was made for the last few descriptors. A key is the whole descriptor, compared member by
// member: two pieces of work that differ in anything never share an entry.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <list>
#include <ranges>
#include <unordered_map>
#include <utility>

#include "metal/device.h"

namespace menagerie::metal {

// Hashes of what caches are keyed by, from the hashes of its members.
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

// Keys are compared with == and found by hash_of(key).
template <class Key, class Value>
class Lru {
 public:
  explicit Lru(size_t capacity) : capacity_(capacity) {}

  // The value of `key`, made by make() if it is not there; the longest unused one makes room. A
  // make() that throws leaves the cache as it was. The reference holds until the next call.
  template <class Make>
  const Value& get(const Key& key, Make&& make) {
    const size_t hash = hash_of(key);
    const auto [first, last] = places_.equal_range(hash);
    for (auto place = first; place != last; ++place) {
      const auto entry = place->second;
      if (entry->key == key) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->value;
      }
    }
    entries_.push_front({hash, key, make()});
    places_.emplace(hash, entries_.begin());
    if (entries_.size() > capacity_) drop_last();
    return entries_.front().value;
  }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    size_t hash;
    Key key;
    Value value;
  };
  using Entries = std::list<Entry>;

  void drop_last() {
    const auto last = std::prev(entries_.end());
    auto [place, end] = places_.equal_range(last->hash);
    while (place != end && place->second != last) ++place;
    places_.erase(place);
    entries_.erase(last);
  }

  size_t capacity_;
  Entries entries_;  // the last used first
  std::unordered_multimap<size_t, typename Entries::iterator> places_;
};

}  // namespace menagerie::metal
