#include "metal/emulated/prelude.h"

// The assembler puts the file in as it is: a compiler would bound the length of a literal.
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

std::string_view prelude() { return {menagerie_prelude_begin, menagerie_prelude_end}; }

}  // namespace menagerie::metal::emulated
