// The arena, the bounded cache, the cache of constants, memory that lasts, and SHA-256.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "common/context.h"
#include "common/memory.h"
#include "common/sha256.h"
#include "metal/device.h"

using menagerie::Arena;
using namespace menagerie::metal;

namespace {

std::string digest(std::string_view text) {
  return menagerie::sha256(std::as_bytes(std::span(text)));
}

struct Number : menagerie::Prepared {
  explicit Number(int n) : value(n) {}
  int value;
};

}  // namespace

TEST("what is made of a constant is made once, and forgotten with its last user") {
  menagerie::ConstantCache cache;
  const menagerie::Key key("number");
  std::weak_ptr<menagerie::Storage> kept;
  {
    auto constant = menagerie::Storage::borrow(nullptr, 0);
    kept = constant;
    auto first = cache.get<Number>(key, constant, [] { return std::make_shared<Number>(1); });
    constant.reset();
    const auto second = cache.get<Number>(
        key, nullptr, []() -> std::shared_ptr<Number> { throw std::logic_error("made twice"); });
    CHECK(first == second && first->value == 1 && cache.size() == 1);
    first.reset();
    CHECK(cache.size() == 1 && !kept.expired());
  }
  CHECK(cache.size() == 0 && kept.expired());
  CHECK(cache.get<Number>(key, nullptr, [] { return std::make_shared<Number>(2); })->value == 2);
}

TEST("of two that make the same at once, both get the first") {
  menagerie::ConstantCache cache;
  const menagerie::Key key("number");
  std::shared_ptr<Number> first;
  const auto second = cache.get<Number>(key, nullptr, [&] {
    first = cache.get<Number>(key, nullptr, [] { return std::make_shared<Number>(1); });
    return std::make_shared<Number>(2);
  });
  CHECK(first == second && second->value == 1 && cache.size() == 1);
}

TEST("programs share what is made of a constant, and each asks the others for it once") {
  menagerie::Tensor constant;
  constant.storage = menagerie::Storage::borrow(nullptr, 0);
  const menagerie::Key key("number of programs");
  int made = 0;
  const auto ask = [&](menagerie::Context& program) {
    const menagerie::Context::Loan loan(program);
    return menagerie::made_once<Number>(key, constant,
                                        [&] { return std::make_shared<Number>(++made); });
  };
  auto first = std::make_unique<menagerie::Context>(1),
       second = std::make_unique<menagerie::Context>(1);
  CHECK(ask(*first) == ask(*second) && ask(*first)->value == 1 && made == 1);
  first.reset();
  CHECK(ask(*second)->value == 1 && made == 1);
  second.reset();
  menagerie::Context third(1);
  CHECK(ask(third)->value == 2);
}

TEST("parts of lasting memory are on separate lines of the cache, and outlive their neighbours") {
  const size_t sizes[] = {4, 10'000, 5'000'000, 70'000'000, 12};  // bytes
  std::vector<std::shared_ptr<float>> parts;
  for (const size_t bytes : sizes) {
    parts.push_back(menagerie::lasting_memory(bytes));
    CHECK(reinterpret_cast<uintptr_t>(parts.back().get()) % 64 == 0);
    std::fill_n(parts.back().get(), bytes / sizeof(float), float(bytes));
  }
  parts[1].reset();
  parts[3].reset();
  for (const size_t i : {0, 2, 4}) {
    const float* part = parts[i].get();
    const auto wanted = [&](float value) { return value == float(sizes[i]); };
    CHECK(std::all_of(part, part + sizes[i] / sizeof(float), wanted));
  }
}

TEST("freed blocks are handed out again, and returned when no run wants them") {
  Arena arena;
  const Arena::Block block = arena.allocate(1000);
  CHECK(reinterpret_cast<uintptr_t>(block.data) % Arena::kAlignment == 0);
  CHECK(block.bytes >= 1000 && arena.live() == block.bytes);
  arena.release(block);
  CHECK(arena.live() == 0 && arena.cached() == block.bytes);
  const Arena::Block again = arena.allocate(1000);
  CHECK(again.data == block.data && arena.cached() == 0);
  arena.release(again);
  for (uint64_t run = 0; run <= Arena::kKeptRuns; ++run) arena.end_run();
  CHECK(arena.cached() == 0);
}

TEST("what is left of a freed block serves further requests, and it is merged again") {
  Arena arena;
  const Arena::Block large = arena.allocate(1 << 20);
  arena.release(large);
  std::vector<Arena::Block> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(arena.allocate(1 << 18));
  for (const Arena::Block& part : parts) {
    CHECK(part.data >= large.data && part.bytes == 1 << 18);
    CHECK(static_cast<char*>(part.data) + part.bytes <=
          static_cast<char*>(large.data) + large.bytes);
  }
  CHECK(parts[0].data != parts[1].data && parts[1].data != parts[2].data);
  CHECK(arena.live() == 3 << 18 && arena.cached() == 1 << 18);
  for (const size_t i : {0U, 2U, 1U}) arena.release(parts[i]);  // the last one between gaps
  CHECK(arena.live() == 0 && arena.cached() == large.bytes);
  CHECK(arena.allocate(1 << 20).data == large.data);
}

TEST("a request is met by what was freed last, whatever its size") {
  Arena arena;
  const Arena::Block first = arena.allocate(4096), second = arena.allocate(1 << 20);
  arena.release(first);
  arena.release(second);
  CHECK(arena.allocate(4096).data == second.data);
}

TEST("what recent runs have not used goes back, but not while a part of it is in use") {
  Arena arena;
  const Arena::Block large = arena.allocate(1 << 20);
  arena.release(large);
  const Arena::Block part = arena.allocate(64);
  for (uint64_t run = 0; run <= 2 * Arena::kKeptRuns; ++run) arena.end_run();
  CHECK(arena.live() == 64 && arena.cached() == large.bytes - 64);
  arena.release(part);
  for (uint64_t run = 0; run <= Arena::kKeptRuns; ++run) arena.end_run();
  CHECK(arena.cached() == 0);
}

TEST("no block is too large to ask for") {
  Arena arena;
  bool refused = false;
  try {
    arena.allocate(SIZE_MAX - 1);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  CHECK(refused);
}

TEST("SHA-256 of the examples of FIPS 180-4") {
  CHECK(digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(digest(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST("the cache keeps what was used last, and forgets nothing when making throws") {
  menagerie::KernelCache kept(2);
  int made = 0;
  const auto keyed = [](int64_t number) { return menagerie::Key("number").add(number); };
  const auto get = [&](int64_t number) {
    const auto make = [&] { return std::make_shared<Number>(++made); };
    return kept.get<Number>(keyed(number), make)->value;
  };
  CHECK(get(1) == 1 && get(2) == 2 && get(1) == 1);
  CHECK(get(3) == 3 && get(1) == 1 && made == 3);
  CHECK(get(2) == 4 && kept.size() == 2);
  bool threw = false;
  try {
    kept.get<Number>(keyed(9), []() -> std::shared_ptr<Number> { throw std::runtime_error("no"); });
  } catch (const std::runtime_error&) {
    threw = true;
  }
  CHECK(threw && kept.size() == 2 && get(1) == 1 && get(2) == 4);
}

TEST("convolutions that differ in one number share no graph, equal ones do") {
  menagerie::KernelCache graphs(64);
  const auto number = [&](const ConvolutionDescriptor& descriptor) {
    const auto next = [&] { return std::make_shared<Number>(static_cast<int>(graphs.size())); };
    return graphs.get<Number>(descriptor.key(), next)->value;
  };
  ConvolutionDescriptor plain, bias, layout, padding, transposed, groups;
  bias.has_bias = true;
  layout.input_layout = ImageLayout::kNhwc;
  padding.output_padding = {0, 1};
  transposed.transposed = true;
  groups.groups = 2;
  int next = 0;
  for (const auto& key : {plain, bias, layout, padding, transposed, groups}) {
    CHECK(number(key) == next++);
  }
  CHECK(number(ConvolutionDescriptor()) == 0);
}
