// A caching allocator: memory that a run frees is kept for the next ones, so that only the first
// run pays for page faults. One arena belongs to one program; it lives until its last block is
// returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace menagerie {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;
  // A block that this many runs have not asked for goes back to the system.
  static constexpr uint64_t kKeptRuns = 4;

  struct Block {
    void* data = nullptr;
    size_t bytes = 0;  // granted, at least what was asked for
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // A block of at least `bytes`, aligned to kAlignment; throws std::bad_alloc.
  Block allocate(size_t bytes);
  void release(Block block) noexcept;

  // Tells the arena that a run has ended, so that it can return what recent runs did not use.
  void end_run() noexcept;

  // Bytes handed out now, and bytes kept for reuse.
  size_t live() const;
  size_t cached() const;

 private:
  struct Kept {
    void* data;
    uint64_t run;
  };

  void drop_older_than(uint64_t run) noexcept;

  mutable std::mutex mutex_;
  std::multimap<size_t, Kept> free_;
  uint64_t run_ = 0;
  size_t live_ = 0;
  size_t cached_ = 0;
};

}  // namespace menagerie
