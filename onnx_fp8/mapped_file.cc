// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/mapped_file.h"

#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "onnx_fp8/check.h"
#include "onnx_fp8/out_of_memory.h"

namespace onnx_fp8 {
namespace {

// From the end of a file to the end of its last page.
size_t Rest(size_t size) {
  auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (page - size % page) % page;
}

}  // namespace

MappedFile MapFile(const std::string& path) {
  // Without O_NONBLOCK a named pipe would wait for its writer.
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  Check(fd >= 0, "[", path, "] can't be opened: ", std::strerror(errno));
  std::shared_ptr<void> closer(nullptr, [fd](void*) { close(fd); });
  struct stat info {};
  Check(fstat(fd, &info) == 0, "[", path, "] ", std::strerror(errno));
  Check(S_ISREG(info.st_mode), "[", path, "] expected a regular file, got a ",
        S_ISDIR(info.st_mode) ? "folder" : "device or pipe");
  MappedFile file;
  file.size = static_cast<size_t>(info.st_size);
  if (file.size == 0) return file;
  // Without MAP_NORESERVE the system would refuse files larger than memory,
  // lest all of their pages be written.
  void* data = mmap(nullptr, file.size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED && errno == ENOMEM) {
    FailOutOfMemory(file.size, Concat("[", path, "] can't be mapped: "));
  }
  Check(data != MAP_FAILED, "[", path,
        "] can't be mapped: ", std::strerror(errno));
  file.data = static_cast<std::byte*>(data);
  // Under AddressSanitizer whoever reads behind the end is found.
  ASAN_POISON_MEMORY_REGION(file.data + file.size, Rest(file.size));
  file.owner = std::shared_ptr<void>(data, [size = file.size](void* p) {
    ASAN_UNPOISON_MEMORY_REGION(static_cast<std::byte*>(p) + size, Rest(size));
    munmap(p, size);
  });
  return file;
}

}  // namespace onnx_fp8
