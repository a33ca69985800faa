// Caches of what is prepared once: a program's kernels, and what all programs make of constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/tensor.h"

namespace menagerie {

// Anything that the cache can hold.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;
  // Return the memory it occupies beyond a fixed small amount.
  virtual size_t bytes() const { return 0; }
};

// The whole descriptor of a kernel as bytes: every number that its preparation depended on.
class Key {
 public:
  explicit Key(std::string_view kind) : bytes_(kind) { bytes_ += '\0'; }
  Key& add(int64_t number) { return add_bytes(&number, sizeof number); }
  Key& add(double number) { return add_bytes(&number, sizeof number); }
  Key& add(const void* address) { return add_bytes(&address, sizeof address); }
  Key& add(std::span<const int64_t> numbers) {
    add(static_cast<int64_t>(numbers.size()));
    return add_bytes(numbers.data(), numbers.size_bytes());
  }
  Key& add_bytes(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Prepared kernels of one program. Each is made once per whole descriptor; the least recently used
// is evicted first. Not shared between threads: a program runs one call at a time.
class KernelCache {
 public:
  explicit KernelCache(size_t most_entries = 4096, size_t most_bytes = size_t{16} << 30)
      : most_entries_(most_entries), most_bytes_(most_bytes) {}

  // Return the entry for key, made by make() -> std::shared_ptr<T> if absent. The key's kind
  // decides T. The entry stays valid for its holder even after the cache evicts it.
  template <class T, class Make>
  std::shared_ptr<T> get(const Key& key, Make&& make) {
    if (std::shared_ptr<Prepared> found = find(key)) return std::static_pointer_cast<T>(found);
    std::shared_ptr<T> made = make();
    insert(key, made);
    return made;
  }

  size_t size() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Prepared> value;
    size_t bytes;
  };

  std::shared_ptr<Prepared> find(const Key& key);
  void insert(const Key& key, std::shared_ptr<Prepared> value);

  size_t most_entries_;
  size_t most_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;
};

// What is made of constants, such as packed weights: one copy for all programs of this process,
// kept for as long as any of them uses it.
class ConstantCache {
 public:
  static ConstantCache& of_process();

  // Return what make() -> std::shared_ptr<T> made for this key, which holds the constant's address;
  // its kind decides T. Two threads that ask at once may both make it, but get the same.
  template <class T, class Make>
  std::shared_ptr<T> get(const Key& key, const std::shared_ptr<Storage>& constant, Make&& make) {
    if (auto found = find(key)) return std::static_pointer_cast<T>(found);
    return std::static_pointer_cast<T>(keep(key, constant, make()));
  }

  size_t size() const;

 private:
  std::shared_ptr<Prepared> find(const Key& key) const;
  // The constant lives as long as what was made of it, so that its address is not reused.
  std::shared_ptr<Prepared> keep(const Key& key, std::shared_ptr<Storage> constant,
                                 std::shared_ptr<Prepared> made);
  void forget(const std::string& key);

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<Prepared>> entries_;
};

}  // namespace menagerie
