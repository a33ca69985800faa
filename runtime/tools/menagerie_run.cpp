// menagerie-run: proves a bundle on this machine with its own golden cases, and measures it.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "common/error.h"
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
    "  --bench RUNS    also time so many runs of the first case\n"
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

// What lies under this name in the folder of this very program; what there is may not be it.
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
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) throw UsageError(argument + " needs a value");
      return arguments[++i];
    };
    if (argument == "--threads") {
      options.threads = number(value(), argument);
    } else if (argument == "--program") {
      options.program = value();
    } else if (argument == "--cases") {
      options.cases = number(value(), argument);
    } else if (argument == "--bench") {
      options.bench = number(value(), argument);
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

struct CloseBundle {
  void operator()(menagerie_bundle* bundle) const { menagerie_bundle_close(bundle); }
};
struct CloseProgram {
  void operator()(menagerie_program* program) const { menagerie_program_close(program); }
};
using BundleHandle = std::unique_ptr<menagerie_bundle, CloseBundle>;
using ProgramHandle = std::unique_ptr<menagerie_program, CloseProgram>;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Where Python's `menagerie.trust` looks as well.
std::string trusted_place(const Options& options) {
  if (!options.trust.empty()) return options.trust;
  if (const std::string asked = variable("MENAGERIE_TRUST"); !asked.empty()) return asked;
  // Who could put other keys there could put another program there as well.
  if (const std::filesystem::path own = beside("roots"); std::filesystem::is_directory(own)) {
    return own.string();
  }
  if (const std::string own = variable("MENAGERIE_HOME"); !own.empty()) return own + "/trust";
#ifdef __APPLE__
  return variable("HOME") + "/Library/Caches/menagerie/trust";
#else
  const std::string caches = variable("XDG_CACHE_HOME");
  return (caches.empty() ? variable("HOME") + "/.cache" : caches) + "/menagerie/trust";
#endif
}

BundleHandle open_bundle(const Options& options) {
  menagerie_bundle* bundle = nullptr;
  const bool unsigned_too = options.allow_unsigned || variable("MENAGERIE_ALLOW_UNSIGNED") == "1";
  if (unsigned_too) {
    check(menagerie_bundle_open(options.bundle.c_str(), &bundle));
  } else if (menagerie_bundle_open_signed(options.bundle.c_str(), trusted_place(options).c_str(),
                                          &bundle) != MENAGERIE_OK) {
    throw Error(std::string(menagerie_last_error()) +
                ". Name the keys with --trust, or run it anyway with --allow-unsigned");
  }
  BundleHandle handle(bundle);
  if (options.hashes) check(menagerie_bundle_verify(bundle));
  return handle;
}

ProgramHandle open_program(menagerie_bundle* bundle, const ProgramSpec& spec, int threads) {
  menagerie_program* program = nullptr;
  check(menagerie_program_open(bundle, spec.name.c_str(), threads, &program));
  return ProgramHandle(program);
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

std::vector<menagerie_tensor> inputs_of(const ProgramSpec& spec, const SafeTensors& golden,
                                        int64_t number) {
  std::vector<menagerie_tensor> inputs;
  for (const TensorSpec& input : spec.inputs) {
    inputs.push_back(view(golden.tensor(std::to_string(number) + "/input/" + input.name)));
  }
  return inputs;
}

std::optional<Tolerance> tolerance_of(const Manifest& manifest, Dtype dtype) {
  const auto found = std::ranges::find(manifest.tolerances, dtype, &Tolerance::dtype);
  return found == manifest.tolerances.end() ? std::nullopt : std::optional(*found);
}

// Runs one golden case and prints a line for each output; true if all are equal enough.
bool prove(menagerie_program* program, const Manifest& manifest, const ProgramSpec& spec,
           const SafeTensors& golden, int64_t number) {
  const auto inputs = inputs_of(spec, golden, number);
  std::vector<menagerie_tensor> outputs(spec.outputs.size());
  if (number % spec.calls == 0) check(menagerie_program_reset(program));
  check(
      menagerie_program_run(program, inputs.data(), inputs.size(), outputs.data(), outputs.size()));
  bool passed = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = spec.outputs[i].name;
    const Parity parity =
        compare(outputs[i], golden.tensor(std::to_string(number) + "/output/" + name),
                tolerance_of(manifest, spec.outputs[i].dtype));
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
    check(menagerie_program_run(program, inputs.data(), inputs.size(), outputs.data(),
                                outputs.size()));
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::ranges::sort(times);
  const auto quantile = [&](double part) {
    return times[std::min(times.size() - 1, static_cast<size_t>(part * double(times.size())))];
  };
  std::printf("%-12s minimum %.3f ms, median %.3f ms, p90 %.3f ms over %d runs\n",
              spec.name.c_str(), times.front(), quantile(0.5), quantile(0.9), runs);
}

// This tool holds one runtime, that of the platform's own device.
void check_target(const Manifest& manifest, const std::string& folder) {
  constexpr std::string_view kTarget = MENAGERIE_TARGET;
  require(manifest.runtime == kTarget, folder, ": is for target ", manifest.runtime,
          ", this tool runs ", kTarget,
          ". Use menagerie-run on a machine of that target, or `zoo verify` here");
}

bool run(const Options& options) {
  const Manifest manifest = Manifest::read(options.bundle);
  check_target(manifest, options.bundle);
  const BundleHandle bundle = open_bundle(options);
  if (!options.program.empty()) manifest.program(options.program);
  std::printf("%s, %s\n%-12s %4s  %-20s %11s %9s\n", manifest.model.c_str(), menagerie_version(),
              "program", "case", "output", "max abs", "SNR dB");
  bool passed = true;
  for (const ProgramSpec& spec : manifest.programs) {
    if (!options.program.empty() && spec.name != options.program) continue;
    const ProgramHandle program = open_program(bundle.get(), spec, options.threads);
    const SafeTensors golden(std::filesystem::path(options.bundle) / spec.files.at("golden"));
    const int64_t cases = std::min<int64_t>(spec.golden_cases, options.cases);
    for (int64_t number = 0; number < cases; ++number) {
      passed = prove(program.get(), manifest, spec, golden, number) && passed;
    }
    if (options.bench > 0) bench(program.get(), spec, golden, options.bench);
  }
  return passed;
}

}  // namespace
}  // namespace menagerie::tools

int main(int count, char** values) {
  using namespace menagerie::tools;
  const std::vector<std::string> arguments(values + 1, values + count);
  if (std::ranges::find(arguments, "--help") != arguments.end()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    return run(parse(arguments)) ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "menagerie-run: %s\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "menagerie-run: %s\n", error.what());
    return 1;
  }
}
