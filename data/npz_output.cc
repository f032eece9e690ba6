// SPDX-License-Identifier: Apache-2.0
#include "data/npz_output.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/file.h"
#include "data/npy.h"
#include "data/zip_format.h"

namespace onnx_fp8 {
namespace {

// The head of a .npy 1.0 file up to the data, padded to a multiple of 64.
std::string NpyHeader(const std::string& name, const Tensor& array) {
  auto row = std::ranges::find(kNumpyTypes, array.dtype(), &NumpyType::dtype);
  Check(row != std::end(kNumpyTypes), "[", name, "] NumPy has no ",
        Name(array.dtype()), "; write .safetensors");
  // No byte order for single bytes, else little endian.
  const char* order = ByteSize(array.dtype()) == 1 ? "|" : "<";
  std::string text = Concat("{'descr': '", order, row->code,
                            "', 'fortran_order': False, 'shape': (");
  for (int64_t size : array.shape()) text += std::to_string(size) + ",";
  text += "), }";
  size_t total = (10 + text.size() + 1 + 63) / 64 * 64;
  text.resize(total - 11, ' ');
  text += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

void Append(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i) & 0xFF));
  }
}

struct Member {
  std::string name;
  std::string header;  // of the .npy
  uint32_t crc = 0;
  uint64_t size = 0;
  uint64_t offset = 0;  // of the local header
};

// The fields that local and central headers share, from "version needed" to
// the length of the extra field.
void AppendFields(std::string* out, const Member& m, uint16_t extra) {
  Append(out, 45, 2);
  Append(out, 1 << 11, 2);  // the name is UTF-8
  Append(out, 0, 2);        // stored
  Append(out, 0, 2);        // time
  Append(out, 0x21, 2);     // 1980-01-01
  Append(out, m.crc, 4);
  Append(out, zip::kIn64, 4);  // both sizes are in the zip64 field
  Append(out, zip::kIn64, 4);
  Append(out, m.name.size(), 2);
  Append(out, extra, 2);
}

std::string LocalHeader(const Member& m) {
  std::string out;
  Append(&out, zip::kLocalHeader, 4);
  AppendFields(&out, m, 20);
  out += m.name;
  Append(&out, zip::kZip64Extra, 2);
  Append(&out, 16, 2);
  Append(&out, m.size, 8);
  Append(&out, m.size, 8);
  return out;
}

std::string CentralHeader(const Member& m) {
  std::string out;
  Append(&out, zip::kCentralHeader, 4);
  Append(&out, 45, 2);
  AppendFields(&out, m, 28);
  Append(&out, 0, 2);  // comment
  Append(&out, 0, 2);  // disk
  Append(&out, 0, 2);  // attributes
  Append(&out, 0, 4);
  Append(&out, zip::kIn64, 4);
  out += m.name;
  Append(&out, zip::kZip64Extra, 2);
  Append(&out, 24, 2);
  Append(&out, m.size, 8);
  Append(&out, m.size, 8);
  Append(&out, m.offset, 8);
  return out;
}

std::string EndRecords(size_t count, uint64_t start, uint64_t size) {
  std::string out;
  Append(&out, zip::kEnd64, 4);  // zip64 end of central directory
  Append(&out, 44, 8);
  Append(&out, 45, 2);
  Append(&out, 45, 2);
  Append(&out, 0, 4);
  Append(&out, 0, 4);
  Append(&out, count, 8);
  Append(&out, count, 8);
  Append(&out, size, 8);
  Append(&out, start, 8);
  Append(&out, zip::kEnd64Locator, 4);  // its locator
  Append(&out, 0, 4);
  Append(&out, start + size, 8);
  Append(&out, 1, 4);
  Append(&out, zip::kEnd, 4);  // the old end record
  Append(&out, 0, 4);
  Append(&out, std::min<size_t>(count, 0xFFFF), 2);
  Append(&out, std::min<size_t>(count, 0xFFFF), 2);
  Append(&out, zip::kIn64, 4);
  Append(&out, zip::kIn64, 4);
  Append(&out, 0, 2);
  return out;
}

void WriteNpz(OutputFile& file, const std::string& path,
              const TensorMap& arrays) {
  std::vector<Member> members;
  for (const auto& [name, array] : arrays) {
    Member m;
    m.name = name + ".npy";
    Check(m.name.size() <= 0xFFFF, "[", path, "] a name is too long");
    m.header = NpyHeader(name, array);
    m.crc = CombineCrc32(Crc32(m.header.data(), m.header.size()),
                         Crc32(array.raw(), array.bytes()), array.bytes());
    m.size = m.header.size() + array.bytes();
    m.offset = file.size();
    std::string local = LocalHeader(m);
    file.Write(local.data(), local.size());
    file.Write(m.header.data(), m.header.size());
    file.Write(array.raw(), array.bytes());
    members.push_back(std::move(m));
  }
  uint64_t start = file.size();
  std::string directory;
  for (const Member& m : members) directory += CentralHeader(m);
  std::string end = EndRecords(members.size(), start, directory.size());
  file.Write(directory.data(), directory.size());
  file.Write(end.data(), end.size());
}

}  // namespace

void WriteNpz(const std::string& path, const TensorMap& arrays) {
  ReplaceFile(path, [&](OutputFile& file) { WriteNpz(file, path, arrays); });
}

}  // namespace onnx_fp8
