// How many threads the calling thread's parallel regions use.
#pragma once

#include <cstdint>

namespace menagerie::threads {

int32_t available();  // processors this process may run on
int32_t chosen();
void choose(int32_t count);

}  // namespace menagerie::threads
