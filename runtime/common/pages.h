// What the system is told about memory, page by page.
#pragma once

#include <cstddef>

namespace menagerie {

class Storage;

// Asks for all whole pages of memory that is about to be written: one call instead of a fault for
// each. Systems that cannot lose nothing.
void populate(void* data, size_t bytes);

// The file's pages behind a constant that was packed are not needed soon; the system may take them
// back. Nothing happens to memory of our own, which would come back empty.
void release_pages(const Storage& storage);

}  // namespace menagerie
