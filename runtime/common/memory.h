// Memory of the host: the arena of a program, and advice to the system about pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace menagerie {

class Storage;

// A caching allocator: memory that a run frees is kept for the next ones, so that only the first
// run pays for page faults. Blocks are cut out of what was freed last, which is likely still in the
// processor's cache, and grow together again when they are freed. One arena belongs to one program;
// it lives until its last block is returned.
class Arena {
 public:
  static constexpr size_t kAlignment = 64;
  // Memory that this many runs have not asked for goes back to the system.
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
  // Memory of the system's, by its address.
  struct Chunk {
    size_t bytes;
    size_t live;   // of blocks in it
    uint64_t run;  // that used it last
  };
  // A free part of a chunk, by its address.
  struct Gap {
    size_t bytes;
    uint64_t freed;  // a count of releases
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

// Asks for all whole pages of memory that is about to be written: one call instead of a fault for
// each. Systems that cannot lose nothing.
void populate(void* data, size_t bytes);

// Memory for what is written once and stays, such as packed weights: part after part of a region of
// large pages, of which the system has fewer to find. A part's own pages go back with it.
std::shared_ptr<float> lasting_memory(size_t bytes);

// The file's pages behind a constant that was packed are not needed soon; the system may take them
// back. Nothing happens to memory of our own, which would come back empty.
void release_pages(const Storage& storage);

}  // namespace menagerie
