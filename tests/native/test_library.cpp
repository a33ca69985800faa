// Loading a model library: the very file that was opened, whatever is at its path by then.
#include <filesystem>

#include "check.h"
#include "common/model_library.h"
#include "files.h"

using namespace menagerie;
namespace fs = std::filesystem;

namespace {

size_t answer(const std::shared_ptr<const OpenFile>& file) {
  return ModelLibrary(file).input_count();
}

void put(const char* library, const fs::path& place) {
  const fs::path fresh = place.string() + ".new";
  fs::copy_file(library, fresh);
  fs::rename(fresh, place);
}

}  // namespace

TEST("a library that is swapped between its check and its loading is not the one that is loaded") {
  const check::Folder folder;
  const fs::path place = folder.path() / "model.so";
  put(MENAGERIE_ONE, place);
  const auto checked = std::make_shared<const OpenFile>(place);
  put(MENAGERIE_TWO, place);
  CHECK(answer(checked) == 1);
}

TEST("libraries stay loaded, yet one that takes the place of another is loaded for itself") {
  const check::Folder folder;
  const fs::path place = folder.path() / "model.so";
  for (const auto& [library, expected] :
       {std::pair(MENAGERIE_ONE, 1), std::pair(MENAGERIE_TWO, 2), std::pair(MENAGERIE_ONE, 1)}) {
    put(library, place);
    CHECK(answer(std::make_shared<const OpenFile>(place)) == static_cast<size_t>(expected));
    CHECK(answer(std::make_shared<const OpenFile>(place)) == static_cast<size_t>(expected));
  }
}

TEST("a library that wants more than this runtime has says to build the runtime again") {
  REFUSES("make setup", answer(std::make_shared<const OpenFile>(fs::path(MENAGERIE_NEWER))));
}
