// Holds metal/lru.h against its promises; prints the first one that is broken.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "metal/device.h"
#include "metal/lru.h"

using namespace menagerie::metal;

static bool passed = true;

static void expect(bool holds, const char* promise) {
  if (!holds) std::puts(promise);
  passed = passed && holds;
}

int main() {
  Lru<int, std::string> kept(2);
  int made = 0;
  const auto get = [&](int key) { return kept.get(key, [&] { return std::to_string(++made); }); };
  expect(get(1) == "1" && get(2) == "2" && get(1) == "1", "a key is made once");
  expect(get(3) == "3" && get(1) == "1" && made == 3, "what was used last stays");
  expect(get(2) == "4" && kept.size() == 2, "the longest unused one goes");
  try {
    kept.get(9, []() -> std::string { throw std::runtime_error("no"); });
    expect(false, "what making throws comes through");
  } catch (const std::runtime_error&) {
    expect(kept.size() == 2 && get(1) == "1" && get(2) == "4", "failing to make changes nothing");
  }

  Lru<ConvolutionDescriptor, int> graphs(64);
  const auto number = [&](const ConvolutionDescriptor& key) {
    return graphs.get(key, [&] { return static_cast<int>(graphs.size()); });
  };
  ConvolutionDescriptor plain, bias, layout, padding, transposed, groups;
  bias.has_bias = true;
  layout.output_layout = ImageLayout::kNhwc;
  padding.output_padding = {0, 1};
  transposed.transposed = true;
  groups.groups = 2;
  int next = 0;
  for (const auto& key : {plain, bias, layout, padding, transposed, groups}) {
    expect(number(key) == next++, "convolutions that differ in one number share nothing");
  }
  expect(number(ConvolutionDescriptor()) == 0, "equal convolutions share one graph");
  return passed ? 0 : 1;
}
