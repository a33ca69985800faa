#include "metal/emulated/toolchain.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <utility>

#include "common/error.h"
#include "common/mapped_file.h"
#include "common/sha256.h"
#include "metal/emulated/source.h"

// The headers of prelude/ in one text: the assembler puts the file in as it is: a compiler would
// bound the length of a literal.
asm(R"(
.section .rodata
.hidden menagerie_prelude_begin
.hidden menagerie_prelude_end
.globl menagerie_prelude_begin
.globl menagerie_prelude_end
menagerie_prelude_begin:
.incbin ")" MENAGERIE_PRELUDE R"("
menagerie_prelude_end:
.byte 0
.previous
)");

extern "C" {
extern const char menagerie_prelude_begin[];
extern const char menagerie_prelude_end[];
}

namespace menagerie::metal::emulated {
namespace {

namespace fs = std::filesystem;

std::string_view prelude() { return {menagerie_prelude_begin, menagerie_prelude_end}; }

// Runs the command without a shell, its complaints written to `complaints`, and waits. Whether it
// ended well. Fails if it cannot be started.
bool run(const std::vector<std::string>& command, const std::filesystem::path& complaints) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, complaints.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int code = ::posix_spawnp(&child, words[0], &actions, nullptr, words.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  require(code == 0, "the compiler ", command[0], " cannot be started: ", std::strerror(code));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    require(errno == EINTR, "waiting for the compiler failed: ", std::strerror(errno));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

constexpr size_t kMostText = size_t{64} << 20;

std::vector<std::string> words_of(const char* text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// As Apple's compiler sees the text: Metal 3.1, which is C++14 there.
const std::vector<std::string> kPreprocess = words_of(
    "-E -x c++ -std=c++20 -nostdinc -w "
    "-D__METAL__=1 -D__METAL_VERSION__=310 -D__METAL_MACOS__=1");

// - Half and bfloat round after every operation.
// - Any function may hold a barrier or an operation of a SIMD group, as on a GPU: without that, a
//   call of one that does is doubled into both branches of the `if` before it.
// - Nothing is contracted or vectorised: results are the same everywhere, and the instrumentation
//   of memory accesses sees each of them, which it does only up to 16 bytes.
const std::vector<std::string> kCompile = words_of(
    "-c -x c++ -std=c++20 -nostdinc -w -O2 -march=x86-64-v3 -fPIC -fvisibility=hidden "
    "-fno-exceptions -fno-rtti -fno-math-errno -ffp-contract=off -Xclang -fconvergent-functions "
    "-fno-vectorize -fno-slp-vectorize -fno-stack-protector -fno-strict-aliasing "
    "-Xclang -ffloat16-excess-precision=none -Xclang -fbfloat16-excess-precision=none "
    "-fsanitize=thread,integer-divide-by-zero -fno-sanitize-recover=all "
    "-mllvm -tsan-instrument-func-entry-exit=0 -mllvm -tsan-instrument-read-before-write=1 "
    "-mllvm -tsan-instrument-atomics=0");

struct Toolchain {
  std::mutex mutex;
  std::vector<std::string> compiler;
  fs::path folder;
};

Toolchain& toolchain() {
  static auto* instance = new Toolchain;  // never destroyed: used until the process ends
  return *instance;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + '\n';
  return text;
}

std::string digest(const Toolchain& tools, const std::string& source) {
  const std::string all = MENAGERIE_TRANSLATOR + joined(tools.compiler) + joined(kPreprocess) +
                          joined(kCompile) + std::string(prelude()) + '\0' + source;
  return sha256(std::as_bytes(std::span(all)));
}

constexpr std::string_view kScratch = "making-";

// Removes what processes have left that were killed while compiling.
void sweep(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kScratch)) continue;
    const int process = std::atoi(name.c_str() + kScratch.size());
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path());
  }
}

// A folder of this process alone, removed at the end whatever happens. One at a time: compiled()
// holds a lock.
class ScratchFolder {
 public:
  explicit ScratchFolder(const fs::path& parent)
      : path_(parent / (std::string(kScratch) + std::to_string(::getpid()))) {
    fs::create_directories(parent);
    sweep(parent);
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

void write(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  require(!file.fail(), path.string(), ": cannot be written");
}

// "kernels.metal:12:5: error: unknown type name 'flota'", without the folder in front.
std::string first_error(const fs::path& complaints) {
  std::istringstream lines(read_text(OpenFile(complaints), kMostText));
  std::string line, first;
  while (std::getline(lines, line)) {
    if (line.find("error: ") != std::string::npos) return line;
    if (first.empty()) first = line;
  }
  return first.empty() ? "the compiler failed without a message" : first;
}

// The shared library that a function of ours comes from.
std::string library_of(const void* function) {
  Dl_info found{};
  require(::dladdr(function, &found) != 0 && found.dli_fname != nullptr,
          "the C library's file is not known");
  return found.dli_fname;
}

void call(const Toolchain& tools, std::vector<std::string> arguments, const fs::path& complaints) {
  arguments.insert(arguments.begin(), tools.compiler.begin(), tools.compiler.end());
  if (!run(arguments, complaints)) {
    fail("the Metal source does not compile: ", first_error(complaints));
  }
}

template <class... Words>
std::vector<std::string> command(const std::string& tool, const std::vector<std::string>& flags,
                                 const Words&... words) {
  std::vector<std::string> all = {tool};
  all.insert(all.end(), flags.begin(), flags.end());
  (all.push_back(words), ...);
  return all;
}

void make(const Toolchain& tools, const std::string& source, const ScratchFolder& scratch,
          const fs::path& library) {
  const fs::path metal = scratch / "source.metal", expanded = scratch / "expanded.ii";
  const fs::path unit = scratch / "unit.cpp", object = scratch / "unit.o",
                 complaints = scratch / "errors";
  write(metal, "#line 1 \"kernels.metal\"\n" + without_metal_headers(source));
  call(tools, command("clang", kPreprocess, metal.string(), "-o", expanded.string()), complaints);
  const ShaderSource shader = translate(read_text(OpenFile(expanded), kMostText));
  write(unit, std::string(prelude()) + "#line 1 \"kernels.metal\"\n" + shader.text +
                  "\n#line 1 \"kernel table\"\n" + kernel_table(shader.kernels));
  call(tools, command("clang", kCompile, unit.string(), "-o", object.string()), complaints);
  const std::string libm =
      library_of(reinterpret_cast<const void*>(static_cast<float (*)(float, float)>(&::fmodf)));
  const std::string libc = library_of(reinterpret_cast<const void*>(&::getpid));
  call(tools,
       command("ld.lld", {"-shared", "-z", "defs"}, object.string(), libm, libc, "-o",
               library.string()),
       complaints);
}

}  // namespace

void configure(std::vector<std::string> compiler, fs::path cache_folder) {
  Toolchain& tools = toolchain();
  const std::lock_guard lock(tools.mutex);
  tools.compiler = std::move(compiler);
  tools.folder = std::move(cache_folder);
}

fs::path compiled(const std::string& source) {
  Toolchain& tools = toolchain();
  const std::lock_guard lock(tools.mutex);
  require(!tools.compiler.empty(),
          "the emulated Metal device has no compiler: "
          "menagerie_emulator_configure was not called");
  const fs::path kept = tools.folder / (digest(tools, source) + ".so");
  if (fs::is_regular_file(kept)) return kept;
  try {
    const ScratchFolder scratch(tools.folder);
    const fs::path library = scratch / "library.so";
    make(tools, source, scratch, library);
    fs::rename(library, kept);
  } catch (const fs::filesystem_error& error) {
    fail("the emulator's cache: ", error.what());
  }
  return kept;
}

}  // namespace menagerie::metal::emulated

// How Python gives the emulated device its compiler: the command that the arguments of clang and
// lld follow ("python", "-m", "ziglang"), and a folder that compiled shaders are kept in. 0, or 1
// with a message of the thread.
extern "C" __attribute__((visibility("default"))) int menagerie_emulator_configure(
    const char* const* compiler, size_t words, const char* cache_folder) {
  return menagerie::guarded(__func__, [&] {
    menagerie::require(compiler != nullptr && words > 0 && cache_folder != nullptr,
                       "a command and a folder are needed");
    menagerie::metal::emulated::configure(std::vector<std::string>(compiler, compiler + words),
                                          cache_folder);
  });
}

namespace menagerie::metal::emulated {
namespace {

using menagerie::emulated::KernelEntry;

std::shared_ptr<void> opened(const std::filesystem::path& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return {library, [](void* loaded) {
            if (loaded != nullptr) ::dlclose(loaded);
          }};
}

class HostLibrary final : public ShaderLibrary {
 public:
  explicit HostLibrary(std::shared_ptr<void> library) : library_(std::move(library)) {
    entries_ = static_cast<const KernelEntry*>(::dlsym(library_.get(), "menagerie_kernels"));
    require(entries_ != nullptr, "the compiled shaders have no table of kernels");
  }

  std::shared_ptr<Kernel> kernel(const std::string& name) override {
    std::string known;
    for (const KernelEntry* entry = entries_; entry->name != nullptr; ++entry) {
      if (name == entry->name) return std::make_shared<HostKernel>(library_, entry);
      known += std::string(known.empty() ? "" : ", ") + entry->name;
    }
    fail("the shader library has no kernel ", name, "; it has ", known.empty() ? "none" : known);
  }

 private:
  std::shared_ptr<void> library_;
  const KernelEntry* entries_;
};

}  // namespace

std::shared_ptr<ShaderLibrary> load_shaders(const std::string& source) {
  const std::filesystem::path path = compiled(source);
  std::shared_ptr<void> library = opened(path);
  if (library == nullptr) {
    std::filesystem::remove(path);  // damaged: made anew
    library = opened(compiled(source));
  }
  require(library != nullptr, "the compiled shaders cannot be loaded: ", ::dlerror());
  return std::make_shared<HostLibrary>(std::move(library));
}

}  // namespace menagerie::metal::emulated
