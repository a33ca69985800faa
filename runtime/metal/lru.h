// What was made for the last few descriptors. A key is the whole descriptor, compared member by
// member: two pieces of work that differ in anything never share an entry.
#pragma once

#include <cstddef>
#include <list>
#include <utility>

namespace menagerie::metal {

template <class Key, class Value>
class Lru {
 public:
  explicit Lru(size_t capacity) : capacity_(capacity) {}

  // The value of `key`, made by make() if it is not there; the longest unused one makes room. A
  // make() that throws leaves the cache as it was. The reference holds until the next call.
  template <class Make>
  const Value& get(const Key& key, Make&& make) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->first == key) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->second;
      }
    }
    entries_.emplace_front(key, make());
    if (entries_.size() > capacity_) entries_.pop_back();
    return entries_.front().second;
  }

  size_t size() const { return entries_.size(); }

 private:
  size_t capacity_;
  std::list<std::pair<Key, Value>> entries_;  // the last used first
};

}  // namespace menagerie::metal
