// SPDX-License-Identifier: Apache-2.0
#include "data/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "data/zip_format.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {
namespace {

using namespace zip;

constexpr uint64_t kEndSize = 22;
constexpr uint64_t kLocatorSize = 20;

// Little-endian numbers at any place of the file; outside it is an error.
class Reader {
 public:
  Reader(const MappedFile& file, const std::string& path)
      : file_(file), path_(path) {}

  template <typename T>
  T Get(uint64_t at) const {
    Check(Has(at, sizeof(T)), "[", path_, "] is a truncated ZIP file");
    T value;
    std::memcpy(&value, file_.data + at, sizeof value);
    return value;
  }
  bool Has(uint64_t at, uint64_t size) const {
    return at <= file_.size && size <= file_.size - at;
  }
  std::string Text(uint64_t at, uint64_t size) const {
    Check(Has(at, size), "[", path_, "] is a truncated ZIP file");
    return std::string(reinterpret_cast<const char*>(file_.data) + at, size);
  }

  uint64_t size() const { return file_.size; }
  const std::string& path() const { return path_; }

 private:
  const MappedFile& file_;
  const std::string& path_;
};

struct Directory {
  uint64_t count;
  uint64_t size;
  uint64_t offset;
};

// Only a comment of up to 65535 bytes follows the end record.
uint64_t FindEnd(const Reader& reader) {
  Check(reader.size() >= kEndSize, "[", reader.path(),
        "] expected a ZIP file, got ", reader.size(), " bytes");
  uint64_t last = reader.size() - kEndSize;
  uint64_t first = last > 65535 ? last - 65535 : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    if (reader.Get<uint32_t>(at) == kEnd &&
        reader.Get<uint16_t>(at + 20) == last - at) {
      return at;
    }
  }
  Fail("[", reader.path(),
       "] expected a ZIP file; its end is missing (truncated, or of another "
       "format)");
}

Directory ReadEnd(const Reader& reader) {
  uint64_t end = FindEnd(reader);
  Check(reader.Get<uint16_t>(end + 4) == reader.Get<uint16_t>(end + 6), "[",
        reader.path(), "] expected a ZIP file in one piece");
  Directory found{reader.Get<uint16_t>(end + 10),
                  reader.Get<uint32_t>(end + 12),
                  reader.Get<uint32_t>(end + 16)};
  bool in64 =
      found.count == 0xffff || found.size == kIn64 || found.offset == kIn64;
  if (in64 && end >= kLocatorSize &&
      reader.Get<uint32_t>(end - kLocatorSize) == kEnd64Locator) {
    uint64_t end64 = reader.Get<uint64_t>(end - kLocatorSize + 8);
    Check(reader.Has(end64, 56) && reader.Get<uint32_t>(end64) == kEnd64, "[",
          reader.path(), "] has a damaged zip64 end record");
    found = {reader.Get<uint64_t>(end64 + 32), reader.Get<uint64_t>(end64 + 40),
             reader.Get<uint64_t>(end64 + 48)};
  }
  Check(reader.Has(found.offset, found.size), "[", reader.path(),
        "] has a ZIP directory outside the file");
  return found;
}

// Replaces sizes and an offset that say "see the zip64 field" by the values in
// that field.
void ReadZip64Extra(const Reader& reader, uint64_t at, uint64_t end,
                    ZipMember* member, const std::string& where) {
  uint64_t* wide[] = {&member->size, &member->compressed, &member->offset};
  if (std::ranges::none_of(wide, [](uint64_t* x) { return *x == kIn64; })) {
    return;
  }
  while (at + 4 <= end) {
    uint16_t id = reader.Get<uint16_t>(at);
    uint64_t next = at + 4 + reader.Get<uint16_t>(at + 2);
    Check(next <= end, "[", where, "] has a damaged ZIP entry");
    at += 4;
    if (id == kZip64Extra) {
      for (uint64_t* field : wide) {
        if (*field != kIn64) continue;
        Check(at + 8 <= next, "[", where, "] has a damaged zip64 entry");
        *field = reader.Get<uint64_t>(at);
        at += 8;
      }
      return;
    }
    at = next;
  }
  // Without the field, 0xffffffff is a plain number.
}

// Reads the entry at *at and moves *at to the next one.
ZipMember ReadEntry(const Reader& reader, uint64_t* at) {
  const std::string& path = reader.path();
  uint64_t entry = *at;
  Check(reader.Get<uint32_t>(entry) == kCentralHeader, "[", path,
        "] has a damaged ZIP directory");
  uint64_t name_size = reader.Get<uint16_t>(entry + 28);
  uint64_t extra_size = reader.Get<uint16_t>(entry + 30);
  uint64_t comment_size = reader.Get<uint16_t>(entry + 32);
  ZipMember member{.name = reader.Text(entry + 46, name_size),
                   .method = reader.Get<uint16_t>(entry + 10),
                   .crc = reader.Get<uint32_t>(entry + 16),
                   .compressed = reader.Get<uint32_t>(entry + 20),
                   .size = reader.Get<uint32_t>(entry + 24),
                   .offset = reader.Get<uint32_t>(entry + 42),
                   .header = 0};
  std::string where = path + ": " + member.name;
  uint64_t extra = entry + 46 + name_size;
  ReadZip64Extra(reader, extra, extra + extra_size, &member, where);
  *at = extra + extra_size + comment_size;

  Check((reader.Get<uint16_t>(entry + 8) & 1) == 0, "[", where,
        "] is encrypted");
  Check(member.method == 0 || member.method == 8, "[", where,
        "] expected ZIP method 0 (stored) or 8 (deflated), got ",
        member.method);
  Check(member.method == 8 || member.size == member.compressed, "[", where,
        "] has a damaged ZIP entry");
  // The bytes from the local header to the end of the data.
  uint64_t local = member.header = member.offset;
  Check(reader.Has(local, 30) && reader.Get<uint32_t>(local) == kLocalHeader,
        "[", where, "] has no ZIP header where the directory says");
  member.offset = local + 30 + reader.Get<uint16_t>(local + 26) +
                  reader.Get<uint16_t>(local + 28);
  Check(reader.Has(member.offset, member.compressed), "[", where, "] expected ",
        member.compressed, " bytes, got less (truncated ZIP file?)");
  return member;
}

// Otherwise many members could share a few bytes and become any number of
// arrays.
void RequireApart(std::vector<ZipMember> members, const Directory& directory,
                  const std::string& path) {
  std::ranges::sort(members, {}, &ZipMember::header);
  for (size_t i = 0; i < members.size(); ++i) {
    bool last = i + 1 == members.size();
    uint64_t end = members[i].offset + members[i].compressed;
    uint64_t next = last ? directory.offset : members[i + 1].header;
    Check(end <= next, "[", path, ": ", members[i].name,
          "] expected bytes of its own, got some that belong to ",
          last ? "the ZIP directory" : "\"" + members[i + 1].name + "\"",
          " too");
  }
}

Bytes Inflate(uint8_t* from, const ZipMember& member,
              const std::string& where) {
  // Deflate can't do better than 1032:1; this check keeps a damaged size from
  // asking for more memory than there is.
  Check(member.size / 1032 <= member.compressed, "[", where,
        "] has a damaged ZIP entry: ", member.size, " bytes from ",
        member.compressed);
  std::shared_ptr<void> data = AllocateBytes(member.size);
  Bytes bytes{data, static_cast<uint8_t*>(data.get()), member.size};
  z_stream stream = {};
  Check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "[", where,
        "] can't be inflated");
  // zlib counts in 32 bits.
  constexpr uint64_t kPiece = uint64_t{1} << 30;
  uint64_t in = 0, out = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    uint64_t in_piece = std::min(kPiece, member.compressed - in);
    uint64_t out_piece = std::min(kPiece, member.size - out);
    stream.next_in = from + in;
    stream.avail_in = static_cast<uInt>(in_piece);
    stream.next_out = bytes.data + out;
    stream.avail_out = static_cast<uInt>(out_piece);
    status = inflate(&stream, Z_NO_FLUSH);
    in += in_piece - stream.avail_in;
    out += out_piece - stream.avail_out;
  }
  inflateEnd(&stream);
  Check(status == Z_STREAM_END && out == member.size, "[", where,
        "] is damaged: it can't be inflated to ", member.size, " bytes");
  return bytes;
}

}  // namespace

ZipArchive::ZipArchive(const std::string& path)
    : path_(path), file_(MapFile(path)) {
  Reader reader(file_, path_);
  Directory directory = ReadEnd(reader);
  std::set<std::string> names;
  uint64_t at = directory.offset;
  // A damaged count can be huge: the first entry outside the file ends the
  // loop.
  for (uint64_t i = 0; i < directory.count; ++i) {
    members_.push_back(ReadEntry(reader, &at));
    Check(names.insert(members_.back().name).second, "[", path_, "] holds \"",
          members_.back().name, "\" twice");
  }
  Check(at == directory.offset + directory.size, "[", path_,
        "] has a damaged ZIP directory");
  RequireApart(members_, directory, path_);
}

Bytes ZipArchive::Read(const ZipMember& member) const {
  std::string where = path_ + ": " + member.name;
  uint8_t* stored = reinterpret_cast<uint8_t*>(file_.data) + member.offset;
  Bytes bytes = member.method == 0 ? Bytes{file_.owner, stored, member.size}
                                   : Inflate(stored, member, where);
  Check(Crc32(bytes.data, bytes.size) == member.crc, "[", where,
        "] is damaged: its checksum does not fit");
  return bytes;
}

}  // namespace onnx_fp8
