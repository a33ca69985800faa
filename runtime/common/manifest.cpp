#include "common/manifest.h"

#include <algorithm>
#include <map>

#include "common/json.h"
#include "common/mapped_file.h"
#include "common/tensor.h"

namespace menagerie {
namespace {

constexpr int64_t kFormatVersion = 1;

using Dimensions = std::map<std::string, std::pair<int64_t, int64_t>>;

// A path inside the bundle: relative, of plain components, so that it cannot leave the folder.
std::string inner_path(const Json& value, std::string_view place) {
  const std::string& path = value.string(place);
  const std::filesystem::path parts(path);
  bool plain = !path.empty() && !parts.is_absolute() && path.find('\\') == std::string::npos &&
               path.find('\0') == std::string::npos;
  for (const auto& part : parts) plain = plain && !part.empty() && part != "." && part != "..";
  require(plain, place, ": \"", path, "\" is not a path inside the bundle");
  return path;
}

Dtype read_dtype(const Json& value, std::string_view place) {
  const std::string& name = value.string(place);
  for (const DtypeInfo& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  fail(place, ": dtype ", name, " is not supported");
}

Dimensions read_dimensions(const Json& value, std::string_view place) {
  Dimensions dimensions;
  for (const auto& [name, range] : value.object(place)) {
    const Json::Array& ends = range.array(place);
    require(ends.size() == 2, place, ".", name, " is not a pair");
    const int64_t lowest = ends[0].integer(place);
    const int64_t highest = ends[1].integer(place);
    require(lowest >= 0 && lowest <= highest, place, ".", name, " is not a range");
    dimensions.emplace(name, std::pair(lowest, highest));
  }
  return dimensions;
}

Axis read_axis(const Json& value, const Dimensions& dimensions, std::string_view place) {
  if (!value.is_string()) {
    const int64_t size = value.integer(place);
    require(size >= 0, place, ": size ", size, " is negative");
    return {"", size, size};
  }
  const std::string& name = value.string(place);
  if (name == "?") return {"", 0, -1};
  const auto found = dimensions.find(name);
  require(found != dimensions.end(), place, ": dimension ", name, " has no range");
  return {name, found->second.first, found->second.second};
}

std::vector<TensorSpec> read_tensors(const Json& value, const Dimensions& dimensions,
                                     std::string_view place) {
  std::vector<TensorSpec> specs;
  for (const Json& item : value.array(place)) {
    TensorSpec spec{item.at("name", place).string(place), read_dtype(item.at("dtype", place), place),
                    {}};
    for (const Json& axis : item.at("shape", place).array(place)) {
      spec.shape.push_back(read_axis(axis, dimensions, place));
    }
    require(spec.shape.size() <= kMaxDimensions, place, ".", spec.name, " has too many axes");
    specs.push_back(std::move(spec));
  }
  return specs;
}

ProgramSpec read_program(const Json& value) {
  constexpr std::string_view kPlace = "programs";
  ProgramSpec program;
  program.name = value.at("name", kPlace).string("programs.name");
  program.library = inner_path(value.at("library", kPlace), "programs.library");
  program.golden = inner_path(value.at("golden", kPlace), "programs.golden");
  program.golden_cases = value.at("golden_cases", kPlace).integer("programs.golden_cases");
  const Dimensions dimensions =
      read_dimensions(value.at("dimensions", kPlace), "programs.dimensions");
  program.inputs = read_tensors(value.at("inputs", kPlace), dimensions, "programs.inputs");
  program.outputs = read_tensors(value.at("outputs", kPlace), dimensions, "programs.outputs");
  for (const auto& [name, tensor] : value.at("constants", kPlace).object("programs.constants")) {
    program.constants.emplace_back(name, tensor.string("programs.constants"));
  }
  return program;
}

std::vector<FileEntry> read_files(const Json& value) {
  std::vector<FileEntry> files;
  for (const auto& [path, entry] : value.object("files")) {
    FileEntry file{path, entry.at("sha256", "files").string("files.sha256"),
                   entry.at("bytes", "files").integer("files.bytes")};
    require(file.bytes >= 0 && file.sha256.size() == 64, "files: entry of ", path, " is malformed");
    files.push_back(std::move(file));
  }
  return files;
}

Manifest read_manifest(const Json& value) {
  constexpr std::string_view kPlace = "manifest";
  require(value.at("format", kPlace).string("format") == "menagerie-bundle",
          "format is not menagerie-bundle");
  const int64_t version = value.at("version", kPlace).integer("version");
  require(version == kFormatVersion, "version is ", version, "; this runtime reads ",
          kFormatVersion);
  Manifest manifest;
  manifest.model = value.at("model", kPlace).string("model");
  manifest.target = value.at("target", kPlace).string("target");
  const Json& needs = value.at("requires", kPlace);
  manifest.system = needs.at("system", "requires").string("requires.system");
  manifest.machine = needs.at("machine", "requires").string("requires.machine");
  manifest.runtime_abi = needs.at("runtime_abi", "requires").integer("requires.runtime_abi");
  for (const Json& name : needs.at("instructions", "requires").array("requires.instructions")) {
    manifest.instructions.push_back(name.string("requires.instructions"));
  }
  for (const Json& program : value.at("programs", kPlace).array("programs")) {
    manifest.programs.push_back(read_program(program));
  }
  manifest.weights = inner_path(value.at("weights", kPlace), "weights");
  manifest.files = read_files(value.at("files", kPlace));
  return manifest;
}

}  // namespace

Manifest Manifest::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  const std::string text = read_text(path, kMaxBytes);
  try {
    return read_manifest(Json::parse(text));
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what());
  }
}

const ProgramSpec& Manifest::program(const std::string& name) const {
  const auto found = std::ranges::find(programs, name, &ProgramSpec::name);
  if (found != programs.end()) return *found;
  std::string known;
  for (const ProgramSpec& program : programs) known += (known.empty() ? "" : ", ") + program.name;
  fail("model ", model, " has no program \"", name, "\"; it has: ", known);
}

const FileEntry& Manifest::file(const std::string& path) const {
  const auto found = std::ranges::find(files, path, &FileEntry::path);
  require(found != files.end(), "manifest.json does not list ", path);
  return *found;
}

}  // namespace menagerie
