// menagerie-run: proves a bundle on this machine with its own golden cases, and measures it.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "common/error.h"
#include "common/trust.h"
#include "tools/parity.h"

namespace menagerie::tools {
namespace {

constexpr char kUsage[] =
    "usage: menagerie-run [--threads N] [--program NAME] [--cases N] [--bench RUNS]\n"
    "                     [--no-hashes] [--trust PLACE | --allow-unsigned] [BUNDLE]\n"
    "\n"
    "Runs every golden case of a bundle and compares the outputs with PyTorch's. In a folder of\n"
    "`menagerie pull --standalone` it takes the bundle beside it, and the keys that came with it.\n"
    "  --threads N     how many threads to use; left out: as the work is worth\n"
    "  --program NAME  only this program\n"
    "  --cases N       only the first N golden cases of a program\n"
    "  --bench RUNS    also time so many runs of the first case, and print the most memory\n"
    "  --no-hashes     do not check the files' sha256 first\n"
    "  --trust PLACE   whose keys are trusted: a root.json or a folder of them; left out:\n"
    "                  $MENAGERIE_TRUST, else what came with a standalone bundle, else\n"
    "                  the folder trust of Menagerie's own\n"
    "  --allow-unsigned  run a bundle that is not signed: native code that may do what you may\n"
    "Exit code: 0 all equal, 1 something differs or fails, 2 wrong usage.\n";

struct Options {
  std::string bundle;
  std::string program;
  int threads = 0;
  int cases = std::numeric_limits<int>::max();
  int bench = 0;
  bool hashes = true;
  std::string trust;
  bool allow_unsigned = false;
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int number(const std::string& text, const std::string& option) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UsageError(option + ": " + text + " is not a number");
  }
  return value;
}

// Return the path of this name in this program's folder, whether or not it exists.
std::filesystem::path beside(const char* name) {
#ifdef __APPLE__
  std::string program(4096, '\0');
  auto size = static_cast<uint32_t>(program.size());
  if (_NSGetExecutablePath(program.data(), &size) != 0) return {};
  const std::filesystem::path self = program.c_str();
#else
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
#endif
  return self.parent_path() / name;
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  const std::map<std::string, int*> numbers = {
      {"--threads", &options.threads}, {"--cases", &options.cases}, {"--bench", &options.bench}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) throw UsageError(argument + " needs a value");
      return arguments[++i];
    };
    if (numbers.contains(argument)) {
      *numbers.at(argument) = number(value(), argument);
    } else if (argument == "--program") {
      options.program = value();
    } else if (argument == "--trust") {
      options.trust = value();
    } else if (argument == "--allow-unsigned") {
      options.allow_unsigned = true;
    } else if (argument == "--no-hashes") {
      options.hashes = false;
    } else if (argument.starts_with('-')) {
      throw UsageError("there is no option " + argument);
    } else if (options.bundle.empty()) {
      options.bundle = argument;
    } else {
      throw UsageError("only one bundle can be given");
    }
  }
  if (options.bundle.empty()) {
    const std::filesystem::path own = beside("bundle");
    if (!std::filesystem::is_directory(own)) throw UsageError("a bundle is missing");
    options.bundle = own.string();
  }
  return options;
}

void check(menagerie_status status) {
  if (status != MENAGERIE_OK) throw Error(menagerie_last_error());
}

template <auto kClose>
struct Close {
  void operator()(auto* handle) const { kClose(handle); }
};
using BundleHandle = std::unique_ptr<menagerie_bundle, Close<menagerie_bundle_close>>;
using ProgramHandle = std::unique_ptr<menagerie_program, Close<menagerie_program_close>>;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Fail if another user could have put keys at a place; an absent place is reported later.
std::string own(const std::string& place) {
  struct stat found{};
  if (stat(place.c_str(), &found) != 0) return place;
  const bool ours = found.st_uid == 0 || found.st_uid == geteuid();
  require(ours && (found.st_mode & S_IWOTH) == 0, place, ": ",
          ours ? "is writable by everyone" : "belongs to another user",
          ". Name the keys with --trust");
  return place;
}

// Return where to find trusted keys, in the same way as Python's `menagerie.trust`.
std::string trusted_place(const Options& options) {
  if (!options.trust.empty()) return options.trust;
  if (const std::string asked = variable("MENAGERIE_TRUST"); !asked.empty()) return own(asked);
  // Whoever could put other keys there could put another program there as well.
  const std::filesystem::path roots = beside("roots");
  if (std::filesystem::is_directory(roots)) return roots.string();
  std::string home = variable("MENAGERIE_HOME");
#ifdef __APPLE__
  if (home.empty()) home = variable("HOME") + "/Library/Caches/menagerie";
#else
  std::string caches = variable("XDG_CACHE_HOME");
  if (caches.empty()) caches = variable("HOME") + "/.cache";
  if (home.empty()) home = caches + "/menagerie";
#endif
  return own(own(home) + "/trust");
}

BundleHandle open_bundle(const Options& options) {
  menagerie_bundle* bundle = nullptr;
  const bool unsigned_too = options.allow_unsigned || variable("MENAGERIE_ALLOW_UNSIGNED") == "1";
  if (unsigned_too) {
    check(menagerie_bundle_open(options.bundle.c_str(), &bundle));
  } else if (menagerie_bundle_open_signed(options.bundle.c_str(), trusted_place(options).c_str(),
                                          &bundle) != MENAGERIE_OK) {
    const std::string fact = menagerie_last_error();
    const bool is_damaged = fact.ends_with(kDamaged);
    const char* advice = ". Name the keys with --trust, or run it anyway with --allow-unsigned";
    throw Error(fact + (is_damaged ? "" : advice));
  }
  BundleHandle handle(bundle);
  if (options.hashes) check(menagerie_bundle_verify(bundle));
  return handle;
}

menagerie_tensor view(const SafeTensors::Entry& entry) {
  menagerie_tensor tensor{};
  require(entry.shape.size() <= kMaxAxes, "a golden tensor has too many axes");
  tensor.data = const_cast<std::byte*>(entry.bytes.data());  // inputs are only read
  tensor.dtype = static_cast<int32_t>(entry.dtype);
  tensor.dimensions = static_cast<int32_t>(entry.shape.size());
  int64_t stride = 1;
  for (size_t axis = entry.shape.size(); axis-- > 0;) {
    tensor.sizes[axis] = entry.shape[axis];
    tensor.strides[axis] = stride;
    stride *= std::max<int64_t>(entry.shape[axis], 1);
  }
  return tensor;
}

// Return a golden file's numbers for a tensor, one per axis; empty if there are none.
std::span<const int64_t> numbers(const SafeTensors& golden, const std::string& name) {
  const auto found = golden.tensors().find(name);
  if (found == golden.tensors().end() || found->second.dtype != Dtype::kInt64) return {};
  const auto& bytes = found->second.bytes;
  return {reinterpret_cast<const int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)};
}

// The inputs of a golden case, and the memory of those that are not in the file.
struct Inputs {
  std::vector<menagerie_tensor> tensors;
  std::vector<std::vector<std::byte>> taken;
};

// Return a large noise input's elements from its golden table (menagerie/validation/samples.py).
menagerie_tensor from_table(const SafeTensors::Entry& table, std::span<const int64_t> sizes,
                            const std::vector<Axis>& shape, std::vector<std::byte>& taken) {
  constexpr size_t kTable = 1 << 14;
  constexpr int64_t kMost = int64_t{1} << 32;
  require(table.shape.size() == 1 && table.shape[0] == int64_t{kTable},
          "a golden input has a table of another length");
  require(sizes.size() == shape.size(), "a golden input has sizes of another number of axes");
  int64_t elements = 1;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const int64_t size = sizes[axis];
    require(size >= shape[axis].lowest && size <= shape[axis].highest && size > 0 &&
                size < kMost / elements,
            "a golden input has sizes that the program does not take");
    elements *= size;
  }
  require(elements > int64_t{4 * kTable}, "a golden input is a table, and too small for one");
  const size_t width = table.bytes.size() / kTable;
  taken.resize(static_cast<size_t>(elements) * width);
  for (uint32_t i = 0; i < elements; ++i) {
    uint32_t mixed = i;
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B;
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35;
    const size_t place = (mixed ^ mixed >> 16) % kTable;
    std::memcpy(&taken[i * width], &table.bytes[place * width], width);
  }
  return view({table.dtype, {sizes.begin(), sizes.end()}, taken});
}

Inputs inputs_of(const ProgramSpec& spec, const SafeTensors& golden, int64_t number) {
  Inputs inputs;
  inputs.taken.reserve(spec.inputs.size());
  for (const TensorSpec& input : spec.inputs) {
    const std::string place = std::to_string(number);
    const auto& kept = golden.tensor(place + "/input/" + input.name);
    const auto sizes = numbers(golden, place + "/sizes/" + input.name);
    inputs.tensors.push_back(
        sizes.empty() ? view(kept)
                      : from_table(kept, sizes, input.shape, inputs.taken.emplace_back()));
  }
  return inputs;
}

// Return the elements of `output` that the golden file has: of a large output, only every n-th
// element along each axis (menagerie/validation/samples.py).
menagerie_tensor sampled(menagerie_tensor output, const SafeTensors& golden,
                         const std::string& number, const std::string& name) {
  const auto shape = numbers(golden, number + "/shape/" + name);
  const auto steps = numbers(golden, number + "/steps/" + name);
  const std::span sizes(output.sizes, static_cast<size_t>(output.dimensions));
  if (steps.size() != sizes.size() || !std::ranges::equal(shape, sizes)) return output;
  for (size_t axis = 0; axis < steps.size(); ++axis) {
    require(steps[axis] > 0, "output ", name, ": has a step of ", steps[axis]);
    output.sizes[axis] = (sizes[axis] - 1) / steps[axis] + 1;
    output.strides[axis] *= steps[axis];
  }
  return output;
}

// Run one golden case and print a line for each output; return whether all are equal enough.
bool prove(menagerie_program* program, const Manifest& manifest, const ProgramSpec& spec,
           const SafeTensors& golden, int64_t number) {
  const auto inputs = inputs_of(spec, golden, number);
  std::vector<menagerie_tensor> outputs(spec.outputs.size());
  if (number % spec.calls == 0) check(menagerie_program_reset(program));
  check(menagerie_program_run(program, inputs.tensors.data(), inputs.tensors.size(), outputs.data(),
                              outputs.size()));
  bool passed = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = spec.outputs[i].name;
    const auto& known = manifest.tolerances;
    const auto found = std::ranges::find(known, spec.outputs[i].dtype, &Tolerance::dtype);
    const std::string place = std::to_string(number);
    const Parity parity =
        compare(sampled(outputs[i], golden, place, name), golden.tensor(place + "/output/" + name),
                found == known.end() ? std::nullopt : std::optional(*found));
    std::printf("%-12s %4lld  %-20s %11.3g %9.1f  %s\n", spec.name.c_str(),
                static_cast<long long>(number), name.c_str(), parity.max_abs, parity.snr_db,
                parity.passed ? "ok" : "DIFFERS");
    passed = passed && parity.passed;
  }
  return passed;
}

void bench(menagerie_program* program, const ProgramSpec& spec, const SafeTensors& golden,
           int runs) {
  using Clock = std::chrono::steady_clock;
  const auto inputs = inputs_of(spec, golden, 0);
  std::vector<menagerie_tensor> outputs(spec.outputs.size());
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) {
    check(menagerie_program_reset(program));
    const auto start = Clock::now();
    check(menagerie_program_run(program, inputs.tensors.data(), inputs.tensors.size(),
                                outputs.data(), outputs.size()));
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::ranges::sort(times);
  const auto quantile = [&](double part) {
    return times[std::min(times.size() - 1, static_cast<size_t>(part * double(times.size())))];
  };
  std::printf("%-12s minimum %.3f ms, median %.3f ms, p90 %.3f ms over %d runs\n",
              spec.name.c_str(), times.front(), quantile(0.5), quantile(0.9), runs);
}

// Return the peak memory of this process in bytes. Linux's ru_maxrss survives exec, so a large
// parent would be counted; VmHWM starts anew.
double most_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss);
}

bool run(const Options& options) {
  const Manifest manifest = Manifest::read(options.bundle);
  // This tool holds one runtime, that of the platform's own device.
  require(manifest.runtime == MENAGERIE_TARGET, options.bundle, ": is for target ",
          manifest.runtime, ", this tool runs ", MENAGERIE_TARGET,
          ". Use menagerie-run on a machine of that target, or `zoo verify` here");
  const BundleHandle bundle = open_bundle(options);
  if (!options.program.empty()) manifest.program(options.program);
  std::printf("%s, %s\n%-12s %4s  %-20s %11s %9s\n", manifest.model.c_str(), menagerie_version(),
              "program", "case", "output", "max abs", "SNR dB");
  bool passed = true;
  for (const ProgramSpec& spec : manifest.programs) {
    if (!options.program.empty() && spec.name != options.program) continue;
    menagerie_program* opened = nullptr;
    check(menagerie_program_open(bundle.get(), spec.name.c_str(), options.threads, &opened));
    const ProgramHandle program(opened);
    const auto path = std::filesystem::path(options.bundle) / spec.files.at("golden");
    require(std::filesystem::exists(path), path.string(),
            ": was left out when the bundle was pulled. Pull it without --no-goldens to prove it");
    const SafeTensors golden(path);
    const int64_t cases = std::min<int64_t>(spec.golden_cases, options.cases);
    for (int64_t number = 0; number < cases; ++number) {
      passed = prove(program.get(), manifest, spec, golden, number) && passed;
    }
    if (options.bench > 0) bench(program.get(), spec, golden, options.bench);
  }
  if (options.bench > 0) std::printf("most memory %.1f MB\n", most_memory() / 1e6);
  return passed;
}

}  // namespace
}  // namespace menagerie::tools

int main(int count, char** values) {
  using namespace menagerie::tools;
  const std::vector<std::string> arguments(values + 1, values + count);
  const bool help = std::ranges::find(arguments, "--help") != arguments.end();
  try {
    const bool passed = help ? std::fputs(kUsage, stdout) >= 0 : run(parse(arguments));
    menagerie::require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
                       "standard output takes no more. Send it to where there is room");
    return passed ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "menagerie-run: %s\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "menagerie-run: %s\n", error.what());
    return 1;
  }
}
