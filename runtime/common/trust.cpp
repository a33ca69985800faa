#include "common/trust.h"

#include <algorithm>
#include <set>

#include "common/error.h"
#include "common/json.h"
#include "common/mapped_file.h"

namespace menagerie {
namespace {

constexpr size_t kMostBytes = size_t{64} << 10;  // of a root or a signature
constexpr std::string_view kPayloadType = "application/vnd.menagerie.bundle+json";

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <size_t kSize>
std::array<uint8_t, kSize> from_hex(std::string_view text, std::string_view place) {
  require(text.size() == 2 * kSize, place, ": is not ", 2 * kSize, " hexadecimal digits");
  std::array<uint8_t, kSize> bytes;
  for (size_t i = 0; i < kSize; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    require(high >= 0 && low >= 0, place, ": is not ", 2 * kSize, " hexadecimal digits");
    bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return bytes;
}

// Read the members used here; a root has others, and whoever obtains it checks its signatures.
TrustRoot read_root(const Json& value) {
  const Json& root = value.at("signed", "root");
  require(root.at("_type", "signed").string("_type") == "root", "_type is not root");
  const Json& role = root.at("roles", "signed").at("targets", "roles");
  TrustRoot found;
  found.threshold = role.at("threshold", "roles.targets").integer("roles.targets.threshold");
  require(found.threshold >= 1, "roles.targets.threshold is less than 1");
  for (const Json& id : role.at("keyids", "roles.targets").array("roles.targets.keyids")) {
    const std::string& name = id.string("roles.targets.keyids");
    const Json& key = root.at("keys", "signed").at(name, "keys");
    if (key.at("keytype", "keys").string("keytype") != "ed25519") continue;
    const std::string& text = key.at("keyval", "keys").at("public", "keyval").string("public");
    found.keys.emplace(name, from_hex<32>(text, "keyval.public"));
  }
  return found;
}

TrustRoot read_root_file(const std::filesystem::path& path) {
  try {
    return read_root(Json::parse(read_text(OpenFile(path), kMostBytes)));
  } catch (const Error& error) {
    fail(path.string(), ": is not a trusted root: ", error.what());
  }
}

// Return what is signed: the type and the bytes in DSSE's pre-authentication encoding.
std::string encoded(std::string_view manifest) {
  std::string text = "DSSEv1 ";
  text += std::to_string(kPayloadType.size());
  text.append(" ").append(kPayloadType).append(" ");
  text += std::to_string(manifest.size());
  return text.append(" ").append(manifest);
}

std::map<std::string, SignatureBytes> read_signatures(const std::filesystem::path& path) {
  const Json value = Json::parse(read_text(OpenFile(path), kMostBytes));
  const Fields fields(value, "signature", {"format", "version", "signatures"});
  require(fields.text("format") == "menagerie-signature" && fields.integer("version") == 1,
          "is not a signature of version 1");
  std::map<std::string, SignatureBytes> found;
  for (const Json& item : fields.array("signatures")) {
    const Fields entry(item, "signatures", {"keyid", "sig"});
    const auto bytes = from_hex<64>(entry.text("sig"), "signatures.sig");
    require(found.emplace(entry.digest("keyid"), bytes).second, "signatures: duplicate keyid");
  }
  return found;
}

}  // namespace

Trust Trust::read(const std::filesystem::path& place) {
  Trust trust;
  trust.place_ = place;
  std::error_code error;
  if (!std::filesystem::is_directory(place, error)) {
    if (std::filesystem::exists(place, error)) trust.roots_.push_back(read_root_file(place));
    return trust;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(place)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const auto& file : files) trust.roots_.push_back(read_root_file(file));
  return trust;
}

void Trust::require_signed(const std::filesystem::path& folder, std::string_view manifest) const {
  const std::filesystem::path path = folder / kSignature;
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    require(!std::filesystem::exists(folder / kModelSignature, error), path.string(),
            ": is missing", kDamaged);
    fail(folder.string(), ": nobody has signed this bundle, and it is native code");
  }
  require(std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error)),
          path.string(), ": is not a regular file");
  std::map<std::string, SignatureBytes> signatures;
  try {
    signatures = read_signatures(path);
  } catch (const Error& fault) {
    fail(path.string(), ": ", fault.what(), kDamaged);
  }
  const std::string text = encoded(manifest);
  const auto message = std::as_bytes(std::span(text));
  bool known = false;
  for (const TrustRoot& root : roots_) {
    std::set<PublicKey> signers;
    for (const auto& [id, key] : root.keys) {
      const auto found = signatures.find(id);
      if (found == signatures.end()) continue;
      known = true;
      if (ed25519_signed(found->second, key, message)) signers.insert(key);
    }
    if (static_cast<int64_t>(signers.size()) >= root.threshold) return;
  }
  require(!known, path.string(), ": the manifest is not what was signed", kDamaged);
  fail(path.string(), ": no trusted key has signed this bundle; trusted are those in ",
       place_.string());
}

}  // namespace menagerie
