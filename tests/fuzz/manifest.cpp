// manifest.json, as the runtime reads it.
#include "common/manifest.h"

#include <set>

#include "scratch.h"
#include "target.h"

using namespace menagerie;

namespace {

void check_tensors(const std::vector<TensorSpec>& tensors) {
  for (const TensorSpec& tensor : tensors) {
    MUST(!tensor.name.empty() && tensor.shape.size() <= kMaxAxes);
    for (const Axis& axis : tensor.shape) {
      MUST(axis.highest == -1 || (axis.lowest >= 0 && axis.lowest <= axis.highest));
      MUST(axis.step >= 1);
    }
  }
}

// No path leaves the folder, whatever is appended to it.
void check_path(const std::string& path) {
  MUST(!path.empty() && path.front() != '/' && path.find('\0') == std::string::npos);
  for (const auto& part : std::filesystem::path(path)) MUST(part != ".." && part != ".");
}

}  // namespace

FUZZ(manifest) {
  const Manifest manifest =
      Manifest::read(fuzz::scratch("manifest/manifest.json", bytes).parent_path());
  MUST(!manifest.programs.empty() && manifest.files.contains("weights"));
  for (const auto& [path, entry] : manifest.listed) {
    check_path(path);
    MUST(entry.bytes >= 0 && entry.sha256.size() == 64);
  }
  std::set<std::string> names;
  for (const ProgramSpec& program : manifest.programs) {
    MUST(names.insert(program.name).second && &manifest.program(program.name) == &program);
    MUST(program.files.contains("library") && program.files.contains("golden"));
    for (const auto& [role, path] : program.files) MUST(manifest.listed.contains(path));
    check_tensors(program.inputs);
    check_tensors(program.outputs);
  }
}
