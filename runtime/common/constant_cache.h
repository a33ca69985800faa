// What is made of constants, such as packed weights: one for all programs of this process, kept for
// as long as any of them uses it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/context.h"
#include "common/kernel_cache.h"
#include "common/pages.h"
#include "common/tensor.h"

namespace menagerie {

class ConstantCache {
 public:
  static ConstantCache& of_process();

  // What make() -> std::shared_ptr<T> made under this key, which holds the constant's address; a
  // key's kind decides T. Two threads that ask at once may both make it, and get the same.
  template <class T, class Make>
  std::shared_ptr<T> get(const Key& key, const std::shared_ptr<Storage>& constant, Make&& make) {
    if (auto found = find(key)) return std::static_pointer_cast<T>(found);
    return std::static_pointer_cast<T>(keep(key, constant, make()));
  }

  size_t size() const;

 private:
  std::shared_ptr<Prepared> find(const Key& key) const;
  // The constant lives as long as what was made of it, so that nothing else comes to its address.
  std::shared_ptr<Prepared> keep(const Key& key, std::shared_ptr<Storage> constant,
                                 std::shared_ptr<Prepared> made);
  void forget(const std::string& key);

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<Prepared>> entries_;
};

// What make() -> std::shared_ptr<T> makes of a constant under such a key: once, whichever programs
// ask. The file's pages behind the constant are let go of.
template <class T, class Make>
std::shared_ptr<T> made_once(const Key& key, const Tensor& constant, Make&& make) {
  return Context::current().kernels().get<T>(key, [&] {
    return ConstantCache::of_process().get<T>(key, constant.storage, [&] {
      const std::shared_ptr<T> made = make();
      release_pages(*constant.storage);
      return made;
    });
  });
}

}  // namespace menagerie
