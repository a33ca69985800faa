// Trust in bundles: keys of the roots that this machine's owner has chosen, and the signature
// beside a manifest; rule 13 of runtime/menagerie/format/FORMAT.md.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ed25519.h"

namespace menagerie {

inline constexpr char kDamaged[] = "; the bundle is damaged: pull it again";
inline constexpr char kSignature[] = "signature.json";
// For tools of OpenSSF Model Signing: a folder may hold it, but nothing here reads it.
inline constexpr char kModelSignature[] = "model.sig";

// What one trusted root specifies about signers of releases.
struct TrustRoot {
  std::map<std::string, PublicKey> keys;  // by key id
  int64_t threshold = 1;                  // this many of them must have signed
};

class Trust {
 public:
  // Read a root's metadata of The Update Framework, or all `*.json` of a folder; fail with the file
  // and the invalid member. A missing folder holds none.
  static Trust read(const std::filesystem::path& place);

  // Fail unless signature.json in the folder holds enough signatures over exactly these bytes.
  void require_signed(const std::filesystem::path& folder, std::string_view manifest) const;

 private:
  std::filesystem::path place_;
  std::vector<TrustRoot> roots_;
};

}  // namespace menagerie
