#include "common/kernel_cache.h"

namespace menagerie {

std::shared_ptr<Prepared> KernelCache::find(const Key& key) {
  const auto found = index_.find(key.bytes());
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->value;
}

void KernelCache::insert(const Key& key, std::shared_ptr<Prepared> value) {
  const size_t bytes = value->bytes();
  entries_.push_front({key.bytes(), std::move(value), bytes});
  index_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
  // The newest entry stays whatever its size: it is about to be used.
  while (entries_.size() > 1 && (entries_.size() > most_entries_ || bytes_ > most_bytes_)) {
    bytes_ -= entries_.back().bytes;
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace menagerie
