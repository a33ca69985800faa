// Runs every case; names those that fail.
#include "check.h"

int main() {
  for (const auto& [name, body] : check::cases()) {
    const int before = check::failures;
    try {
      body();
    } catch (const std::exception& error) {
      check::that(false, std::string("ends without an exception: ") + error.what(), __FILE__,
                  __LINE__);
    }
    if (check::failures != before) std::cerr << "FAILED: " << name << "\n";
  }
  std::cout << check::cases().size() << " cases, " << check::failures << " failures\n";
  return check::failures == 0 ? 0 : 1;
}
