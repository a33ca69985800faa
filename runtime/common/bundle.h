// An opened bundle folder: its manifest, and its weights mapped once for all programs.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "common/manifest.h"
#include "common/safetensors.h"

namespace menagerie {

class Bundle {
 public:
  // Reads the manifest and checks that this machine offers what it requires, before anything of the
  // bundle is mapped or loaded.
  static std::shared_ptr<const Bundle> open(const std::filesystem::path& folder);

  const Manifest& manifest() const { return manifest_; }
  const std::shared_ptr<const SafeTensors>& weights() const { return weights_; }

  // The path of a file the manifest lists, once its size has been found right.
  std::filesystem::path checked_size(const std::string& file) const;
  // The same, once its sha256 has been found right too.
  std::filesystem::path checked_hash(const std::string& file) const;

 private:
  explicit Bundle(std::filesystem::path folder);

  std::filesystem::path folder_;
  Manifest manifest_;
  std::shared_ptr<const SafeTensors> weights_;
};

}  // namespace menagerie
