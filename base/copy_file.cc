// SPDX-License-Identifier: Apache-2.0
#include "base/copy_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace onnx_fp8 {
namespace {

// Between two reports of progress.
constexpr uint64_t kPiece = uint64_t{64} << 20;
constexpr size_t kBuffer = size_t{1} << 20;

// Where the next data begin that are not in a hole, from `at` on, and where the
// next hole begins. A file system without holes says that there is none.
std::pair<uint64_t, uint64_t> NextData(const InputFile& file, uint64_t at) {
  off_t begin = lseek(file.fd(), static_cast<off_t>(at), SEEK_DATA);
  if (begin < 0 && errno == ENXIO) return {file.size(), file.size()};
  if (begin < 0) return {at, file.size()};
  off_t end = lseek(file.fd(), begin, SEEK_HOLE);
  if (end < 0) return {at, file.size()};
  auto limit = [&](off_t x) {
    return std::min(static_cast<uint64_t>(x), file.size());
  };
  return {limit(begin), limit(end)};
}

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

void CopyFileAtomically(const InputFile& from, const std::string& to,
                        const ByteProgress& progress, const FileHook& hook) {
  ReplaceFile(
      to,
      [&](OutputFile& out) {
        uint64_t done = 0;
        while (done < from.size()) {
          auto [begin, end] = NextData(from, done);
          out.Skip(begin - done);
          end = std::min(end, begin + kPiece);
          CopyBytes(from, out, begin, end);
          done = end;
          if (progress) progress(done);
        }
        from.CheckWhole();
      },
      hook);
}

bool SameContent(const InputFile& a, const InputFile& b,
                 const ByteProgress& progress) {
  if (a.size() != b.size()) return false;
  std::vector<char> p(kBuffer), q(kBuffer);
  for (uint64_t done = 0; done < a.size();) {
    uint64_t piece = done / kPiece;
    // Skip the holes that both files have: they read as zeros.
    done = std::min(NextData(a, done).first, NextData(b, done).first);
    size_t count = std::min<uint64_t>(a.size() - done, kBuffer);
    a.Read(p.data(), count, done);
    b.Read(q.data(), count, done);
    if (std::memcmp(p.data(), q.data(), count) != 0) return false;
    done += count;
    bool due = done / kPiece != piece || done == a.size();
    if (due && progress) progress(done);
  }
  // Behind the end of a file that was cut there are only holes.
  a.CheckWhole();
  b.CheckWhole();
  return true;
}

}  // namespace onnx_fp8
