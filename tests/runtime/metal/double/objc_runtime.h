// What clang's GNUstep 2.0 object format asks of a runtime, as far as the Apple device and the
// doubles use it: the layouts that clang writes (clang: lib/CodeGen/CGObjCGNU.cpp) and the
// functions that it calls (clang.llvm.org/docs/AutomaticReferenceCounting.html, "Runtime support").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// Ends the process as Metal's own assertions do, with the fact on stderr.
[[noreturn]] void fault(const std::string& fact);

// How many objects of a class are alive.
long live_objects(const char* class_name);
