// What a compiled shader and the emulated device share. Both include it, so it uses no standard
// header. A thread of a threadgroup is a fiber, whose record lies at the foot of its stack, where
// the shader finds it from the stack pointer alone.
#pragma once

namespace menagerie::emulated {

using Address = unsigned long;
static_assert(sizeof(Address) == sizeof(void*));

inline constexpr unsigned kSimdWidth = 32;
inline constexpr unsigned kMaxThreads = 1024;  // a threadgroup, as on every Apple GPU
inline constexpr unsigned kMaxSimds = kMaxThreads / kSimdWidth;
inline constexpr unsigned kMaxArguments = 31;             // buffers of a compute function
inline constexpr unsigned kThreadgroupBytes = 32 * 1024;  // as on every Apple GPU
inline constexpr unsigned kMaxVariables = 64;
inline constexpr unsigned kSlotBytes = 16;
// Threadgroup variables lie this far apart, so that an index just out of one hits none.
inline constexpr unsigned kRedZone = 64;
inline constexpr unsigned kLocalBytes = kThreadgroupBytes + (kMaxVariables + 1) * 2 * kRedZone;

// A fiber's piece of memory: a page with its record, a guard page, its stack. Neighbours' records,
// and what their stacks begin with, lie in different lines of a cache, of which there are so many.
inline constexpr unsigned kPageBytes = 4096;
inline constexpr unsigned kStackBytes = 64 * 1024;
inline constexpr unsigned kLineBytes = 64;
inline constexpr unsigned kLines = kPageBytes / kLineBytes;
__attribute__((always_inline)) inline Address line_of(Address stack) {
  return stack / kStackBytes % kLines * kLineBytes;
}

enum class Fault : unsigned {
  kNone,
  kOutOfBounds,
  kReadOnly,
  kMisaligned,
  kUninitialised,
  kRace,
  kInactiveLane,
  kDifferentMatrix,
  kTooMuchLocal,
  kDivision,
  kDivergentBarrier,
  kDivergentSimd,
};

struct Access {
  Address address;
  unsigned long bytes;
  unsigned other;  // a race: the other thread, or kManyThreads; an inactive lane: which
  bool write;
};

struct Group;
struct Fiber;

// Functions of the device that a shader calls.
struct Host {
  // Gives way until every thread of the group, or of the SIMD group, has come to the same site.
  void (*wait_for_group)(Fiber*, const void* site);
  void (*wait_for_simd)(Fiber*, const void* site);
  // Never returns: the dispatch ends with this fault.
  void (*fault)(Fiber*, Fault, Access);
};

// Memory that the kernel may touch: from an argument's place to the end of its buffer.
struct Range {
  Address low;
  unsigned long bytes;
  bool writable;
  bool by_value;  // not in a buffer
};

struct Simd {
  // Published values, by turns: what is published next does not overwrite what is still read.
  alignas(16) unsigned char slots[2][kSimdWidth][kSlotBytes];
  unsigned turn;
  unsigned active[2];                // lanes that took part
  unsigned long clock;               // of the last operation
  float product[8][8];               // of matrices, between the lanes' turns
  unsigned char folded[kSlotBytes];  // of all lanes, at the clock
  unsigned long folded_clock;
};

// A variable in threadgroup memory. Writes and reads are noted per granule: an element.
struct Variable {
  unsigned id;
  unsigned offset;
  unsigned bytes;
  unsigned granule_shift;  // log2 of its bytes
};

// Who touched a granule last: the clock above, the thread's number plus 1 below.
using Note = unsigned long;
inline constexpr unsigned kThreadBits = 11;
inline constexpr unsigned kThreadMask = (1U << kThreadBits) - 1;
inline constexpr unsigned kManyThreads = kThreadMask;

struct Local {
  unsigned char* memory;  // kLocalBytes
  Note* written;          // a note per granule, counted from the variable's offset
  Note* read;
  Note clock;          // moves on with every group, barrier and SIMD operation
  Note group_clock;    // when this group began
  Note barrier_clock;  // of the group's last barrier
  unsigned used;       // bytes of variables
  unsigned end;        // offset where the next variable may lie
  unsigned count;
  Variable variables[kMaxVariables];
};

// A threadgroup that is being run by one thread of the host.
struct Group {
  const Host* host;
  const Range* ranges;
  unsigned range_count;
  void* const* arguments;  // by index
  Address image_low;       // the compiled shader's own constants
  Address image_high;
  unsigned grid[3];      // threads in all
  unsigned groups[3];    // threadgroups in all
  unsigned nominal[3];   // threads of a full group
  unsigned size[3];      // threads of this group
  unsigned position[3];  // of this group
  unsigned cursor[3];    // position in the group of the next thread to start
  unsigned next;         // its number
  unsigned threads;      // in this group
  Local local;
  Simd simds[kMaxSimds];
};

struct Fiber {
  Group* group;
  Simd* simd;
  unsigned thread;  // number in the group
  unsigned lane;
  unsigned position[3];  // in the group
  bool finished;
  const void* site;     // where it waits
  void* stack_pointer;  // where it gave way
};
static_assert(sizeof(Fiber) <= kLineBytes);

// What a position attribute of a kernel's parameter stands for; buffers count from 0.
enum Role : int {
  kThreadInGrid = -1,
  kThreadInGroup = -2,
  kGroupInGrid = -3,
  kThreadsPerGrid = -4,
  kThreadsPerGroup = -5,
  kNominalThreadsPerGroup = -6,
  kGroupsPerGrid = -7,
  kIndexInGroup = -8,
  kIndexInSimd = -9,
  kSimdInGroup = -10,
  kThreadsPerSimd = -11,
  kSimdsPerGroup = -12,
  kNominalSimdsPerGroup = -13,
  kIndexInQuad = -14,
  kQuadInGroup = -15,
  kQuadsPerGroup = -16,
  kNominalQuadsPerGroup = -17,
  kAbsent = -18,  // what no launch sets: threadgroup memory, buffers of a function constant
};

// An entry of a compiled shader's table `menagerie_kernels`, which ends with a null name.
struct KernelEntry {
  const char* name;
  void (*run)(Fiber*);  // takes threads of the fiber's group until none is left
  unsigned max_threads;
  bool serial;                       // uses atomics: one order of threads makes results repeatable
  unsigned buffers;                  // a bit for each index it takes
  const char* names[kMaxArguments];  // its parameters' names, by index
};

}  // namespace menagerie::emulated
