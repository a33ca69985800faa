// Before a precompiled header: libstdc++ without its special functions and strings of wide
// characters, which a compiler would instantiate for each file behind the header.
#if __has_include(<bits/c++config.h>)
#include <bits/c++config.h>
#undef _GLIBCXX_USE_CHAR8_T
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#undef _GLIBCXX_USE_WCHAR_T
#endif
