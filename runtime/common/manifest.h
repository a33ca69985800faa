// What the runtime needs of a bundle's manifest.json; the rules are in
// runtime/menagerie/format/FORMAT.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/dtype.h"

namespace menagerie {

inline constexpr size_t kMaxAxes = 16;

// One axis of an input or output: lowest == highest is a fixed size; a named axis must have the
// same size wherever its name occurs, a multiple of step. highest == -1: unknown before the run.
struct Axis {
  std::string name;
  int64_t lowest = 0;
  int64_t highest = 0;
  int64_t step = 1;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<Axis> shape;
};

// What a machine must offer to load a library.
struct Requirements {
  std::string system;
  std::string machine;
  std::vector<std::string> instructions;
  std::optional<std::string> deployment_target;  // the oldest release of the system: "15.0"
  int64_t runtime_abi = 0;
};

struct FileEntry {
  std::string sha256;
  int64_t bytes = 0;
  std::optional<Requirements> needs;  // of a machine that loads the file, if not the bundle's
};

// The paths of files by role: library, golden, weights and any others of a target.
using Roles = std::map<std::string, std::string, std::less<>>;

struct ProgramSpec {
  std::string name;
  Roles files;  // at least library and golden
  int64_t golden_cases = 0;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::pair<std::string, std::string>> constants;  // library's name -> weights' name
  std::set<std::string, std::less<>> state;                    // constants that a call changes
  int64_t calls = 1;  // with state: this many golden cases follow each other after a reset
};

// The rule by which an output of a floating dtype equals the golden one: its largest error and, if
// snr_db is set, its signal-to-noise ratio; see tools/parity.cpp.
struct Tolerance {
  Dtype dtype = Dtype::kFloat32;
  double absolute = 0;
  std::optional<double> snr_db;
};

struct Manifest {
  static constexpr size_t kMaxBytes = size_t{8} << 20;

  std::filesystem::path path;  // of manifest.json itself
  std::string model;
  std::string target;
  std::string runtime;  // target whose library runs it: mostly its own
  Requirements needs;
  std::vector<ProgramSpec> programs;
  Roles files;                              // of no single program: weights, and any others
  std::map<std::string, FileEntry> listed;  // every file by its path
  std::vector<Tolerance> tolerances;

  // Read folder/manifest.json; fail with the file and the member that breaks a rule. `verify`,
  // which fails unless the bytes are signed, runs before anything is read out of them.
  using Verify = std::function<void(std::string_view document)>;
  static Manifest read(const std::filesystem::path& folder, const Verify& verify = {});

  const ProgramSpec& program(const std::string& name) const;
  // Return the entry of a file that the manifest names; fail if it names no such file.
  const FileEntry& file(const std::string& path) const;
};

}  // namespace menagerie
