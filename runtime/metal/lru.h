// What was made for the last few descriptors. A key is the whole descriptor, compared member by
// member: two pieces of work that differ in anything never share an entry.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>

#include "metal/hash.h"

namespace menagerie::metal {

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
