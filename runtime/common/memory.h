// Host memory: a program's arena, and advice to the system about pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace menagerie {

class Storage;

// A caching allocator: memory that a run frees is kept for later runs, so that only the first run
// pays for page faults. Blocks are cut from the most recently freed memory, which is likely still
// in the processor's cache, and merge again when they are freed. One arena belongs to one program;
// it lives until its last block is returned.
class Arena {
 public:
  static constexpr size_t kAlignment = 64;
  // Memory that this many runs have not used goes back to the system.
  static constexpr uint64_t kKeptRuns = 4;

  struct Block {
    void* data = nullptr;
    size_t bytes = 0;  // granted: at least the requested size
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Return a block of at least `bytes`, aligned to kAlignment; throw std::bad_alloc on failure.
  Block allocate(size_t bytes);
  void release(Block block) noexcept;

  // Mark the end of a run, so that the arena can return what recent runs did not use.
  void end_run() noexcept;

  // Return the bytes handed out now, and the bytes kept for reuse.
  size_t live() const;
  size_t cached() const;

 private:
  // Memory of the system, by its address.
  struct Chunk {
    size_t bytes;
    size_t live;   // bytes of blocks in use
    uint64_t run;  // the last run that used it
  };
  // A free part of a chunk, by its address.
  struct Gap {
    size_t bytes;
    uint64_t freed;  // the count of releases at that time
  };
  using Chunks = std::map<char*, Chunk>;
  using Gaps = std::map<char*, Gap>;

  Chunks::iterator chunk_of(char* address);
  Gaps::iterator latest_gap(size_t bytes);
  Gaps::iterator new_chunk(size_t bytes);
  void drop_older_than(uint64_t run) noexcept;

  mutable std::mutex mutex_;
  Chunks chunks_;
  Gaps gaps_;
  uint64_t run_ = 0;
  uint64_t releases_ = 0;
  size_t live_ = 0;
  size_t cached_ = 0;
};

// Request all whole pages of memory that is about to be written: one call instead of a fault for
// each page. Systems without such a call lose nothing.
void populate(void* data, size_t bytes);

// Return memory for data that is written once and stays, such as packed weights: successive parts
// of a region of large pages, of which the system finds fewer. A part's own pages go back with it.
std::shared_ptr<float> lasting_memory(size_t bytes);

// Tell the system that it may reclaim the file's pages behind a constant that was packed: they are
// not needed soon. Memory of our own, which would come back empty, is left alone.
void release_pages(const Storage& storage);

}  // namespace menagerie
