#include "common/manifest.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "common/fields.h"
#include "common/mapped_file.h"

namespace menagerie {
namespace {

constexpr int64_t kFormatVersion = 2;  // 1, which names no platform and no runtime, is read too
constexpr size_t kMostFiles = 10'000;

struct Range {
  int64_t lowest = 0;
  int64_t highest = 0;
  int64_t step = 1;
};
using Dimensions = std::map<std::string, Range>;

Dtype dtype_named(std::string_view name, std::string_view place) {
  for (const DtypeInfo& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  fail(place, ": dtype ", name, " is not supported");
}

Dimensions read_dimensions(const Fields& program) {
  Dimensions dimensions;
  const std::string place = program.place_of("dimensions");
  for (const auto& [name, range] : program.object("dimensions")) {
    const Json::Array& ends = range.array(place);
    require(ends.size() == 3, place, ".", name, " is not lowest, highest and step");
    const Range read{ends[0].integer(place), ends[1].integer(place), ends[2].integer(place)};
    require(read.lowest >= 0 && read.lowest <= read.highest && read.step >= 1, place, ".", name,
            " is not a range");
    dimensions.emplace(name, read);
  }
  return dimensions;
}

enum class Role { kInput, kOutput };

Axis read_axis(const Json& value, const Dimensions& dimensions, Role role, std::string_view place) {
  if (!value.is_string()) {
    const int64_t size = value.integer(place);
    require(size >= 0, place, ": size ", size, " is negative");
    return {"", size, size, 1};
  }
  const std::string& name = value.string(place);
  if (name == "?" && role == Role::kOutput) return {"", 0, -1, 1};
  const auto found = dimensions.find(name);
  require(found != dimensions.end(), place, ": dimension ", name, " has no range");
  return {name, found->second.lowest, found->second.highest, found->second.step};
}

std::vector<TensorSpec> read_tensors(const Fields& program, std::string_view list,
                                     const Dimensions& dimensions, Role role) {
  std::vector<TensorSpec> specs;
  std::set<std::string> names;
  const std::string place = program.place_of(list);
  for (const Json& item : program.array(list)) {
    const Fields fields(item, place, {"name", "dtype", "shape"});
    TensorSpec spec{fields.text("name"), dtype_named(fields.text("dtype"), place), {}};
    for (const Json& axis : fields.array("shape")) {
      spec.shape.push_back(read_axis(axis, dimensions, role, place));
    }
    require(spec.shape.size() <= kMaxAxes, place, ".", spec.name, " has too many axes");
    require(names.insert(spec.name).second, place, ".", spec.name, " comes twice");
    specs.push_back(std::move(spec));
  }
  return specs;
}

Requirements read_requirements(const Json& value, std::string place) {
  const Fields fields(value, std::move(place), {"system", "machine", "instructions", "runtime_abi"},
                      {"deployment_target"});
  Requirements needs;
  needs.system = fields.text("system");
  needs.machine = fields.text("machine");
  needs.deployment_target = fields.optional_text("deployment_target");
  needs.runtime_abi = fields.integer("runtime_abi");
  for (const Json& name : fields.array("instructions")) {
    needs.instructions.push_back(name.string(fields.place_of("instructions")));
  }
  return needs;
}

std::optional<Emulation> read_emulation(const Fields& program) {
  const Json* value = program.given("emulation");
  if (value == nullptr) return std::nullopt;
  const Fields fields(*value, program.place_of("emulation"),
                      {"library", "source_sha256", "requires"});
  fields.digest("source_sha256");
  return Emulation{fields.path("library"),
                   read_requirements(fields.at("requires"), fields.place_of("requires"))};
}

ProgramSpec read_program(const Json& value) {
  const Fields fields(value, "programs",
                      {"name", "library", "golden", "golden_cases", "inputs", "outputs",
                       "dimensions", "constants", "symbols"},
                      {"shaders", "emulation"});
  ProgramSpec program;
  program.name = fields.name("name");
  program.library = fields.path("library");
  program.shaders = fields.optional_path("shaders");
  program.emulation = read_emulation(fields);
  program.golden = fields.path("golden");
  program.golden_cases = fields.integer("golden_cases");
  require(program.golden_cases >= 1, "programs.golden_cases is less than 1");
  const Dimensions dimensions = read_dimensions(fields);
  program.inputs = read_tensors(fields, "inputs", dimensions, Role::kInput);
  program.outputs = read_tensors(fields, "outputs", dimensions, Role::kOutput);
  require(!program.outputs.empty(), "programs.outputs is empty");
  for (const auto& [name, tensor] : fields.object("constants")) {
    program.constants.emplace_back(name, tensor.string("programs.constants"));
  }
  for (const Json& symbol : fields.array("symbols")) symbol.string("programs.symbols");
  return program;
}

std::vector<ProgramSpec> read_programs(const Fields& manifest) {
  std::vector<ProgramSpec> programs;
  for (const Json& value : manifest.array("programs")) {
    programs.push_back(read_program(value));
    const auto same = [&](const ProgramSpec& other) { return other.name == programs.back().name; };
    require(std::ranges::count_if(programs, same) == 1, "programs: ", programs.back().name,
            " comes twice");
  }
  require(!programs.empty(), "programs is empty");
  return programs;
}

std::vector<FileEntry> read_files(const Fields& manifest) {
  std::vector<FileEntry> files;
  std::set<std::string> lowered;
  for (const auto& [path, entry] : manifest.object("files")) {
    check_inner_path(path, "files");
    const Fields fields(entry, "files: entry of " + path, {"sha256", "bytes"});
    FileEntry file{path, fields.digest("sha256"), fields.integer("bytes")};
    require(file.bytes >= 0, "files: entry of ", path, ": size ", file.bytes, " is negative");
    require(lowered.insert(in_lower_case(path)).second, "files: ", path,
            " differs from another only in case");
    files.push_back(std::move(file));
  }
  require(files.size() <= kMostFiles, "files lists more than ", kMostFiles);
  return files;
}

std::vector<Tolerance> read_tolerances(const Fields& manifest) {
  std::vector<Tolerance> tolerances;
  for (const auto& [name, limits] : manifest.object("tolerances")) {
    const Fields fields(limits, "tolerances", {"absolute"}, {"snr_db"});
    Tolerance tolerance{dtype_named(name, "tolerances"),
                        fields.at("absolute").number("tolerances.absolute"), std::nullopt};
    if (const Json* ratio = fields.given("snr_db")) {
      tolerance.snr_db = ratio->number("tolerances.snr_db");
    }
    require(tolerance.absolute > 0 && tolerance.snr_db.value_or(1) > 0, "tolerances.", name,
            " is not positive");
    tolerances.push_back(tolerance);
  }
  return tolerances;
}

// What the runtime has no use for must be sound all the same.
void check_history(const Fields& manifest) {
  constexpr std::array<std::string_view, 3> kStates{"lowered", "emulated", "validated"};
  manifest.digest("build_key");
  const std::string& state = manifest.text("state");
  require(std::ranges::find(kStates, state) != kStates.end(), "state is \"", state, "\"");
  for (const std::string_view name : {"source", "licence", "created"}) manifest.text(name);
  if (manifest.given("random_weights") != nullptr) manifest.integer("random_weights");
  for (const auto& [name, version] : manifest.object("versions")) version.string("versions");
}

// The accuracy gate's data file, null for none.
std::optional<std::string> read_accuracy(const Fields& manifest) {
  const Json* value = manifest.given("accuracy");
  if (value == nullptr) return std::nullopt;
  const Fields fields(*value, "accuracy", {"file", "program", "output", "batch", "eager_accuracy"});
  return fields.path("file");
}

void check_listed(const Manifest& manifest, const std::optional<std::string>& accuracy) {
  const auto check = [&](const std::string& path) {
    require(std::ranges::find(manifest.files, path, &FileEntry::path) != manifest.files.end(),
            "does not list ", path);
  };
  check(manifest.weights);
  for (const ProgramSpec& program : manifest.programs) {
    check(program.library);
    check(program.golden);
    if (program.shaders) check(*program.shaders);
    if (program.emulation) check(program.emulation->library);
    require(!program.shaders || manifest.shader_header, "there are shaders, but no shader_header");
  }
  if (manifest.shader_header) check(*manifest.shader_header);
  if (accuracy) check(*accuracy);
}

// Before any other member: a later version may have others.
int64_t read_version(const Json& value) {
  require(value.at("format", "manifest").string("format") == "menagerie-bundle",
          "format is not menagerie-bundle");
  const int64_t version = value.at("version", "manifest").integer("version");
  require(version >= 1 && version <= kFormatVersion, "version is ", version,
          "; this runtime reads 1 to ", kFormatVersion);
  return version;
}

Manifest read_manifest(const Json& value) {
  const int64_t version = read_version(value);
  const Fields fields(value, "manifest",
                      {"format", "version", "model", "target", "build_key", "state", "requires",
                       "programs", "weights", "tolerances", "random_weights", "source", "licence",
                       "versions", "created", "files"},
                      {"accuracy", "shader_header", "platform", "runtime"});
  for (const std::string_view name : {"platform", "runtime"}) {
    require((fields.given(name) != nullptr) == (version > 1), name, " and version ", version,
            " do not go together");
  }
  Manifest manifest;
  manifest.model = fields.name("model");
  manifest.target = fields.name("target");
  manifest.runtime = version > 1 ? fields.name("runtime") : manifest.target;
  if (version > 1) fields.text("platform");
  manifest.needs = read_requirements(fields.at("requires"), "requires");
  manifest.programs = read_programs(fields);
  manifest.weights = fields.path("weights");
  manifest.shader_header = fields.optional_path("shader_header");
  manifest.files = read_files(fields);
  manifest.tolerances = read_tolerances(fields);
  check_history(fields);
  check_listed(manifest, read_accuracy(fields));
  return manifest;
}

}  // namespace

Manifest Manifest::read(const std::filesystem::path& folder, const Vouch& vouch) {
  const std::filesystem::path path = folder / "manifest.json";
  const std::string text = read_text(OpenFile(path), kMaxBytes);
  if (vouch) vouch(text);
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
