#include "common/caches.h"

#include "common/context.h"

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

// Never destroyed: programs may end after everything else.
ConstantCache& ConstantCache::of_process() {
  static auto& cache = *new ConstantCache();
  return cache;
}

size_t ConstantCache::size() const {
  const std::scoped_lock lock(mutex_);
  return entries_.size();
}

std::shared_ptr<Prepared> ConstantCache::find(const Key& key) const {
  const std::scoped_lock lock(mutex_);
  const auto found = entries_.find(key.bytes());
  return found == entries_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<Prepared> ConstantCache::keep(const Key& key, std::shared_ptr<Storage> constant,
                                              std::shared_ptr<Prepared> made) {
  Prepared* const value = made.get();
  std::shared_ptr<Prepared> kept(value, [this, key = key.bytes(), made = std::move(made),
                                         constant = std::move(constant)](Prepared*) mutable {
    made.reset();
    constant.reset();
    forget(key);
  });
  const std::scoped_lock lock(mutex_);
  std::weak_ptr<Prepared>& entry = entries_[key.bytes()];
  if (auto first = entry.lock()) return first;
  entry = kept;
  return kept;
}

void ConstantCache::forget(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second.expired()) entries_.erase(found);
}

}  // namespace menagerie
