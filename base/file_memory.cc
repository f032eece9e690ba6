// SPDX-License-Identifier: Apache-2.0
#include "base/file_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/descriptor.h"

namespace onnx_fp8 {

std::shared_ptr<void> AllocateInFile(const std::string& folder, size_t bytes) {
  std::string path = folder + "/onnx_fp8-memory-XXXXXX";
  const Descriptor file(mkostemp(path.data(), O_CLOEXEC));
  Check(file.get() >= 0, "[", folder,
        "] expected a folder for new files: ", std::strerror(errno));
  unlink(path.c_str());
  int error;
  do {
    error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  Check(error == 0, "[", folder, "] expected room for ", bytes,
        " bytes more: ", std::strerror(error));
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  Check(data != MAP_FAILED, "[", folder, "] ", bytes,
        " bytes of a file can't be mapped: ", std::strerror(errno));
  const auto unmap = [bytes, owner = getpid()](void* mapping) {
    // A forked process may have put something else there.
    if (getpid() == owner) munmap(mapping, bytes);
  };
  const std::shared_ptr<void> memory(data, unmap);
  Check(madvise(data, bytes, MADV_DONTFORK) == 0, "[", folder,
        "] a mapped file can't be kept from forked processes: ",
        std::strerror(errno));
  return memory;
}

}  // namespace onnx_fp8
