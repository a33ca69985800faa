#include "metal/emulated/report.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

namespace menagerie::metal::emulated {
namespace {

using menagerie::emulated::Access;
using menagerie::emulated::Address;
using menagerie::emulated::Fault;
using menagerie::emulated::Group;
using menagerie::emulated::KernelEntry;
using menagerie::emulated::kManyThreads;
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

// A stretch of memory that a kernel may touch, and what a person calls it.
struct Place {
  Address low;
  Address bytes;
  std::string name;
};

// Where an access to this address can have been meant to go. Numbers passed by value lie somewhere
// in the host's memory: only what is next to them is likely to be about them.
std::vector<Place> places(Address address, const KernelEntry& kernel, const Group& group,
                          std::span<const uint32_t> indices) {
  std::vector<Place> all;
  for (unsigned i = 0; i < group.local.count; ++i) {
    const Variable& variable = group.local.variables[i];
    all.push_back({reinterpret_cast<Address>(group.local.memory) + variable.offset, variable.bytes,
                   "a threadgroup variable"});
  }
  for (unsigned i = 0; i < group.range_count; ++i) {
    const Range& range = group.ranges[i];
    if (range.by_value && distance(address, range.low, range.bytes) > kMaxInlineBytes) continue;
    const char* name = kernel.names[indices[i]];
    all.push_back({range.low, range.bytes,
                   "argument " + std::to_string(indices[i]) +
                       (name == nullptr ? "" : " (" + std::string(name) + ")")});
  }
  return all;
}

// "at byte 400 of argument 1 (in_ptr0), which has 400 bytes": the place that is nearest.
std::string describe_place(Address address, const std::vector<Place>& places) {
  if (places.empty()) return "where nothing is";
  const Place& nearest = *std::ranges::min_element(
      places, {}, [&](const Place& place) { return distance(address, place.low, place.bytes); });
  std::ostringstream text;
  if (address < nearest.low) {
    text << nearest.low - address << " bytes before " << nearest.name;
  } else {
    text << "at byte " << address - nearest.low << " of " << nearest.name;
  }
  text << ", which has " << nearest.bytes << " bytes";
  return text.str();
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
    text << describe_place(access.address, places(access.address, kernel, group, indices));
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
      text << verb << "what was touched by " << other_thread(access.other)
           << " of the group without a barrier between, ";
      place();
      break;
    case Fault::kInactiveLane:
      text << "reads lane " << access.other << " of its SIMD group, which is not active";
      break;
    case Fault::kDifferentMatrix:
      text << "means another matrix than lane 0 of its SIMD group";
      break;
    case Fault::kTooMuchLocal:
      text << "needs " << access.bytes << " bytes of threadgroup memory; there are "
           << kThreadgroupBytes;
      break;
    case Fault::kDivision:
      text << "divides an integer by zero, or overflows in dividing";
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
