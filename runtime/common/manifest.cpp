#include "common/manifest.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "common/json.h"
#include "common/mapped_file.h"
#include "common/trust.h"

namespace menagerie {
namespace {

constexpr int64_t kFormatVersion = 2;
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

enum class Side { kInput, kOutput };

Axis read_axis(const Json& value, const Dimensions& dimensions, Side side, std::string_view place) {
  if (!value.is_string()) {
    const int64_t size = value.integer(place);
    require(size >= 0, place, ": size ", size, " is negative");
    return {"", size, size, 1};
  }
  const std::string& name = value.string(place);
  if (name == "?" && side == Side::kOutput) return {"", 0, -1, 1};
  const auto found = dimensions.find(name);
  require(found != dimensions.end(), place, ": dimension ", name, " has no range");
  return {name, found->second.lowest, found->second.highest, found->second.step};
}

std::vector<TensorSpec> read_tensors(const Fields& program, std::string_view list,
                                     const Dimensions& dimensions, Side side) {
  std::vector<TensorSpec> specs;
  std::set<std::string> names;
  const std::string place = program.place_of(list);
  for (const Json& item : program.array(list)) {
    const Fields fields(item, place, {"name", "dtype", "shape"});
    TensorSpec spec{fields.text("name"), dtype_named(fields.text("dtype"), place), {}};
    for (const Json& axis : fields.array("shape")) {
      spec.shape.push_back(read_axis(axis, dimensions, side, place));
    }
    require(spec.shape.size() <= kMaxAxes, place, ".", spec.name, " has too many axes");
    require(names.insert(spec.name).second, place, ": duplicate name ", spec.name);
    specs.push_back(std::move(spec));
  }
  return specs;
}

Requirements read_requirements(const Json& value, std::string place) {
  const Fields fields(value, std::move(place), {"system", "machine", "runtime_abi"},
                      {"instructions", "deployment_target"});
  Requirements needs;
  needs.system = fields.text("system");
  needs.machine = fields.text("machine");
  needs.deployment_target = fields.optional_text("deployment_target");
  needs.runtime_abi = fields.integer("runtime_abi");
  if (value.find("instructions", "requires") != nullptr) {
    for (const Json& name : fields.array("instructions")) {
      needs.instructions.push_back(name.string(fields.place_of("instructions")));
    }
  }
  return needs;
}

// Return target, system and processor under their common names.
std::string platform_name(const std::string& target, const Requirements& needs) {
  return target + "-" + (needs.system == "darwin" ? "macos" : needs.system) + "-" +
         (needs.machine == "aarch64" ? "arm64" : needs.machine);
}

// The files that a manifest names, gathered while it is read.
class Files {
 public:
  // Read a member `files`: each file by its role.
  Roles read_roles(const Fields& owner) {
    Roles roles;
    for (const auto& [role, value] : owner.object("files")) {
      check_name(role, owner.place_of("files"));
      const std::string place = owner.place_of("files") + "." + role;
      const Fields fields(value, place, {"path", "sha256", "bytes"}, {"source_sha256", "requires"});
      FileEntry entry = read_entry(fields);
      if (fields.given("source_sha256") != nullptr) fields.digest("source_sha256");
      if (const Json* needs = fields.given("requires")) {
        entry.needs = read_requirements(*needs, fields.place_of("requires"));
      }
      require(role != "emulation" || (entry.needs && fields.given("source_sha256") != nullptr),
              place, " lacks requires or source_sha256");
      roles.emplace(role, add(place, fields.path("path"), std::move(entry)));
    }
    return roles;
  }

  std::map<std::string, FileEntry> listed() && { return std::move(listed_); }

 private:
  static FileEntry read_entry(const Fields& fields) {
    FileEntry entry{fields.digest("sha256"), fields.integer("bytes"), std::nullopt};
    require(entry.bytes >= 0, fields.place_of("bytes"), ": size ", entry.bytes, " is negative");
    return entry;
  }

  const std::string& add(std::string_view place, const std::string& path, FileEntry entry) {
    const auto [at, added] = listed_.emplace(path, std::move(entry));
    require(added, place, ": ", path, " is listed twice");
    require(listed_.size() <= kMostFiles, "files lists more than ", kMostFiles);
    require(lowered_.insert(in_lower_case(path)).second, place, ": ", path,
            " differs from another only in case");
    return at->first;
  }

  std::map<std::string, FileEntry> listed_;
  std::set<std::string> lowered_;
};

// Read the constants that a call changes, and how many golden cases are consecutive calls.
void read_state(const Fields& fields, ProgramSpec& program) {
  const Json* value = fields.given("state");
  if (value == nullptr) return;
  const Fields state(*value, fields.place_of("state"), {"constants", "calls"});
  const std::map<std::string, std::string> known(program.constants.begin(),
                                                 program.constants.end());
  for (const Json& item : state.array("constants")) {
    const std::string& name = item.string(state.place_of("constants"));
    require(known.contains(name), state.place_of("constants"), ": there is no constant ", name);
    require(program.state.insert(name).second, state.place_of("constants"), ": duplicate ", name);
  }
  require(!program.state.empty(), state.place_of("constants"), " is empty");
  program.calls = state.integer("calls");
  require(program.calls >= 1 && program.golden_cases % program.calls == 0,
          fields.place_of("golden_cases"), " (", program.golden_cases, ") must be a multiple of ",
          state.place_of("calls"), " (", program.calls, ")");
}

ProgramSpec read_program(const Json& value, Files& files) {
  const Fields fields(
      value, "programs",
      {"name", "files", "golden_cases", "inputs", "outputs", "dimensions", "constants", "symbols"},
      {"state"});
  ProgramSpec program;
  program.name = fields.name("name");
  program.files = files.read_roles(fields);
  for (const std::string_view role : {"library", "golden"}) {
    require(program.files.contains(role), "programs.files lacks \"", role, "\"");
  }
  program.golden_cases = fields.integer("golden_cases");
  require(program.golden_cases >= 1, "programs.golden_cases is less than 1");
  const Dimensions dimensions = read_dimensions(fields);
  program.inputs = read_tensors(fields, "inputs", dimensions, Side::kInput);
  program.outputs = read_tensors(fields, "outputs", dimensions, Side::kOutput);
  require(!program.outputs.empty(), "programs.outputs is empty");
  for (const auto& [name, tensor] : fields.object("constants")) {
    program.constants.emplace_back(name, tensor.string("programs.constants"));
  }
  read_state(fields, program);
  for (const Json& symbol : fields.array("symbols")) symbol.string("programs.symbols");
  return program;
}

std::vector<ProgramSpec> read_programs(const Fields& manifest, Files& files) {
  std::vector<ProgramSpec> programs;
  std::set<std::string> names;
  for (const Json& value : manifest.array("programs")) {
    programs.push_back(read_program(value, files));
    require(names.insert(programs.back().name).second, "programs: duplicate name ",
            programs.back().name);
  }
  require(!programs.empty(), "programs is empty");
  return programs;
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

// Check members that the runtime does not use but requires; Python checks the time.
void check_history(const Fields& manifest) {
  constexpr std::array<std::string_view, 3> kStates{"lowered", "emulated", "validated"};
  manifest.digest("build_key");
  const std::string& state = manifest.text("state");
  require(std::ranges::find(kStates, state) != kStates.end(), "state is \"", state, "\"");
  for (const std::string_view name : {"source", "licence", "created"}) manifest.text(name);
  if (manifest.given("random_weights") != nullptr) manifest.integer("random_weights");
  for (const auto& [name, version] : manifest.object("versions")) version.string("versions");
}

// Check that the accuracy gate, which validation applies, is sound.
void check_gate(const Json& value, const Manifest& manifest) {
  const Fields gate(value, "accuracy", {"program", "output", "batch", "eager_accuracy"},
                    {"slack", "metric"});
  const std::string& name = gate.text("program");
  const auto same = [&](const ProgramSpec& program) { return program.name == name; };
  require(std::ranges::any_of(manifest.programs, same), "accuracy: no program is named ", name);
  gate.text("output");
  gate.integer("batch");
  gate.at("eager_accuracy").number(gate.place_of("eager_accuracy"));
  if (gate.given("slack") != nullptr) gate.integer("slack");
  if (gate.given("metric") != nullptr) gate.text("metric");
}

void check_roles(const Fields& fields, const Manifest& manifest) {
  require(manifest.files.contains("weights"), "files lacks \"weights\"");
  const auto has_shaders = [](const ProgramSpec& spec) { return spec.files.contains("shaders"); };
  require(manifest.files.contains("shader_header") ||
              std::ranges::none_of(manifest.programs, has_shaders),
          "there are shaders, but no shader_header");
  const Json* gate = fields.given("accuracy");
  if (gate != nullptr) check_gate(*gate, manifest);
  require((gate != nullptr) == manifest.files.contains("accuracy"),
          "of accuracy and files.accuracy only one is given");
}

// Check the version before any other member: a later version may have other members.
void check_version(const Json& value) {
  require(value.at("format", "manifest").string("format") == "menagerie-bundle",
          "format is not menagerie-bundle");
  const int64_t version = value.at("version", "manifest").integer("version");
  require(version == kFormatVersion, "version is ", version, "; this runtime reads ",
          kFormatVersion);
}

Manifest read_manifest(const Json& value) {
  const Fields fields(value, "manifest",
                      {"format", "version", "model", "target", "platform", "runtime", "build_key",
                       "state", "requires", "programs", "tolerances", "random_weights", "source",
                       "licence", "versions", "created", "files"},
                      {"accuracy"});
  Manifest manifest;
  manifest.model = fields.name("model");
  manifest.target = fields.name("target");
  manifest.runtime = fields.name("runtime");
  manifest.needs = read_requirements(fields.at("requires"), "requires");
  const std::string wanted = platform_name(manifest.target, manifest.needs);
  const std::string& platform = fields.text("platform");
  require(platform == wanted, "platform is ", platform, ", but it requires ", wanted);
  Files files;
  manifest.programs = read_programs(fields, files);
  manifest.files = files.read_roles(fields);
  manifest.listed = std::move(files).listed();
  manifest.tolerances = read_tolerances(fields);
  check_history(fields);
  check_roles(fields, manifest);
  return manifest;
}

}  // namespace

Manifest Manifest::read(const std::filesystem::path& folder, const Verify& verify) {
  const std::filesystem::path path = folder / "manifest.json";
  const std::string text = read_text(OpenFile(path), kMaxBytes);
  if (verify) verify(text);
  const char* advice = kDamaged;
  try {
    const Json value = Json::parse(text);
    advice = "";
    check_version(value);
    advice = kDamaged;
    Manifest manifest = read_manifest(value);
    manifest.path = path;
    return manifest;
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what(), advice);
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
  const auto found = listed.find(path);
  require(found != listed.end(), this->path.string(), ": does not list ", path);
  return found->second;
}

}  // namespace menagerie
