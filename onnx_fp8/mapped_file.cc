// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "onnx_fp8/check.h"

namespace onnx_fp8 {

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
  Check(data != MAP_FAILED, "[", path,
        "] can't be mapped: ", std::strerror(errno));
  file.data = static_cast<std::byte*>(data);
  file.owner = std::shared_ptr<void>(
      data, [size = file.size](void* p) { munmap(p, size); });
  return file;
}

}  // namespace onnx_fp8
