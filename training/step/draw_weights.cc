// SPDX-License-Identifier: Apache-2.0
#include "training/step/draw_weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/joined.h"
#include "base/parallel.h"
#include "base/random.h"
#include "graph/export_record.h"
#include "graph/op_facts.h"
#include "graph/views.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kGrain = 1 << 16;

enum class First { kOnes, kZeros, kNormal };

struct Reader {
  const Node* node;
  size_t slot;
};

// Nodes that read the value, as it is or through views and casts.
std::vector<Reader> ReadersOf(const Value& value) {
  std::vector<Reader> readers;
  std::vector<const Value*> open = {&value};
  std::unordered_set<const Value*> seen(open.begin(), open.end());
  while (!open.empty()) {
    const Value* read = open.back();
    open.pop_back();
    for (const Node* node : read->uses) {
      if (IsViewOp(*node) || FactsOf(*node).form == OpForm::kExpand) {
        for (const Value* out : node->outputs()) {
          if (out && seen.insert(out).second) open.push_back(out);
        }
        continue;
      }
      for (size_t slot = 0; slot < node->inputs().size(); ++slot) {
        if (node->in(slot) == read) readers.push_back({node, slot});
      }
    }
  }
  return readers;
}

bool IsVector(const Shape& shape) {
  return std::ranges::count_if(shape, [](int64_t n) { return n != 1; }) <= 1;
}

bool IsVariance(const Node& node, size_t slot) {
  const size_t mean = FactsOf(node).statistics;
  return mean > 0 && slot == mean + 1;
}

First FirstOf(const Value& value) {
  const std::vector<Reader> readers = ReadersOf(value);
  for (const auto& [node, slot] : readers) {
    const OpFacts& facts = FactsOf(*node);
    const bool scales =
        facts.kind == OpKind::kNorm && facts.constants == ConstantUse::kScale;
    if (!scales || slot == 0) continue;
    return slot == 1 || IsVariance(*node, slot) ? First::kOnes : First::kZeros;
  }
  for (const auto& [node, slot] : readers) {
    if (HasSlot(FactsOf(*node).weights, slot)) return First::kNormal;
  }
  if (!IsVector(*value.shape)) return First::kNormal;
  auto multiplies = [](const Reader& reader) {
    return reader.node->Is("Mul") || reader.node->Is("Div") ||
           reader.node->Is("Pow");
  };
  return std::ranges::any_of(readers, multiplies) ? First::kOnes
                                                  : First::kZeros;
}

bool IsStatistic(const Value& value) {
  return std::ranges::any_of(ReadersOf(value), [](const Reader& reader) {
    const size_t mean = FactsOf(*reader.node).statistics;
    return mean > 0 && reader.slot >= mean;
  });
}

// Box and Muller, 1958.
float Normal(uint64_t seed, uint64_t i) {
  auto uniform = [&](uint64_t counter) {
    return static_cast<double>(RandomBits(seed, counter) >> 11) * 0x1p-53;
  };
  double radius = std::sqrt(-2 * std::log1p(-uniform(2 * i)));
  double angle = 2 * std::numbers::pi * uniform(2 * i + 1);
  return static_cast<float>(radius * std::cos(angle));
}

template <typename Number>
Tensor Filled(const Value& value, const Number& number) {
  Tensor x = Tensor::Allocate(DType::kFloat, *value.shape);
  float* to = x.data<float>();
  ParallelFor(x.size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = number(i);
  });
  return ConvertTo(x, value.dtype);
}

float Deviation(const std::string& init) {
  const std::string text = init.substr(sizeof(kDrawnInit) - 1);
  float std = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), std);
  if (error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(std) || std <= 0) {
    throw OptionError(
        Concat("`init`: expected normal:STD with a standard deviation above "
               "0, normal:0.02 for instance, or a file of weights, got ",
               init));
  }
  return std;
}

std::string FilesOf(const MissingData& missing) {
  return Joined({missing.files.begin(), missing.files.end()});
}

// The float initializer of that name.
Value& Drawable(const std::string& name, const MissingData& missing,
                const ExportRecord& record, Graph* graph) {
  const std::string where = Concat("[", graph->file, "] ", name);
  Value* value = graph->Find(name);
  Check(value && value->is_initializer() && IsFloat(value->dtype), where,
        " is no float initializer, so it can't be drawn, and its data lie in ",
        FilesOf(missing), ", which does not exist");
  const TensorRecord* entry = record.Find(name, *value->shape);
  const bool fixed = entry && entry->kind != TensorKind::kParameter;
  Check(!fixed || IsStatistic(*value), where,
        " is a buffer or constant of the module, whose numbers can't be drawn, "
        "and its data lie in ",
        FilesOf(missing), ", which does not exist");
  return *value;
}

}  // namespace

bool IsDrawn(std::string_view init) { return init.starts_with(kDrawnInit); }

void CheckDrawn(const std::string& init) { Deviation(init); }

Tensor DrawNormal(const Value& value, uint64_t seed, float deviation) {
  const uint64_t own = RandomBits(seed, Hash(value.name));
  return Filled(value, [=](int64_t i) {
    return deviation * Normal(own, static_cast<uint64_t>(i));
  });
}

Tensor DrawUniform(const Value& value, uint64_t seed, float bound) {
  const uint64_t own = RandomBits(seed, Hash(value.name));
  return Filled(value, [=](int64_t i) {
    return bound * (2 * RandomUniform(own, static_cast<uint64_t>(i)) - 1);
  });
}

std::string DrawWeights(const std::string& init, const MissingData& missing,
                        uint64_t seed, Graph* graph) {
  const float std = Deviation(init);
  Check(!missing.tensors.empty(), "[", graph->file, "] `init` ", init,
        " draws tensors whose data files are missing, but the model has all "
        "its data");
  const ExportRecord record = ReadExportRecord(*graph);
  int64_t drawn = 0, numbers = 0, ones = 0, zeros = 0;
  for (const std::string& name : missing.tensors) {
    Value& value = Drawable(name, missing, record, graph);
    const First first = FirstOf(value);
    if (first == First::kNormal) {
      value.data = DrawNormal(value, seed, std);
      ++drawn;
      numbers += value.data.size();
    } else {
      const float number = first == First::kOnes ? 1.0f : 0.0f;
      value.data = Filled(value, [=](int64_t) { return number; });
      ++(first == First::kOnes ? ones : zeros);
    }
  }
  return Concat(FilesOf(missing), " does not exist: ", drawn, " tensors, ",
                numbers,
                " numbers, are drawn from a normal distribution of deviation ",
                std, " (seed ", seed, "), ", ones, " scales are ones, ", zeros,
                " biases are zeros");
}

}  // namespace onnx_fp8
