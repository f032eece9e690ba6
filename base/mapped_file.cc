// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/out_of_memory.h"

namespace onnx_fp8 {
namespace {

// Where a file is mapped. A signal handler reads this at any moment, so places
// are never freed: they serve other mappings later.
struct Place {
  std::atomic<uintptr_t> begin = 0;  // 0: no mapping uses the place
  std::atomic<uintptr_t> end = 0;
  std::string path;
  Place* next = nullptr;       // list of all places
  Place* next_free = nullptr;  // guarded by free_mutex
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

class Mapping {
 public:
  explicit Mapping(const InputFile& file)
      : size_(file.size()), place_(TakePlace(file.path())) {
    // MAP_NORESERVE: otherwise the system would refuse files larger than
    // memory, because all of their pages might be written.
    void* data = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_NORESERVE, file.fd(), 0);
    if (data == MAP_FAILED) {
      int error = errno;
      GiveBack(place_);
      std::string what = Concat("[", file.path(), "] can't be mapped: ");
      if (error == ENOMEM) FailOutOfMemory(size_, what);
      Fail(what, std::strerror(error));
    }
    data_ = static_cast<std::byte*>(data);
    place_->end = reinterpret_cast<uintptr_t>(data_) + Pages(size_);
    place_->begin = reinterpret_cast<uintptr_t>(data_);
    // AddressSanitizer then finds reads behind the end.
    ASAN_POISON_MEMORY_REGION(data_ + size_, Pages(size_) - size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    GiveBack(place_);
    ASAN_UNPOISON_MEMORY_REGION(data_ + size_, Pages(size_) - size_);
    munmap(data_, size_);
  }

  std::byte* data() const { return data_; }

 private:
  size_t size_;
  Place* place_;
  std::byte* data_ = nullptr;
};

}  // namespace

MappedFile MapFile(const InputFile& file) {
  if (file.size() == 0) return {};
  auto mapping = std::make_shared<Mapping>(file);
  return {mapping, mapping->data(), static_cast<size_t>(file.size())};
}

MappedFile MapFile(const std::string& path) { return MapFile(InputFile(path)); }

const char* MappedFileAt(const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  for (const Place* place = all_places; place; place = place->next) {
    uintptr_t begin = place->begin;
    if (begin == 0 || at < begin || at >= place->end) continue;
    // Unless the place has changed hands meanwhile.
    if (place->begin == begin) return place->path.c_str();
  }
  return nullptr;
}

}  // namespace onnx_fp8
