// SPDX-License-Identifier: Apache-2.0
#include "data/scaled_weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/mapped_file.h"
#include "base/parallel.h"
#include "base/shallow_json.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

using ConfigJson = nlohmann::json;

constexpr int64_t kCodesAtOnce = 16384;
constexpr uint64_t kMaxConfig = 16'000'000;
constexpr int kConfigDepth = 64;
constexpr char kWeightEnd[] = ".weight";

// The part of a matrix that has one scale.
struct ScaleBlock {
  int64_t rows, columns;
};

// A tensor as a matrix: the first axis, and all others.
struct Sides {
  int64_t rows, columns;
};

Sides SidesOf(const Tensor& x) {
  const int64_t rows = x.rank() == 0 ? 1 : x.dim(0);
  return {rows, rows == 0 ? 0 : x.size() / rows};
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// [rows, columns] of a config.
std::optional<ScaleBlock> BlockIn(const ConfigJson& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_array() || at->size() != 2) return {};
  for (const ConfigJson& side : *at) {
    if (!side.is_number_unsigned() || side.get<uint64_t>() == 0 ||
        side.get<uint64_t>() > INT32_MAX) {
      return {};
    }
  }
  return ScaleBlock{(*at)[0].get<int64_t>(), (*at)[1].get<int64_t>()};
}

// The blocks that the `quantization_config` in a config.json gives.
std::vector<ScaleBlock> BlocksOf(const ConfigJson& config) {
  std::vector<ScaleBlock> blocks;
  const auto add = [&](std::optional<ScaleBlock> block) {
    if (block) blocks.push_back(*block);
  };
  if (!config.is_object()) return blocks;
  const auto own = config.find("quantization_config");
  if (own == config.end() || !own->is_object()) return blocks;
  add(BlockIn(*own, "weight_block_size"));
  const auto groups = own->find("config_groups");
  if (groups == own->end() || !groups->is_object()) return blocks;
  for (const ConfigJson& group : *groups) {
    if (!group.is_object() || !group.contains("weights")) continue;
    const ConfigJson& weights = group["weights"];
    if (weights.is_object()) add(BlockIn(weights, "block_structure"));
  }
  return blocks;
}

std::vector<ScaleBlock> ConfiguredBlocks(const std::string& folder) {
  const std::string path =
      (std::filesystem::path(folder) / "config.json").string();
  if (!PathExists(path)) return {};
  const std::string text = ReadText(path, kMaxConfig);
  const std::string expected =
      Concat("[", path, "] expected the configuration of a model as JSON");
  const ConfigJson config =
      ParseShallowJson(text.data(), text.size(), kConfigDepth, expected);
  Check(!config.is_discarded(), expected);
  return BlocksOf(config);
}

bool IsPowerOfTwoScale(DType dtype) {
  return dtype == DType::kE8M0 || dtype == DType::kUInt8;
}

// The rows and columns of a grid of scales: [a, b], or [a, 1, b, 1].
std::optional<Sides> GridOf(const Shape& shape) {
  if (shape.size() == 2) return Sides{shape[0], shape[1]};
  const bool four = shape.size() == 4 && shape[1] == 1 && shape[3] == 1;
  if (four) return Sides{shape[0], shape[2]};
  return std::nullopt;
}

// The block of `codes` that each element of the scale stands for; nothing: the
// shapes do not fit.
std::optional<ScaleBlock> BlockFor(const Tensor& codes, const Tensor& scale,
                                   std::vector<ScaleBlock> blocks) {
  const Sides sides = SidesOf(codes);
  if (scale.size() == 1) {
    return ScaleBlock{std::max<int64_t>(1, sides.rows),
                      std::max<int64_t>(1, sides.columns)};
  }
  const bool by_row = scale.rank() > 0 && scale.dim(0) == sides.rows;
  if (by_row && scale.size() == sides.rows) {
    return ScaleBlock{1, std::max<int64_t>(1, sides.columns)};
  }
  const std::optional<Sides> grid = GridOf(scale.shape());
  if (codes.rank() != 2 || !grid) return std::nullopt;
  blocks.push_back({128, 128});
  if (IsPowerOfTwoScale(scale.dtype())) blocks.push_back({1, 32});
  for (const ScaleBlock& block : blocks) {
    if (grid->rows == CeilDiv(sides.rows, block.rows) &&
        grid->columns == CeilDiv(sides.columns, block.columns)) {
      return block;
    }
  }
  return std::nullopt;
}

Tensor FloatsOf(const Tensor& stored) {
  Tensor scale = Tensor::Allocate(stored.dtype(), stored.shape());
  CopyMapped(stored.raw(), stored.bytes(), scale.raw());
  if (!IsPowerOfTwoScale(scale.dtype())) {
    return ConvertTo(scale, DType::kFloat);
  }
  Tensor floats = Tensor::Allocate(DType::kFloat, scale.shape());
  const auto* from = static_cast<const uint8_t*>(scale.raw());
  for (int64_t i = 0; i < scale.size(); ++i) {
    floats.data<float>()[i] = Decode(std::bit_cast<E8M0>(from[i]));
  }
  return floats;
}

// The number of each code.
std::array<float, 256> NumbersOf(DType format) {
  std::array<float, 256> numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto bits = static_cast<uint8_t>(i);
    numbers[i] = format == DType::kE4M3 ? Decode(std::bit_cast<E4M3>(bits))
                                        : Decode(std::bit_cast<E5M2>(bits));
  }
  return numbers;
}

// Errors: a scale is negative or not finite. `where`: how the message begins,
// with the names of the file and of the scale.
void CheckScales(const Tensor& scale, const std::string& where) {
  for (int64_t i = 0; i < scale.size(); ++i) {
    const float by = scale.data<float>()[i];
    Check(std::isfinite(by) && by >= 0, where,
          " of finite numbers above 0, got ", by, " at element ", i);
  }
}

// Errors: a code of NaN; a scale of 0 for another code than 0.
Tensor DecodedCodes(const Tensor& codes, const Tensor& scale,
                    const ScaleBlock& block, const std::string& where) {
  CheckScales(scale, where);
  Tensor weight = Tensor::Allocate(DType::kFloat, codes.shape());
  const std::array<float, 256> numbers = NumbersOf(codes.dtype());
  const int64_t columns = SidesOf(codes).columns;
  const auto* from = static_cast<const uint8_t*>(codes.raw());
  const float* scales = scale.data<float>();
  const int64_t in_row = CeilDiv(columns, block.columns);  // blocks
  float* to = weight.data<float>();
  constexpr int64_t kNone = -1;
  std::atomic<int64_t> nan = kNone, lost = kNone;  // one of these elements
  ParallelFor(codes.size(), kCodesAtOnce, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> piece(static_cast<size_t>(kCodesAtOnce));
    for (int64_t at = begin; at < end; at += kCodesAtOnce) {
      const int64_t n = std::min(kCodesAtOnce, end - at);
      CopyMapped(from + at, static_cast<size_t>(n), piece.data());
      for (int64_t i = 0; i < n;) {  // the part of a row in one block
        const int64_t row = (at + i) / columns, column = (at + i) % columns;
        const int64_t place = column / block.columns;
        const float by = scales[row / block.rows * in_row + place];
        const int64_t stop = std::min(
            n, i + std::min(columns, (place + 1) * block.columns) - column);
        for (; i < stop; ++i) {
          const float number = numbers[piece[static_cast<size_t>(i)]];
          to[at + i] = number * by;
          if (std::isnan(number)) nan = at + i;
          if (by == 0 && number != 0) lost = at + i;
        }
      }
    }
  });
  Check(nan == kNone, where, " beside codes that are numbers, got NaN as code ",
        nan.load());
  Check(lost == kNone, where, " above 0, got 0 for code ", lost.load(),
        ", which is not 0");
  return weight;
}

// Names that the scale of a weight may have.
std::vector<std::string> ScaleNames(const std::string& weight) {
  std::vector<std::string> names = {weight + "_scale_inv", weight + "_scale"};
  if (weight.ends_with(kWeightEnd)) {
    const std::string module =
        weight.substr(0, weight.size() - (sizeof(kWeightEnd) - 1));
    names.push_back(module + ".scale");
    names.push_back(module + ".qscale_weight");
  }
  return names;
}

// The name of the tensor with the weight's scale; "" if there is none. Errors:
// two tensors may be it.
std::string ScaleOf(const std::string& weight, const WeightFiles& files) {
  std::string found;
  for (const std::string& name : ScaleNames(weight)) {
    if (!files.tensors.contains(name)) continue;
    Check(found.empty(), "[", files.files.at(weight),
          "] expected one scale of ", weight, ", got ", found, " and ", name);
    found = name;
  }
  return found;
}

TensorSource Scaled(const std::string& name, const std::string& scale_name,
                    const WeightFiles& files,
                    const std::vector<ScaleBlock>& blocks) {
  const Tensor& codes = files.tensors.at(name);
  const Tensor& scale = files.tensors.at(scale_name);
  const std::string& file = files.files.at(scale_name);
  Check(IsFloat(scale.dtype()) || IsPowerOfTwoScale(scale.dtype()), "[", file,
        "] expected ", scale_name, " of a float type, got ",
        Name(scale.dtype()));
  const std::optional<ScaleBlock> block = BlockFor(codes, scale, blocks);
  Check(block.has_value(), "[", file, "] expected ", scale_name,
        " for the tensor, its rows or its blocks of 128 x 128 (config.json "
        "may name others), where ",
        name, " has the shape ", ToString(codes.shape()), ", got ",
        ToString(scale.shape()));
  const std::string where = Concat("[", file, "] expected ", scale_name);
  return TensorSource(
      DType::kFloat, codes.shape(), [codes, scale, block = *block, where] {
        return DecodedCodes(codes, FloatsOf(scale), block, where);
      });
}

}  // namespace

StoredWeights DecodeScaled(WeightFiles files) {
  std::map<std::string, std::string> scales;  // by weight
  for (const auto& [name, tensor] : files.tensors) {
    if (!IsFloat8(tensor.dtype())) continue;
    const std::string scale = ScaleOf(name, files);
    if (!scale.empty()) scales[name] = scale;
  }
  StoredWeights weights;
  if (!scales.empty()) {
    const std::vector<ScaleBlock> blocks = ConfiguredBlocks(files.folder);
    for (const auto& [name, scale] : scales) {
      weights.emplace(name, StoredWeight{files.files.at(name), name,
                                         Scaled(name, scale, files, blocks)});
    }
    for (const auto& [name, scale] : scales) files.tensors.erase(scale);
  }
  for (const auto& [name, tensor] : files.tensors) {
    weights.emplace(
        name, StoredWeight{files.files.at(name), name, SourceOfMapped(tensor)});
  }
  return weights;
}

}  // namespace onnx_fp8
