// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/mapped_file.h"

namespace onnx_fp8 {
namespace {

// Names the file that the caller asked for, also if a temporary one failed.
[[noreturn]] void FailSystem(const std::string& path, const char* what) {
  int error = errno;
  bool temporary = IsTemporaryName(path);
  Fail("[", temporary ? path.substr(0, path.rfind(".tmp-")) : path, "] ", what,
       ": ", std::generic_category().message(error));
}

// A program would get a signal here, but the system's `write` gets an error.
void RequireMapped(const void* data) {
  const char* source = MappedFileAt(data);
  if (source) Fail("[", source, "]", kBecameShorter);
}

void Announce(const FileHook& hook, const char* operation,
              const std::string& path) {
  if (hook) hook(std::string(operation) + " " + path);
}

// Calls `put(bytes, most, done)`, which writes some of the bytes that follow
// the `done` first ones, until all are written.
template <typename Put>
void WriteAll(const std::string& path, const void* data, size_t size,
              const Put& put) {
  // The kernel writes at most 2 GiB per call.
  constexpr size_t kPiece = size_t{1} << 30;
  const char* bytes = static_cast<const char*>(data);
  for (size_t done = 0; done < size;) {
    ssize_t n = put(bytes + done, std::min(size - done, kPiece), done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EFAULT) RequireMapped(bytes + done);
    if (n < 0) FailSystem(path, "can't be written");
    done += static_cast<size_t>(n);
  }
}

}  // namespace

uint32_t Crc32(const void* data, size_t size) {
  return static_cast<uint32_t>(
      crc32_z(0, static_cast<const Bytef*>(data), size));
}

uint32_t CombineCrc32(uint32_t first, uint32_t second, size_t size) {
  return static_cast<uint32_t>(
      crc32_combine(first, second, static_cast<z_off_t>(size)));
}

std::string Hex(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

OutputFile::OutputFile(const std::string& path, FileHook hook)
    : path_(path), hook_(std::move(hook)) {
  Announce(hook_, "create", path_);
  unlink(path.c_str());
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  fd_.Reset(open(path.c_str(), kNew, 0666));
  if (fd_.get() < 0) FailSystem(path_, "can't be created");
}

void OutputFile::Write(const void* data, size_t size) {
  Announce(hook_, "write", path_);
  WriteAll(path_, data, size, [&](const char* from, size_t n, size_t) {
    return write(fd_.get(), from, n);
  });
  size_ += size;
}

void OutputFile::WriteAt(uint64_t offset, const void* data, size_t size) {
  Announce(hook_, "write", path_);
  WriteAll(path_, data, size, [&](const char* from, size_t n, size_t done) {
    return pwrite(fd_.get(), from, n, static_cast<off_t>(offset + done));
  });
}

void OutputFile::Skip(uint64_t size) {
  if (size == 0) return;
  Announce(hook_, "write", path_);
  size_ += size;
  auto end = static_cast<off_t>(size_);
  if (ftruncate(fd_.get(), end) != 0 || lseek(fd_.get(), end, SEEK_SET) < 0) {
    FailSystem(path_, "can't be written");
  }
}

uint64_t OutputFile::TakeFrom(int fd, uint64_t offset, uint64_t size) {
  Announce(hook_, "write", path_);
  auto from = static_cast<off_t>(offset);
  ssize_t n;
  do {
    n = copy_file_range(fd, &from, fd_.get(), nullptr, size, 0);
  } while (n < 0 && errno == EINTR);
  // Any other error means that the kernel can't copy these two files (they lie
  // on two file systems, or on one that can't copy). The code depends on the
  // kernel.
  bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  if (n < 0 && full) FailSystem(path_, "can't be written");
  if (n <= 0) return 0;
  size_ += static_cast<uint64_t>(n);
  return static_cast<uint64_t>(n);
}

void OutputFile::Finish() {
  Announce(hook_, "sync", path_);
  if (fsync(fd_.get()) != 0) FailSystem(path_, "can't be written");
  if (close(fd_.Release()) != 0) FailSystem(path_, "can't be written");
}

bool IsRegularFile(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none);
}

bool IsFolder(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none);
}

bool PathExists(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

void MakeDirectories(const std::string& path, const FileHook& hook) {
  namespace fs = std::filesystem;
  Announce(hook, "mkdir", path);
  std::error_code error;
  std::vector<std::string> parents;  // of new folders, the innermost first
  for (fs::path at = fs::absolute(path); !fs::exists(at, error) && !error;) {
    const fs::path parent = at.parent_path();
    // A path may end in a slash.
    if (at.has_filename()) parents.push_back(parent.string());
    if (parent == at) break;
    at = parent;
  }
  error.clear();
  fs::create_directories(path, error);
  Check(!error, "[", path, "] can't be created: ", error.message());
  std::ranges::reverse(parents);
  for (const std::string& parent : parents) {
    // A folder in which we may write need not be one that we may read.
    if (access(parent.c_str(), R_OK) == 0) SyncDirectory(parent, hook);
  }
}

void MakeNewDirectory(const std::string& path, const FileHook& hook) {
  Announce(hook, "mkdir", path);
  if (mkdir(path.c_str(), 0777) != 0) FailSystem(path, "can't be created");
}

void RenamePath(const std::string& from, const std::string& to,
                const FileHook& hook) {
  Announce(hook, "rename", to);
  if (rename(from.c_str(), to.c_str()) != 0) {
    FailSystem(to, "can't be put in place");
  }
}

void SyncDirectory(const std::string& path, const FileHook& hook) {
  Announce(hook, "sync", path);
  Descriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) FailSystem(path, "can't be opened");
  // Some file systems do not sync directories and answer EINVAL.
  if (fsync(fd.get()) != 0 && errno != EINVAL) {
    FailSystem(path, "can't be synced");
  }
}

bool RemoveTree(const std::string& path, const FileHook& hook) {
  Announce(hook, "remove", path);
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return !error;
}

std::string TemporaryName(const std::string& path) {
  return path + ".tmp-" + std::to_string(getpid());
}

bool IsTemporaryName(std::string_view name) {
  size_t dot = name.rfind(".tmp-");
  return dot != std::string_view::npos && dot + 5 < name.size() &&
         name.find_first_not_of("0123456789", dot + 5) ==
             std::string_view::npos;
}

void ReplaceFile(const std::string& path,
                 const std::function<void(OutputFile&)>& write,
                 const FileHook& hook) {
  std::string temporary = TemporaryName(path);
  try {
    OutputFile file(temporary, hook);
    write(file);
    file.Finish();
    RenamePath(temporary, path, hook);
  } catch (...) {
    RemoveTree(temporary);
    throw;
  }
  std::string parent = std::filesystem::path(path).parent_path().string();
  SyncDirectory(parent.empty() ? "." : parent, hook);
}

void WriteFileAtomically(const std::string& path, std::string_view text,
                         const FileHook& hook) {
  ReplaceFile(
      path, [&](OutputFile& file) { file.Write(text.data(), text.size()); },
      hook);
}

}  // namespace onnx_fp8
