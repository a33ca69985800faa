#include "metal/emulated/report.h"

#include <sstream>

namespace menagerie::metal::emulated {
namespace {

using menagerie::emulated::Access;
using menagerie::emulated::Address;
using menagerie::emulated::Fault;
using menagerie::emulated::Group;
using menagerie::emulated::KernelEntry;
using menagerie::emulated::kLocalBytes;
using menagerie::emulated::kManyThreads;
using menagerie::emulated::kSimdWidth;
using menagerie::emulated::kThreadgroupBytes;
using menagerie::emulated::Range;
using menagerie::emulated::Variable;

std::string triple(const std::array<unsigned, 3>& xyz) {
  std::ostringstream text;
  text << '(' << xyz[0] << ", " << xyz[1] << ", " << xyz[2] << ')';
  return text.str();
}

// How far an address lies outside a range of bytes.
Address distance(Address address, Address low, Address bytes) {
  if (address < low) return low - address;
  return address < low + bytes ? 0 : address - low - bytes + 1;
}

void describe_place(std::ostream& text, Address address, Address low) {
  if (address < low) {
    text << low - address << " bytes before ";
  } else {
    text << "at byte " << address - low << " of ";
  }
}

bool is_local(const Access& access, const Group& group) {
  return access.address - reinterpret_cast<Address>(group.local.memory) < kLocalBytes;
}

// "at byte 32 of a threadgroup variable of 32 bytes".
void describe_local(std::ostream& text, const Access& access, const Group& group) {
  const Address base = reinterpret_cast<Address>(group.local.memory);
  const Variable* nearest = nullptr;
  for (unsigned i = 0; i < group.local.count; ++i) {
    const Variable& one = group.local.variables[i];
    if (nearest == nullptr ||
        distance(access.address, base + one.offset, one.bytes) <
            distance(access.address, base + nearest->offset, nearest->bytes)) {
      nearest = &one;
    }
  }
  if (nearest == nullptr) return void(text << "in threadgroup memory, which has no variables");
  describe_place(text, access.address, base + nearest->offset);
  text << "a threadgroup variable of " << nearest->bytes << " bytes";
}

// "at byte 400 of argument 1 (in_ptr0), which has 400 bytes".
void describe_argument(std::ostream& text, const Access& access, const KernelEntry& kernel,
                       const Group& group, std::span<const uint32_t> indices) {
  const Range* nearest = nullptr;
  uint32_t index = 0;
  for (unsigned i = 0; i < group.range_count; ++i) {
    const Range& one = group.ranges[i];
    if (nearest != nullptr && distance(access.address, one.low, one.bytes) >=
                                  distance(access.address, nearest->low, nearest->bytes)) {
      continue;
    }
    nearest = &one;
    index = indices[i];
  }
  if (nearest == nullptr) return void(text << "without any argument");
  describe_place(text, access.address, nearest->low);
  text << "argument " << index;
  if (kernel.names[index] != nullptr) text << " (" << kernel.names[index] << ')';
  text << ", which has " << nearest->bytes << " bytes";
}

std::string other_thread(unsigned other) {
  if (other == kManyThreads) return "several threads";
  return "thread " + std::to_string(other - 1);
}

}  // namespace

std::string describe(const Finding& finding, const KernelEntry& kernel, const Group& group,
                     std::span<const uint32_t> indices) {
  const Access& access = finding.access;
  std::ostringstream text;
  text << "kernel " << kernel.name << ", thread " << triple(finding.thread) << ", number "
       << finding.number << " of group " << triple(finding.group) << ": ";
  const auto place = [&] {
    if (is_local(access, group)) return describe_local(text, access, group);
    describe_argument(text, access, kernel, group, indices);
  };
  const char* verb = access.write ? "writes " : "reads ";
  switch (finding.fault) {
    case Fault::kOutOfBounds:
      text << verb << access.bytes << " bytes out of bounds, ";
      place();
      break;
    case Fault::kReadOnly:
      text << "writes " << access.bytes << " bytes to read-only memory, ";
      place();
      break;
    case Fault::kMisaligned:
      text << verb << access.bytes << " bytes misaligned, ";
      place();
      break;
    case Fault::kUninitialised:
      text << "reads uninitialised threadgroup memory, ";
      place();
      break;
    case Fault::kRace:
      text << verb << "what " << other_thread(access.other)
           << " of the group touches without a barrier between, ";
      place();
      break;
    case Fault::kInactiveLane:
      text << "reads lane " << access.other << " of its SIMD group, which is not active";
      break;
    case Fault::kTooMuchLocal:
      text << "needs " << access.bytes << " bytes of threadgroup memory; there are "
           << kThreadgroupBytes;
      break;
    case Fault::kDivision:
      text << "divides an integer by nought, or overflows in dividing";
      break;
    case Fault::kDivergentBarrier:
      text << "waits at a barrier that thread " << access.other - 1 << " does not come to";
      break;
    case Fault::kDivergentSimd:
      text << "is at another SIMD operation than thread " << access.other - 1
           << " of its SIMD group";
      break;
    case Fault::kNone:
      break;
  }
  return text.str();
}

}  // namespace menagerie::metal::emulated
