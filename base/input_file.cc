// SPDX-License-Identifier: Apache-2.0
#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/descriptor.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// Without O_NONBLOCK a named pipe would wait for its writer.
constexpr int kToRead = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
constexpr int kToPass = O_PATH | O_DIRECTORY | O_CLOEXEC;

[[noreturn]] void FailToOpen(const std::string& path, int error) {
  Fail("[", path, "] can't be opened: ", std::strerror(error));
}

bool IsLink(int folder, const std::string& name) {
  struct stat info {};
  return fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(info.st_mode);
}

// Opens one part of a path; `path` is the path up to that part.
int OpenStep(int folder, const std::string& name, int flags,
             const std::string& path) {
  Check(name != ".." && !name.starts_with('/'), "[", path,
        "] expected a path that stays in its folder");
  int fd = openat(folder, name.c_str(), flags | O_NOFOLLOW);
  int error = errno;
  Check(fd >= 0 || !IsLink(folder, name), "[", path,
        "] is a link, which may lead anywhere: copy the folder with what its "
        "links name (cp -rL FOLDER COPY) and use the copy");
  if (fd < 0) FailToOpen(path, error);
  return fd;
}

int OpenBelow(const std::string& folder, const std::string& location) {
  Descriptor at(open(folder.empty() ? "." : folder.c_str(), kToPass));
  if (at.get() < 0) FailToOpen(folder, errno);
  fs::path path = folder;
  fs::path parts = location;
  fs::path last = parts.filename();
  for (const fs::path& part : parts.parent_path()) {
    path /= part;
    at.Reset(OpenStep(at.get(), part.string(), kToPass, path.string()));
  }
  return OpenStep(at.get(), last.string(), kToRead, (path / last).string());
}

}  // namespace

InputFile::InputFile(const std::string& path)
    : InputFile(path, open(path.c_str(), kToRead)) {}

InputFile::InputFile(const std::string& folder, const std::string& location)
    : InputFile((fs::path(folder) / location).string(),
                OpenBelow(folder, location)) {}

InputFile::InputFile(std::string path, int fd)
    : path_(std::move(path)), fd_(fd) {
  if (fd < 0) FailToOpen(path_, errno);
  struct stat info {};
  Check(fstat(fd, &info) == 0, "[", path_, "] ", std::strerror(errno));
  Check(S_ISREG(info.st_mode), "[", path_, "] expected a regular file, got a ",
        S_ISDIR(info.st_mode) ? "folder" : "device or pipe");
  size_ = static_cast<uint64_t>(info.st_size);
}

void InputFile::Read(char* buffer, size_t count, uint64_t at) const {
  while (count > 0) {
    ssize_t n = pread(fd_.get(), buffer, count, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    Check(n >= 0, "[", path_, "] can't be read: ", std::strerror(errno));
    Check(n > 0, "[", path_, "]", kBecameShorter);
    buffer += n;
    count -= static_cast<size_t>(n);
    at += static_cast<uint64_t>(n);
  }
}

void InputFile::CheckWhole() const {
  struct stat info {};
  Check(fstat(fd_.get(), &info) == 0, "[", path_, "] ", std::strerror(errno));
  Check(static_cast<uint64_t>(info.st_size) >= size_, "[", path_, "]",
        kBecameShorter);
}

std::string ReadText(const InputFile& file, uint64_t most) {
  Check(file.size() <= most, "[", file.path(), "] expected a file of at most ",
        most, " bytes, got ", file.size());
  std::string text(file.size(), '\0');
  file.Read(text.data(), text.size(), 0);
  return text;
}

std::string ReadText(const std::string& path, uint64_t most) {
  return ReadText(InputFile(path), most);
}

}  // namespace onnx_fp8
