// Every access of a shader to memory is checked here. The compiler's thread instrumentation calls
// these functions before each load and store that remains after optimisation; it also keeps the
// optimiser from inventing accesses that the program does not make.
#pragma once

#define MENAGERIE_UNCHECKED \
  __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#define MENAGERIE_INSIDE MENAGERIE_UNCHECKED __attribute__((always_inline)) inline

extern "C" {
// First and past the last byte of this shader's library, named by the linker.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace menagerie::emulated {

MENAGERIE_INSIDE Fiber* current() {
  Address stack;
  asm("movq %%rsp, %0" : "=r"(stack));
  return reinterpret_cast<Fiber*>((stack & ~Address(kStackBytes - 1)) + line_of(stack));
}

__attribute__((noinline, cold)) MENAGERIE_UNCHECKED inline void fault(Fault kind, Address address,
                                                                      ulong bytes, bool write,
                                                                      uint other = 0) {
  Fiber* fiber = current();
  fiber->group->host->fault(fiber, kind, {address, bytes, other, write});
  __builtin_unreachable();
}

// Whether another thread's access is over for sure: a barrier lies between, or an operation of the
// SIMD group that both belong to.
MENAGERIE_INSIDE bool is_ordered(const Fiber* fiber, Note note) {
  const Local& local = fiber->group->local;
  const Note clock = note >> kThreadBits;
  const uint thread = uint(note & kThreadMask) - 1;
  if (clock < local.barrier_clock || thread == fiber->thread) return true;
  return thread / kSimdWidth == fiber->thread / kSimdWidth && clock < fiber->simd->clock;
}

// Notes the access in one granule and compares it with what was noted there.
MENAGERIE_INSIDE void note(Fiber* fiber, uint granule, Address address, ulong bytes, bool write,
                           bool atomic) {
  Local& local = fiber->group->local;
  Note& written = local.written[granule];
  Note& read = local.read[granule];
  const Note mine = local.clock << kThreadBits | (fiber->thread + 1);
  const bool known = written >> kThreadBits >= local.group_clock;
  if (write) {
    if (!atomic && read >> kThreadBits >= local.group_clock && !is_ordered(fiber, read)) {
      fault(Fault::kRace, address, bytes, true, read & kThreadMask);
    }
    written = mine;
    return;
  }
  if (!known) fault(Fault::kUninitialised, address, bytes, false);
  if (!atomic && !is_ordered(fiber, written)) {
    fault(Fault::kRace, address, bytes, false, written & kThreadMask);
  }
  if (atomic) return;
  const bool shared = read >> kThreadBits >= local.group_clock && !is_ordered(fiber, read);
  read = shared ? local.clock << kThreadBits | kManyThreads : mine;
}

// Apart from check(), which runs far more often and needs fewer registers.
template <bool Write>
__attribute__((noinline)) MENAGERIE_UNCHECKED void check_local(Fiber* fiber, Address address,
                                                               ulong bytes, bool atomic) {
  const Local& local = fiber->group->local;
  const uint at = uint(address - Address(local.memory));
  for (uint i = 0; i < local.count; ++i) {
    const Variable& variable = local.variables[i];
    const uint inside = at - variable.offset;
    if (inside >= variable.bytes) continue;
    if (variable.bytes - inside < bytes) break;
    uint granule = variable.offset + (inside >> variable.granule_shift);
    const uint last = variable.offset + ((inside + uint(bytes) - 1) >> variable.granule_shift);
    do {
      note(fiber, granule, address, bytes, Write, atomic);
    } while (++granule <= last);
    return;
  }
  fault(Fault::kOutOfBounds, address, bytes, Write);
}

template <bool Write>
MENAGERIE_INSIDE void check(Address address, ulong bytes, ulong alignment, bool atomic = false) {
  Fiber* fiber = current();
  if ((address ^ Address(fiber)) < kStackBytes) return;
  const Group& group = *fiber->group;
  if (address % alignment != 0) fault(Fault::kMisaligned, address, bytes, Write);
  if (address - Address(group.local.memory) < kLocalBytes) {
    return check_local<Write>(fiber, address, bytes, atomic);
  }
  for (uint i = 0; i < group.range_count; ++i) {
    const Range& range = group.ranges[i];
    const ulong inside = address - range.low;
    if (inside >= range.bytes) continue;
    if (range.bytes - inside < bytes) break;
    if (!Write || range.writable) return;
    fault(Fault::kReadOnly, address, bytes, true);
  }
  if (!Write && address - Address(__ehdr_start) < Address(_end) - Address(__ehdr_start)) return;
  fault(Fault::kOutOfBounds, address, bytes, Write);
}

}  // namespace menagerie::emulated

extern "C" {
#define MENAGERIE_CALLED __attribute__((used, visibility("hidden"))) MENAGERIE_UNCHECKED inline
#define MENAGERIE_SIZE(bytes)                                                     \
  MENAGERIE_CALLED void __tsan_read##bytes(void* at) {                            \
    menagerie::emulated::check<false>(reinterpret_cast<ulong>(at), bytes, bytes); \
  }                                                                               \
  MENAGERIE_CALLED void __tsan_write##bytes(void* at) {                           \
    menagerie::emulated::check<true>(reinterpret_cast<ulong>(at), bytes, bytes);  \
  }                                                                               \
  MENAGERIE_CALLED void __tsan_unaligned_read##bytes(void* at) {                  \
    menagerie::emulated::check<false>(reinterpret_cast<ulong>(at), bytes, 1);     \
  }                                                                               \
  MENAGERIE_CALLED void __tsan_unaligned_write##bytes(void* at) {                 \
    menagerie::emulated::check<true>(reinterpret_cast<ulong>(at), bytes, 1);      \
  }
MENAGERIE_SIZE(1)
MENAGERIE_SIZE(2)
MENAGERIE_SIZE(4)
MENAGERIE_SIZE(8)
MENAGERIE_SIZE(16)
#undef MENAGERIE_SIZE

MENAGERIE_CALLED void __tsan_init() {}
MENAGERIE_CALLED void* __tsan_memmove(void* to, const void* from, ulong bytes) {
  if (bytes == 0) return to;
  menagerie::emulated::check<false>(reinterpret_cast<ulong>(from), bytes, 1);
  menagerie::emulated::check<true>(reinterpret_cast<ulong>(to), bytes, 1);
  return __builtin_memmove(to, from, bytes);
}
MENAGERIE_CALLED void* __tsan_memcpy(void* to, const void* from, ulong bytes) {
  return __tsan_memmove(to, from, bytes);
}
MENAGERIE_CALLED void* __tsan_memset(void* to, int value, ulong bytes) {
  if (bytes == 0) return to;
  menagerie::emulated::check<true>(reinterpret_cast<ulong>(to), bytes, 1);
  return __builtin_memset(to, value, bytes);
}

// An integer was divided by zero; what a GPU yields then is undefined.
MENAGERIE_CALLED void __ubsan_handle_divrem_overflow_abort(void*, ulong, ulong) {
  menagerie::emulated::fault(menagerie::emulated::Fault::kDivision, 0, 0, false);
}
#undef MENAGERIE_CALLED
}
