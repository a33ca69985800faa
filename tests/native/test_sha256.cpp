// SHA-256 against the published examples, and the processor's instructions against plain code.
#include <random>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "common/sha256.h"

using namespace menagerie;

namespace {

std::string digest_of(const std::string& text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

// NIST, "Examples with Intermediate Values": SHA256.pdf and SHA2_Additional.pdf.
TEST("digests are those of the standard's examples, on both sides of a block's end") {
  CHECK(digest_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(digest_of(std::string(55, '\0')) ==
        "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
  CHECK(digest_of(std::string(56, '\0')) ==
        "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
  CHECK(digest_of(std::string(64, '\0')) ==
        "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
  CHECK(digest_of(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST("the processor's instructions make the states that plain code makes") {
  const sha256_blocks::Add instructions = sha256_blocks::by_instructions();
  if (instructions == nullptr) return;  // nothing to hold against it here
  std::mt19937 random(0);
  for (size_t blocks = 0; blocks < 9; ++blocks) {
    std::vector<std::byte> bytes(blocks * sha256_blocks::kBytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    sha256_blocks::State plain;
    for (uint32_t& word : plain) word = static_cast<uint32_t>(random());
    sha256_blocks::State made = plain;
    sha256_blocks::add_plainly(plain, bytes.data(), blocks);
    instructions(made, bytes.data(), blocks);
    CHECK(made == plain);
  }
}
