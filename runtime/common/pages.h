// What the system is told about memory, page by page.
#pragma once

#include <cstddef>
#include <memory>

namespace menagerie {

class Storage;

// Asks for all whole pages of memory that is about to be written: one call instead of a fault for
// each. Systems that cannot lose nothing.
void populate(void* data, size_t bytes);

// Memory for what is written once and stays, such as packed weights: part after part of a region of
// large pages, of which the system has fewer to find. A part's own pages go back with it.
std::shared_ptr<float> lasting_memory(size_t bytes);

// The file's pages behind a constant that was packed are not needed soon; the system may take them
// back. Nothing happens to memory of our own, which would come back empty.
void release_pages(const Storage& storage);

}  // namespace menagerie
