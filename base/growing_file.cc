// SPDX-License-Identifier: Apache-2.0
#include "base/growing_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace onnx_fp8 {

GrowingFile::GrowingFile(const std::string& path, bool is_new) : path_(path) {
  constexpr int kGrow = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
  fd_.Reset(open(path.c_str(), kGrow | (is_new ? O_EXCL : 0), 0666));
  Check(fd_.get() >= 0, "[", path,
        "] can't be opened: ", std::generic_category().message(errno));
  size_ = lseek(fd_.get(), 0, SEEK_END);
  Check(size_ >= 0, "[", path,
        "] can't be opened: ", std::generic_category().message(errno));
}

void GrowingFile::Append(std::string_view record) {
  size_t done = 0;
  while (done < record.size()) {
    ssize_t n = write(fd_.get(), record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int error = errno;
      bool cut = ftruncate(fd_.get(), size_) == 0;
      Fail("[", path_,
           "] can't be written: ", std::generic_category().message(error),
           cut ? "" : "; its end is torn");
    }
    done += static_cast<size_t>(n);
  }
  size_ += static_cast<int64_t>(record.size());
}

void GrowingFile::Sync() {
  const bool done = fsync(fd_.get()) == 0;
  Check(done, "[", path_,
        "] can't be written: ", std::generic_category().message(errno));
}

}  // namespace onnx_fp8
