#include "common/manifest.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "common/json.h"
#include "common/mapped_file.h"

namespace menagerie {
namespace {

constexpr int64_t kFormatVersion = 1;

struct Range {
  int64_t lowest = 0;
  int64_t highest = 0;
  int64_t step = 1;
};
using Dimensions = std::map<std::string, Range>;

bool is_word(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

// A path inside the bundle: relative, of plain components, so that it cannot leave the folder.
std::string inner_path(const std::string& path, std::string_view place) {
  constexpr size_t kLongest = 200;
  bool plain = !path.empty() && path.size() <= kLongest;
  char previous = '/';
  for (const char c : path + "/") {
    const bool first = previous == '/';
    plain = plain && (is_word(c) || (!first && (c == '.' || c == '-' || c == '/')));
    previous = c;
  }
  require(plain, place, ": \"", path, "\" is not a path inside the bundle");
  return path;
}

Dtype dtype_named(std::string_view name, std::string_view place) {
  for (const DtypeInfo& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  fail(place, ": dtype ", name, " is not supported");
}

Dimensions read_dimensions(const Json& value, std::string_view place) {
  Dimensions dimensions;
  for (const auto& [name, range] : value.object(place)) {
    const Json::Array& ends = range.array(place);
    require(ends.size() == 3, place, ".", name, " is not lowest, highest and step");
    const Range read{ends[0].integer(place), ends[1].integer(place), ends[2].integer(place)};
    require(read.lowest >= 0 && read.lowest <= read.highest && read.step >= 1, place, ".", name,
            " is not a range");
    dimensions.emplace(name, read);
  }
  return dimensions;
}

Axis read_axis(const Json& value, const Dimensions& dimensions, std::string_view place) {
  if (!value.is_string()) {
    const int64_t size = value.integer(place);
    require(size >= 0, place, ": size ", size, " is negative");
    return {"", size, size, 1};
  }
  const std::string& name = value.string(place);
  if (name == "?") return {"", 0, -1, 1};
  const auto found = dimensions.find(name);
  require(found != dimensions.end(), place, ": dimension ", name, " has no range");
  return {name, found->second.lowest, found->second.highest, found->second.step};
}

std::vector<TensorSpec> read_tensors(const Json& value, const Dimensions& dimensions,
                                     std::string_view place) {
  std::vector<TensorSpec> specs;
  for (const Json& item : value.array(place)) {
    TensorSpec spec{item.at("name", place).string(place),
                    dtype_named(item.at("dtype", place).string(place), place),
                    {}};
    for (const Json& axis : item.at("shape", place).array(place)) {
      spec.shape.push_back(read_axis(axis, dimensions, place));
    }
    require(spec.shape.size() <= kMaxAxes, place, ".", spec.name, " has too many axes");
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::optional<std::string> optional_text(const Json& value, std::string_view member,
                                         std::string_view place) {
  const Json* found = value.find(member, place);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return found->string(place);
}

std::optional<std::string> optional_path(const Json& value, std::string_view member,
                                         std::string_view place) {
  std::optional<std::string> path = optional_text(value, member, place);
  if (path.has_value()) inner_path(*path, place);
  return path;
}

Requirements read_requirements(const Json& value, std::string_view place) {
  Requirements needs;
  needs.system = value.at("system", place).string("requires.system");
  needs.machine = value.at("machine", place).string("requires.machine");
  needs.deployment_target = optional_text(value, "deployment_target", place);
  needs.runtime_abi = value.at("runtime_abi", place).integer("requires.runtime_abi");
  for (const Json& name : value.at("instructions", place).array("requires.instructions")) {
    needs.instructions.push_back(name.string("requires.instructions"));
  }
  return needs;
}

std::optional<Emulation> read_emulation(const Json& program) {
  const Json* value = program.find("emulation", "programs");
  if (value == nullptr || value->is_null()) return std::nullopt;
  constexpr std::string_view kPlace = "programs.emulation";
  const std::string& library = value->at("library", kPlace).string("programs.emulation.library");
  return Emulation{inner_path(library, "programs.emulation.library"),
                   read_requirements(value->at("requires", kPlace), kPlace)};
}

ProgramSpec read_program(const Json& value) {
  constexpr std::string_view kPlace = "programs";
  ProgramSpec program;
  program.name = value.at("name", kPlace).string("programs.name");
  program.library =
      inner_path(value.at("library", kPlace).string("programs.library"), "programs.library");
  program.shaders = optional_path(value, "shaders", "programs.shaders");
  program.emulation = read_emulation(value);
  program.golden =
      inner_path(value.at("golden", kPlace).string("programs.golden"), "programs.golden");
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
    FileEntry file{inner_path(path, "files"), entry.at("sha256", "files").string("files.sha256"),
                   entry.at("bytes", "files").integer("files.bytes")};
    require(file.bytes >= 0 && file.sha256.size() == 64, "files: entry of ", path, " is malformed");
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<Tolerance> read_tolerances(const Json& value) {
  std::vector<Tolerance> tolerances;
  for (const auto& [name, limits] : value.object("tolerances")) {
    Tolerance tolerance{dtype_named(name, "tolerances"),
                        limits.at("absolute", "tolerances").number("tolerances.absolute"),
                        std::nullopt};
    const Json* ratio = limits.find("snr_db", "tolerances");
    if (ratio != nullptr && !ratio->is_null())
      tolerance.snr_db = ratio->number("tolerances.snr_db");
    tolerances.push_back(tolerance);
  }
  return tolerances;
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
  manifest.needs = read_requirements(value.at("requires", kPlace), "requires");
  for (const Json& program : value.at("programs", kPlace).array("programs")) {
    manifest.programs.push_back(read_program(program));
  }
  manifest.weights = inner_path(value.at("weights", kPlace).string("weights"), "weights");
  manifest.shader_header = optional_path(value, "shader_header", "shader_header");
  manifest.files = read_files(value.at("files", kPlace));
  manifest.tolerances = read_tolerances(value.at("tolerances", kPlace));
  return manifest;
}

}  // namespace

Manifest Manifest::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  const std::string text = read_text(path, kMaxBytes);
  try {
    Manifest manifest = read_manifest(Json::parse(text));
    manifest.path = path;
    return manifest;
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what());
  }
}

const ProgramSpec& Manifest::program(const std::string& name) const {
  const auto found = std::ranges::find(programs, name, &ProgramSpec::name);
  if (found != programs.end()) return *found;
  std::string known;
  for (const ProgramSpec& program : programs) known += (known.empty() ? "" : ", ") + program.name;
  fail(path.string(), ": has no program \"", name, "\"; it has: ", known);
}

const FileEntry& Manifest::file(const std::string& path) const {
  const auto found = std::ranges::find(files, path, &FileEntry::path);
  require(found != files.end(), this->path.string(), ": does not list ", path);
  return *found;
}

}  // namespace menagerie
