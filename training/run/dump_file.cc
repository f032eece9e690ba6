// SPDX-License-Identifier: Apache-2.0
#include "training/run/dump_file.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/check.h"
#include "base/file.h"
#include "base/number_text.h"
#include "base/shallow_json.h"
#include "data/safetensors.h"
#include "onnx_fp8/dump_spec.h"
#include "onnx_fp8/run_folder.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;
using Entries = nlohmann::ordered_json;

constexpr char kFormatKey[] = "onnx_fp8.dump";
constexpr char kFormatOfDump[] = "1";
constexpr char kEnding[] = ".safetensors";

std::string FileName(const DumpFile& dump) {
  const std::string batch =
      dump.batches > 1 ? Concat("_batch_", dump.batch) : std::string();
  return Concat("step_", dump.step, batch, kEnding);
}

Entries EntryOf(const DumpedTensor& tensor) {
  Entries entry = {{"fqn", tensor.fqn},
                   {"gemm", tensor.gemm},
                   {"operand", tensor.operand},
                   {"use", tensor.use}};
  if (!tensor.recipe.empty()) entry["recipe"] = tensor.recipe;
  if (tensor.has_codes()) {
    entry["format"] = Name(tensor.codes.dtype());
    entry["block"] = {tensor.block_rows, tensor.block_columns};
  }
  return entry;
}

int64_t WholeNumber(const StringMap& metadata, const std::string& key,
                    const std::string& path) {
  const auto it = metadata.find(key);
  int64_t number = 0;
  Check(it != metadata.end() && ReadNumber(it->second, &number) && number > 0,
        "[", path, "] expected a whole number from 1 as ", key, ", got ",
        it == metadata.end() ? "none" : "\"" + it->second + "\"");
  return number;
}

std::string TextOf(const StringMap& metadata, const std::string& key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? "" : it->second;
}

// Reads the entries of a file and takes the tensors that they name.
class DumpReader {
 public:
  explicit DumpReader(const std::string& path)
      : path_(path), tensors_(ReadSafetensors(path, &metadata_)) {}

  DumpFile Read() {
    const std::string format = TextOf(metadata_, kFormatKey);
    Check(!format.empty(), "[", path_,
          "] expected a file that `dump` wrote, got other safetensors");
    Check(format == kFormatOfDump, "[", path_, "] expected a dump of format ",
          kFormatOfDump, ", got ", format);
    DumpFile dump;
    dump.step = WholeNumber(metadata_, "step", path_);
    dump.batch = WholeNumber(metadata_, "batch", path_);
    dump.batches = WholeNumber(metadata_, "batches", path_);
    dump.model = TextOf(metadata_, "model");
    dump.recipe = TextOf(metadata_, "recipe");
    dump.provider = TextOf(metadata_, "provider");
    const std::string text = TextOf(metadata_, "tensors");
    const std::string expected =
        "[" + path_ + "] expected a list of objects as tensors";
    // Depth 3: the list, an object, its block.
    const auto entries =
        ParseShallowJson<Entries>(text.data(), text.size(), 3, expected);
    Check(entries.is_array(), expected);
    for (const Entries& entry : entries) {
      Check(entry.is_object(), expected);
      dump.tensors.push_back(ReadEntry(entry));
    }
    return dump;
  }

 private:
  DumpedTensor ReadEntry(const Entries& entry) {
    DumpedTensor tensor;
    tensor.fqn = Word(entry, "fqn");
    tensor.gemm = Word(entry, "gemm");
    tensor.operand = Word(entry, "operand");
    tensor.use = Number(entry, "use", 1);
    if (entry.contains("recipe")) tensor.recipe = Word(entry, "recipe");
    tensor.value = Find(tensor, "value");
    tensor.codes = Find(tensor, "codes");
    tensor.scale = Find(tensor, "scale");
    const std::string where = Concat("[", path_, ": ", tensor.fqn, "] ");
    Check(tensor.value.defined() || tensor.has_codes(), where,
          "expected a tensor ", DumpedName(tensor, "value"), ", got none");
    Check(!tensor.value.defined() || IsFloat(tensor.value.dtype()), where,
          "expected floats, got ", Name(tensor.value.dtype()));
    if (!tensor.has_codes()) return tensor;
    Check(IsFloat8(tensor.codes.dtype()), where,
          "expected codes of 8-bit floats, got ", Name(tensor.codes.dtype()));
    Check(tensor.scale.defined(), where, "expected a tensor ",
          DumpedName(tensor, "scale"), ", got none");
    const auto block = entry.find("block");
    Check(block != entry.end() && block->is_array() && block->size() == 2,
          where, "expected two numbers as block");
    tensor.block_rows = Size((*block)[0], where);
    tensor.block_columns = Size((*block)[1], where);
    return tensor;
  }

  std::string Word(const Entries& entry, const char* key) const {
    const auto it = entry.find(key);
    Check(it != entry.end() && it->is_string(), "[", path_,
          "] expected a text as ", key, " of each tensor");
    return it->get<std::string>();
  }

  int64_t Number(const Entries& entry, const char* key, int64_t least) const {
    const auto it = entry.find(key);
    const bool fits = it != entry.end() && it->is_number_integer() &&
                      it->get<int64_t>() >= least;
    Check(fits, "[", path_, "] expected a whole number from ", least, " as ",
          key, " of each tensor");
    return it->get<int64_t>();
  }

  static int64_t Size(const Entries& item, const std::string& where) {
    const bool fits = item.is_number_integer() && item.get<int64_t>() >= 0;
    Check(fits, where, "expected whole numbers from 0 as block");
    return item.get<int64_t>();
  }

  Tensor Find(const DumpedTensor& tensor, const char* part) const {
    const auto it = tensors_.find(DumpedName(tensor, part));
    return it == tensors_.end() ? Tensor() : it->second;
  }

  const std::string path_;
  StringMap metadata_;
  const TensorMap tensors_;
};

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool fits = name.ends_with(kEnding) && !IsTemporaryName(name);
    if (fits) files.push_back(it->path().string());
  }
  Check(!error, "[", folder, "] can't be read: ", error.message());
  return files;
}

// Errors: a step has other micro-batches than 1 to its number of them.
void CheckBatches(const std::vector<DumpFile>& dumps,
                  const std::string& folder) {
  for (size_t i = 0; i < dumps.size(); ++i) {
    const bool first = i == 0 || dumps[i].step != dumps[i - 1].step;
    const int64_t expected = first ? 1 : dumps[i - 1].batch + 1;
    const bool last =
        i + 1 == dumps.size() || dumps[i].step != dumps[i + 1].step;
    const bool whole = !last || dumps[i].batch == dumps[i].batches;
    Check(dumps[i].batch == expected && whole, "[", folder,
          "] expected micro-batches 1 to ", dumps[i].batches, " of step ",
          dumps[i].step, ", got others: one is missing, or there twice");
  }
}

}  // namespace

std::string MarkOfModel(const std::vector<ParameterInfo>& parameters) {
  std::string text;
  for (const ParameterInfo& parameter : parameters) {
    if (parameter.role == "constant") continue;
    text += Concat(parameter.fqn, " ", ToString(parameter.shape), "\n");
  }
  return Hex(Crc32(text.data(), text.size()));
}

std::string DumpedName(const DumpedTensor& tensor, const std::string& part) {
  const std::string use =
      tensor.use > 1 ? Concat(".", tensor.use) : std::string();
  return Concat(tensor.fqn, "/", tensor.gemm, use, "/", tensor.operand, "/",
                part);
}

void WriteDump(const std::string& folder, const DumpFile& dump) {
  SourceMap tensors;
  Entries entries = Entries::array();
  for (const DumpedTensor& tensor : dump.tensors) {
    const auto add = [&](const char* part, const Tensor& data) {
      if (data.defined()) tensors.emplace(DumpedName(tensor, part), data);
    };
    add("value", tensor.value);
    add("codes", tensor.codes);
    add("scale", tensor.scale);
    if (tensor.has_codes()) {
      // Made when it is written: only one is in memory at a time.
      tensors.emplace(DumpedName(tensor, "decoded"),
                      TensorSource(DType::kFloat, tensor.codes.shape(),
                                   [&tensor] { return Decoded(tensor); }));
    }
    entries.push_back(EntryOf(tensor));
  }
  std::string text;
  try {
    text = entries.dump();
  } catch (const Entries::exception& error) {
    Fail("[", folder, "] expected names of layers in UTF-8: ", error.what());
  }
  MakeDirectories(folder);
  WriteSafetensors(folder + "/" + FileName(dump), tensors,
                   {{kFormatKey, kFormatOfDump},
                    {"step", std::to_string(dump.step)},
                    {"batch", std::to_string(dump.batch)},
                    {"batches", std::to_string(dump.batches)},
                    {"model", dump.model},
                    {"recipe", dump.recipe},
                    {"provider", dump.provider},
                    {"tensors", text}});
}

std::vector<DumpFile> ReadDumps(const std::string& path) {
  std::vector<DumpFile> dumps;
  if (!IsFolder(path)) {
    dumps.push_back(DumpReader(path).Read());
    return dumps;
  }
  const std::string of_run = RunFolder(path).dumps();
  const std::string folder = IsFolder(of_run) ? of_run : path;
  for (const std::string& file : FilesIn(folder)) {
    dumps.push_back(DumpReader(file).Read());
  }
  Check(!dumps.empty(), "[", path,
        "] expected files that `dump` wrote, got none");
  std::ranges::sort(dumps, {}, [](const DumpFile& dump) {
    return std::pair(dump.step, dump.batch);
  });
  CheckBatches(dumps, folder);
  return dumps;
}

}  // namespace onnx_fp8
