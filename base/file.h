// SPDX-License-Identifier: Apache-2.0
//
// Files as the readers and the checkpoint need them: written, synced and
// renamed so that a reader never sees half a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace onnx_fp8 {

// CRC-32 (zlib's).
uint32_t Crc32(const void* data, size_t size);

// The checksum of two pieces in a row, from the checksums of both. `size`:
// bytes of the second piece.
uint32_t CombineCrc32(uint32_t first, uint32_t second, size_t size);

// "1a2b3c4d".
std::string Hex(uint32_t crc);

// Called before every operation that changes the file system, with its name
// and path ("write DIR/a"). Tests throw from it, as a full disk would, or end
// the process in it.
using FileHook = std::function<void(const std::string& operation)>;

// A new file, written front to back; bytes that were skipped may be written
// later.
class OutputFile {
 public:
  // Removes whatever has the name already, be it left by a killed process or a
  // link that somebody put there: nothing is written through it. Errors: it
  // can't be removed; the file can't be created.
  explicit OutputFile(const std::string& path, FileHook hook = {});

  // Errors: disk full and the like, naming the file; `data` lies in a mapped
  // file that became shorter.
  void Write(const void* data, size_t size);
  // The next `size` bytes are zero: a hole, where the file system has holes.
  void Skip(uint64_t size);
  // Writes bytes that Skip has passed. Errors: as Write's.
  void WriteAt(uint64_t offset, const void* data, size_t size);
  // Lets the kernel copy up to `size` bytes that lie at `offset` of another
  // file. Returns how many it copied; 0 if it can't do that for these files.
  uint64_t TakeFrom(int fd, uint64_t offset, uint64_t size);
  // Brings all bytes to the device and closes.
  void Finish();

  // Bytes written so far.
  uint64_t size() const { return size_; }

 private:
  std::string path_;
  FileHook hook_;
  Descriptor fd_;  // closed at the end; the file stays as it is
  uint64_t size_ = 0;
};

// Whether a path leads to a file, to a folder, or to anything; links are
// followed. False also if the system can't look the path up, for example
// because a name is too long. An attempt to open the path then gives the
// reason.
bool IsRegularFile(const std::string& path);
bool IsFolder(const std::string& path);
bool PathExists(const std::string& path);

// They throw Error with the path and the system's reason; new folders last.
void MakeDirectories(const std::string& path, const FileHook& hook = {});
// Errors also if something has the name already, for instance a link.
void MakeNewDirectory(const std::string& path, const FileHook& hook = {});
void RenamePath(const std::string& from, const std::string& to,
                const FileHook& hook = {});
// Brings a directory's entries (creations, renames) to the device.
void SyncDirectory(const std::string& path, const FileHook& hook = {});

// Removes a file or a folder with all its content. False if something stayed.
bool RemoveTree(const std::string& path, const FileHook& hook = {});

// Name of a file or folder that is being made and will become `path`. Files
// that a killed process left under such a name may be removed.
std::string TemporaryName(const std::string& path);
bool IsTemporaryName(std::string_view name);

// Writes a file under a temporary name with `write` and renames it to `path` at
// the end: `path` holds the old content or the new one, at any moment and after
// a crash. After an error, of `write` too, the temporary file is gone.
void ReplaceFile(const std::string& path,
                 const std::function<void(OutputFile&)>& write,
                 const FileHook& hook = {});
void WriteFileAtomically(const std::string& path, std::string_view text,
                         const FileHook& hook = {});

}  // namespace onnx_fp8
