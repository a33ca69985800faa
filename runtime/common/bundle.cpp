#include "common/bundle.h"

#include <algorithm>

#include "common/mapped_file.h"
#include "common/platform/machine.h"
#include "common/sha256.h"
#include "menagerie.h"

namespace menagerie {
namespace {

void check_requirements(const Manifest& manifest) {
  require(manifest.runtime_abi == MENAGERIE_RUNTIME_ABI, "the bundle needs runtime ABI ",
          manifest.runtime_abi, ", this runtime has ", MENAGERIE_RUNTIME_ABI);
  require(manifest.target == "cpu", "the bundle is for target ", manifest.target,
          ", this runtime is for cpu");
  require(manifest.system == machine::system() && manifest.machine == machine::architecture(),
          "the bundle is for ", manifest.system, " on ", manifest.machine, ", this is ",
          machine::system(), " on ", machine::architecture());
  for (const std::string& instruction : manifest.instructions) {
    require(machine::has_instructions(instruction), "the bundle needs processor instructions ",
            instruction, ", which this processor lacks");
  }
}

}  // namespace

Bundle::Bundle(std::filesystem::path folder)
    : folder_(std::move(folder)), manifest_(Manifest::read(folder_)) {
  try {
    check_requirements(manifest_);
  } catch (const Error& error) {
    fail(folder_.string(), ": ", error.what());
  }
  weights_ = std::make_shared<const SafeTensors>(checked_size(manifest_.weights));
}

std::shared_ptr<const Bundle> Bundle::open(const std::filesystem::path& folder) {
  return std::shared_ptr<const Bundle>(new Bundle(folder));
}

std::filesystem::path Bundle::checked_size(const std::string& file) const {
  const FileEntry& entry = manifest_.file(file);
  const std::filesystem::path path = folder_ / file;
  std::error_code error;
  // A link could lead out of the folder, also one in the middle of the path.
  std::filesystem::path step = folder_;
  for (const auto& part : std::filesystem::path(file)) {
    step /= part;
    require(!std::filesystem::is_symlink(step, error), step.string(), ": is a symbolic link");
  }
  const auto size = std::filesystem::file_size(path, error);
  require(!error, path.string(), ": ", error.message());
  require(static_cast<int64_t>(size) == entry.bytes, path.string(), ": is ", size,
          " bytes long, the manifest says ", entry.bytes);
  return path;
}

std::filesystem::path Bundle::checked_hash(const std::string& file) const {
  const std::filesystem::path path = checked_size(file);
  const std::string found = sha256(MappedFile(path).bytes());
  const std::string& promised = manifest_.file(file).sha256;
  require(found == promised, path.string(), ": has sha256 ", found, ", the manifest says ",
          promised);
  return path;
}

}  // namespace menagerie
