// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/copy_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

// Between two reports of progress.
constexpr uint64_t kPiece = uint64_t{64} << 20;
constexpr size_t kBuffer = size_t{1} << 20;

class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path) {
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    Check(fd_ >= 0, "[", path, "] can't be opened: ", std::strerror(errno));
    struct stat info = {};
    if (fstat(fd_, &info) != 0) Fail();
    size_ = static_cast<uint64_t>(info.st_size);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  uint64_t size() const { return size_; }

  // Where bytes begin that are not in a hole, from `at` on, and where the next
  // hole does. A file system that knows of no holes says there is none.
  std::pair<uint64_t, uint64_t> NextData(uint64_t at) const {
    off_t begin = lseek(fd_, static_cast<off_t>(at), SEEK_DATA);
    if (begin < 0 && errno == ENXIO) return {size_, size_};
    if (begin < 0) return {at, size_};
    off_t end = lseek(fd_, begin, SEEK_HOLE);
    if (end < 0) return {at, size_};
    auto limit = [&](off_t x) {
      return std::min(static_cast<uint64_t>(x), size_);
    };
    return {limit(begin), limit(end)};
  }

  // Fills the buffer from `at` on.
  void Read(char* buffer, size_t count, uint64_t at) const {
    while (count > 0) {
      ssize_t n = pread(fd_, buffer, count, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Fail();
      Check(n > 0, "[", path_, "] became shorter while it was read");
      buffer += n;
      count -= static_cast<size_t>(n);
      at += static_cast<uint64_t>(n);
    }
  }

 private:
  [[noreturn]] void Fail() const {
    int error = errno;
    onnx_fp8::Fail("[", path_, "] can't be read: ", std::strerror(error));
  }

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

void CopyBytes(const InputFile& from, OutputFile& to, uint64_t begin,
               uint64_t end) {
  while (begin < end) {
    uint64_t copied = to.TakeFrom(from.fd(), begin, end - begin);
    if (copied == 0) break;
    begin += copied;
  }
  std::vector<char> buffer(begin < end ? kBuffer : 0);
  while (begin < end) {
    size_t count = std::min<uint64_t>(end - begin, kBuffer);
    from.Read(buffer.data(), count, begin);
    to.Write(buffer.data(), count);
    begin += count;
  }
}

}  // namespace

void CopyFileAtomically(const std::string& from, const std::string& to,
                        const ByteProgress& progress, const FileHook& hook) {
  InputFile in(from);
  ReplaceFile(
      to,
      [&](OutputFile& out) {
        uint64_t done = 0;
        while (done < in.size()) {
          auto [begin, end] = in.NextData(done);
          out.Skip(begin - done);
          end = std::min(end, begin + kPiece);
          CopyBytes(in, out, begin, end);
          done = end;
          if (progress) progress(done);
        }
      },
      hook);
}

bool SameContent(const std::string& a, const std::string& b,
                 const ByteProgress& progress) {
  InputFile x(a), y(b);
  if (x.size() != y.size()) return false;
  std::vector<char> p(kBuffer), q(kBuffer);
  for (uint64_t done = 0; done < x.size();) {
    uint64_t piece = done / kPiece;
    // Over holes of both, which read as zeros.
    done = std::min(x.NextData(done).first, y.NextData(done).first);
    size_t count = std::min<uint64_t>(x.size() - done, kBuffer);
    x.Read(p.data(), count, done);
    y.Read(q.data(), count, done);
    if (std::memcmp(p.data(), q.data(), count) != 0) return false;
    done += count;
    bool due = done / kPiece != piece || done == x.size();
    if (due && progress) progress(done);
  }
  return true;
}

}  // namespace onnx_fp8
