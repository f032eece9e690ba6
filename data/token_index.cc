// SPDX-License-Identifier: Apache-2.0
#include "data/token_index.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/shallow_json.h"
#include "data/shard_name.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = 100'000'000;
constexpr int kMostDepth = 8;  // others may add entries
constexpr std::string_view kTokenSuffix = ".bin";

Json ReadObject(const std::string& path, const std::string& expected) {
  const std::string text = ReadText(path, kMostBytes);
  Json index = ParseShallowJson(text.data(), text.size(), kMostDepth, expected);
  const bool fits = index.is_object() && index.contains("token_dtype") &&
                    index["token_dtype"].is_string() &&
                    index.contains("shards") && index["shards"].is_array();
  Check(fits, expected);
  return index;
}

void CheckTokens(const std::string& index, const std::string& path,
                 uint64_t tokens, DType dtype) {
  Check(PathExists(path), "[", index, "] names the shard ", path,
        ", which does not exist");
  const uint64_t size = InputFile(path).size();
  const uint64_t width = ByteSize(dtype);
  Check(size % width == 0 && size / width == tokens, "[", path, "] expected ",
        tokens, " tokens of ", Name(dtype), ", as ", index,
        " says, got a file of ", size, " bytes");
}

}  // namespace

std::vector<std::string> ReadTokenIndex(const std::string& path, DType dtype) {
  const std::string expected =
      Concat("[", path,
             "] expected a JSON object with a string token_dtype and an array "
             "shards");
  const Json index = ReadObject(path, expected);
  const std::string type = index["token_dtype"].get<std::string>();
  Check(type == Name(dtype), "[", path, "] holds tokens of ", type,
        ", expected ", Name(dtype), " (`token_dtype`)");
  std::vector<std::string> files;
  std::set<std::string> names;
  for (const Json& shard : index["shards"]) {
    const bool fits = shard.is_object() && shard.contains("file") &&
                      shard["file"].is_string() && shard.contains("tokens") &&
                      shard["tokens"].is_number_unsigned();
    Check(fits, "[", path,
          "] expected shards with a string file and a number tokens, got "
          "another one at ",
          files.size());
    const std::string name = ShardName(shard["file"], path);
    Check(name.ends_with(kTokenSuffix), "[", path, "] expected token files (",
          kTokenSuffix, ") as shards, got \"", name, "\"");
    Check(names.insert(name).second, "[", path,
          "] expected every shard once, got \"", name, "\" twice");
    files.push_back(
        (std::filesystem::path(path).parent_path() / name).string());
    CheckTokens(path, files.back(), shard["tokens"].get<uint64_t>(), dtype);
  }
  Check(!files.empty(), "[", path, "] expected shards, got none");
  return files;
}

}  // namespace onnx_fp8
