// What is read before a signature is found good: a root's metadata, and signature.json.
//
// The first byte says which of the two the rest is.
#include "common/trust.h"

#include "scratch.h"
#include "target.h"

using namespace menagerie;

namespace {

const std::string kKey(64, 'a');
const std::string kRoot =
    R"({"signed": {"_type": "root", "version": 1, "roles": {"targets": {"threshold": 1, "keyids": [")" +
    kKey + R"("]}}, "keys": {")" + kKey + R"(": {"keytype": "ed25519", "keyval": {"public": ")" +
    std::string(64, '1') + R"("}}}}})";

}  // namespace

FUZZ(trust) {
  if (bytes.empty()) return;
  const bool root = bytes.front() == 'r';
  const auto place = fuzz::scratch("root.json", root ? bytes.substr(1) : kRoot);
  const Trust trust = Trust::read(place);
  const auto signature = fuzz::scratch("signed/signature.json", root ? "{}" : bytes.substr(1));
  // a forged signature of this key would be worth the crash
  MUST(!fuzz::takes([&](auto) { trust.require_signed(signature.parent_path(), "m"); }, ""));
}
