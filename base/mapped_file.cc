// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/out_of_memory.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else  // a compiler without sanitizers
#define ASAN_POISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#endif

namespace onnx_fp8 {
namespace {

// Where a file is mapped. A signal handler reads this at any moment, so places
// are never freed: they serve other mappings later.
struct Place {
  std::atomic<uintptr_t> begin = 0;  // 0: no mapping uses the place
  std::atomic<uintptr_t> end = 0;
  std::string path;
  const InputFile* file = nullptr;  // of a part; it is open
  uint64_t offset = 0;              // of `begin` in this file
  Place* next = nullptr;            // list of all places
  Place* next_free = nullptr;       // guarded by free_mutex
};

std::atomic<Place*> all_places = nullptr;
static_assert(std::atomic<Place*>::is_always_lock_free &&
              std::atomic<uintptr_t>::is_always_lock_free);

std::mutex free_mutex;
Place* free_places = nullptr;  // places that no mapping uses

Place* TakePlace(const std::string& path) {
  std::lock_guard<std::mutex> lock(free_mutex);
  if (!free_places) {
    free_places = new Place;
    free_places->next = all_places;
    all_places = free_places;
  }
  free_places->path = path;
  return std::exchange(free_places, free_places->next_free);
}

void GiveBack(Place* place) {
  place->begin = 0;
  std::lock_guard<std::mutex> lock(free_mutex);
  place->next_free = std::exchange(free_places, place);
}

// `size` rounded up to whole pages.
size_t Pages(size_t size) {
  auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

// The place of a mapping that holds the address; null if there is none.
const Place* PlaceOf(const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  for (const Place* place = all_places; place; place = place->next) {
    uintptr_t begin = place->begin;
    if (begin == 0 || at < begin || at >= place->end) continue;
    // Unless the place has changed hands meanwhile.
    if (place->begin == begin) return place;
  }
  return nullptr;
}

class Mapping {
 public:
  // `open`: the file itself if it stays open; else null.
  Mapping(const InputFile& file, uint64_t offset, size_t size,
          std::shared_ptr<const InputFile> open)
      : before_(offset % Pages(1)),
        size_(before_ + size),
        open_(std::move(open)),
        place_(TakePlace(file.path())) {
    // MAP_NORESERVE: otherwise the system would refuse files larger than
    // memory, because all of their pages might be written.
    void* data = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_NORESERVE, file.fd(),
                      static_cast<off_t>(offset - before_));
    if (data == MAP_FAILED) {
      int error = errno;
      GiveBack(place_);
      std::string what = Concat("[", file.path(), "] can't be mapped: ");
      if (error == ENOMEM) FailOutOfMemory(size, what);
      Fail(what, std::strerror(error));
    }
    pages_ = static_cast<std::byte*>(data);
    place_->file = open_.get();
    place_->offset = offset - before_;
    place_->end = reinterpret_cast<uintptr_t>(pages_) + Pages(size_);
    place_->begin = reinterpret_cast<uintptr_t>(pages_);
    // AddressSanitizer then finds reads outside of the bytes.
    ASAN_POISON_MEMORY_REGION(pages_, before_);
    ASAN_POISON_MEMORY_REGION(pages_ + size_, Pages(size_) - size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    GiveBack(place_);
    ASAN_UNPOISON_MEMORY_REGION(pages_, Pages(size_));
    munmap(pages_, size_);
  }

  std::byte* data() const { return pages_ + before_; }

 private:
  size_t before_, size_;  // bytes of the first page before ours; and with ours
  std::shared_ptr<const InputFile> open_;
  Place* place_;
  std::byte* pages_ = nullptr;
};

MappedFile Map(const InputFile& file, uint64_t offset, size_t size,
               std::shared_ptr<const InputFile> open) {
  if (size == 0) return {};
  auto mapping = std::make_shared<Mapping>(file, offset, size, std::move(open));
  return {mapping, mapping->data(), size};
}

}  // namespace

MappedFile MapFile(const InputFile& file) {
  return Map(file, 0, static_cast<size_t>(file.size()), nullptr);
}

MappedFile MapFile(const std::string& path) { return MapFile(InputFile(path)); }

MappedFile MapPart(std::shared_ptr<const InputFile> file, uint64_t offset,
                   size_t size) {
  constexpr size_t kMapped = size_t{1} << 20;
  const InputFile& open = *file;
  if (size >= kMapped) return Map(open, offset, size, std::move(file));
  std::shared_ptr<std::byte[]> bytes(new std::byte[size]);
  open.Read(reinterpret_cast<char*>(bytes.get()), size, offset);
  return {bytes, bytes.get(), size};
}

void CopyMapped(const void* from, size_t size, void* to) {
  if (size == 0) return;
  const Place* place = PlaceOf(from);
  if (!place || !place->file) {
    std::memcpy(to, from, size);
    return;
  }
  const uint64_t after = reinterpret_cast<uintptr_t>(from) - place->begin;
  place->file->Read(static_cast<char*>(to), size, place->offset + after);
}

const char* MappedFileAt(const void* address) {
  const Place* place = PlaceOf(address);
  return place ? place->path.c_str() : nullptr;
}

}  // namespace onnx_fp8
