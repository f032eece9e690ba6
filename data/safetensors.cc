// SPDX-License-Identifier: Apache-2.0
#include "data/safetensors.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/shallow_json.h"

namespace onnx_fp8 {
namespace {

static_assert(std::endian::native == std::endian::little);

using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

struct Row {
  DType dtype;
  const char* name;
};

constexpr Row kRows[] = {
    {DType::kBool, "BOOL"},     {DType::kUInt8, "U8"},
    {DType::kInt8, "I8"},       {DType::kUInt16, "U16"},
    {DType::kInt16, "I16"},     {DType::kUInt32, "U32"},
    {DType::kInt32, "I32"},     {DType::kUInt64, "U64"},
    {DType::kInt64, "I64"},     {DType::kFloat16, "F16"},
    {DType::kBFloat16, "BF16"}, {DType::kFloat, "F32"},
    {DType::kDouble, "F64"},    {DType::kE4M3, "F8_E4M3"},
    {DType::kE5M2, "F8_E5M2"},  {DType::kE8M0, "F8_E8M0"},
};

DType ParseName(const std::string& name, const std::string& where) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  Fail("[", where, "] expected a known dtype, got \"", name, "\"");
}

const char* NameOf(DType dtype, const std::string& where) {
  for (const Row& row : kRows) {
    if (dtype == row.dtype) return row.name;
  }
  Fail("[", where, "] expected a numeric tensor, got ", Name(dtype));
}

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t begin, end;  // in the data
};

std::vector<uint64_t> Unsigneds(const Json& array, const char* key,
                                const std::string& where) {
  Check(array.is_array(), "[", where, "] expected a list as ", key);
  std::vector<uint64_t> values;
  for (const Json& item : array) {
    Check(item.is_number_unsigned() && item.get<uint64_t>() <= INT64_MAX, "[",
          where, "] expected whole numbers below 2^63 in ", key);
    values.push_back(item.get<uint64_t>());
  }
  return values;
}

Entry ParseEntry(const std::string& name, const Json& item,
                 const std::string& where) {
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    Check(item.is_object() && item.contains(key), "[", where,
          "] expected an object with ", key);
  }
  Check(item["dtype"].is_string(), "[", where, "] expected a string as dtype");
  Entry entry{.name = name,
              .dtype = ParseName(item["dtype"].get<std::string>(), where)};
  for (uint64_t size : Unsigneds(item["shape"], "shape", where)) {
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  auto offsets = Unsigneds(item["data_offsets"], "data_offsets", where);
  Check(offsets.size() == 2 && offsets[0] <= offsets[1], "[", where,
        "] expected data_offsets [begin, end]");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

Json ParseHeader(const char* text, uint64_t size, const std::string& path) {
  std::set<std::string> names;
  auto refuse_twice = [&](int depth, const std::string& name) {
    if (depth != 1) return;
    Check(names.insert(name).second, "[", path,
          "] expected every tensor once, got \"", name, "\" twice");
  };
  const std::string expected =
      "[" + path + "] expected a JSON object as the safetensors header";
  // Depth 3: the file, a tensor, its shape, a size.
  Json header = ParseShallowJson(text, size, 3, expected, refuse_twice);
  Check(header.is_object(), expected);
  return header;
}

StringMap ParseMetadata(const Json& item, const std::string& path) {
  Check(item.is_object(), "[", path, "] expected an object as ", kReservedName);
  StringMap metadata;
  for (const auto& [key, value] : item.items()) {
    Check(value.is_string(), "[", path, "] expected strings in ",
          kReservedName);
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Checks that the tensors cover the data without overlap or remainder.
void CheckCover(std::vector<Entry>& entries, uint64_t size,
                const std::string& path) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    Check(entry.begin == at, "[", path, "] expected tensor \"", entry.name,
          "\" at byte ", at, " of the data, got ", entry.begin,
          entry.begin < at ? " (overlap)" : " (hole)");
    at = entry.end;
  }
  Check(at == size, "[", path, "] expected ", at, " bytes of data, got ", size,
        at > size ? " (truncated?)" : "");
}

// A tensor that is written, and where its bytes begin in the data.
struct Place {
  const SourceMap::value_type* item;
  uint64_t begin;
};

// Writes all that is before the data. Returns the tensors in the order in which
// the data have them.
std::vector<Place> WriteHeader(OutputFile& file, const SourceMap& tensors,
                               const StringMap& metadata) {
  std::vector<Place> places;
  for (const auto& item : tensors) {
    Check(item.first != kReservedName, "expected no tensor named ",
          kReservedName);
    places.push_back({&item, 0});
  }
  std::ranges::stable_sort(places, std::greater<>(), [](const Place& place) {
    return ByteSize(place.item->second.dtype());
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kReservedName] = metadata;
  uint64_t at = 0;
  for (Place& place : places) {
    const auto& [name, tensor] = *place.item;
    place.begin = at;
    header[name] = {{"dtype", NameOf(tensor.dtype(), name)},
                    {"shape", tensor.shape()},
                    {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    Fail("expected tensor names and metadata in UTF-8: ", error.what());
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t size = text.size();
  file.Write(&size, 8);
  file.Write(text.data(), text.size());
  return places;
}

}  // namespace

TensorMap ReadSafetensors(const std::string& path, StringMap* metadata) {
  const auto file = std::make_shared<const InputFile>(path);
  Check(file->size() >= 8, "[", path, "] expected a safetensors file, got ",
        file->size(), " bytes");
  uint64_t header_size;
  file->Read(reinterpret_cast<char*>(&header_size), 8, 0);
  Check(header_size <= kMaxHeader && header_size <= file->size() - 8, "[", path,
        "] expected a safetensors header within ", file->size(),
        " bytes, got header length ", header_size);
  std::string text(header_size, '\0');
  file->Read(text.data(), header_size, 8);
  Json header = ParseHeader(text.data(), header_size, path);
  std::vector<Entry> entries;
  for (const auto& [name, item] : header.items()) {
    if (name == kReservedName) {
      StringMap found = ParseMetadata(item, path);
      if (metadata) *metadata = std::move(found);
    } else {
      entries.push_back(ParseEntry(name, item, path + ": " + name));
    }
  }
  const uint64_t data = 8 + header_size;
  CheckCover(entries, file->size() - data, path);
  TensorMap tensors;
  for (const Entry& entry : entries) {
    const MappedFile part =
        MapPart(file, data + entry.begin, entry.end - entry.begin);
    tensors[entry.name] =
        ArrayFromBytes(entry.dtype, entry.shape, part.owner, part.data,
                       part.size, path + ": " + entry.name);
  }
  return tensors;
}

void WriteSafetensors(OutputFile& file, const SourceMap& tensors,
                      const StringMap& metadata) {
  for (const Place& place : WriteHeader(file, tensors, metadata)) {
    const Tensor tensor = place.item->second.Pull();
    file.Write(tensor.raw(), tensor.bytes());
  }
}

void WriteSafetensors(const std::string& path, const SourceMap& tensors,
                      const StringMap& metadata) {
  ReplaceFile(path, [&](OutputFile& file) {
    WriteSafetensors(file, tensors, metadata);
  });
}

void WriteSafetensorsByName(const std::string& path, const SourceMap& tensors,
                            const StringMap& metadata) {
  ReplaceFile(path, [&](OutputFile& file) {
    std::vector<Place> places = WriteHeader(file, tensors, metadata);
    const uint64_t data = file.size();
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
    file.Skip(bytes);
    std::ranges::sort(places, {}, [](const Place& place) -> const std::string& {
      return place.item->first;
    });
    for (const Place& place : places) {
      const Tensor tensor = place.item->second.Pull();
      file.WriteAt(data + place.begin, tensor.raw(), tensor.bytes());
    }
  });
}

}  // namespace onnx_fp8
