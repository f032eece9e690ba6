// SPDX-License-Identifier: Apache-2.0
#include "training/step/adapters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/joined.h"
#include "base/parallel.h"
#include "data/adapter_folder.h"
#include "training/step/draw_weights.h"
#include "training/step/torch_weights.h"

namespace onnx_fp8 {
namespace {

std::string SettingsOf(const LoraSpec& spec) {
  return Concat("r=", spec.rank, " and alpha=", spec.alpha,
                spec.rslora ? " with rslora" : "");
}

// w + scaling · b a. The matrix w is (out, in), or (in, out).
Tensor Merged(const Tensor& w, const Tensor& a, const Tensor& b, double scaling,
              bool out_first) {
  Tensor sum = ConvertTo(w, DType::kFloat);
  const Tensor left = ConvertTo(b, DType::kFloat);
  const Tensor right = ConvertTo(a, DType::kFloat);
  const int64_t rank = a.dim(0), in = a.dim(1), out = b.dim(0);
  const auto factor = static_cast<float>(scaling);
  float* to = sum.data<float>();
  ParallelFor(out, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(in));
    for (int64_t o = begin; o < end; ++o) {
      std::ranges::fill(row, 0.0f);
      for (int64_t r = 0; r < rank; ++r) {
        const float x = left.data<float>()[o * rank + r];
        const float* line = right.data<float>() + r * in;
        for (int64_t i = 0; i < in; ++i) {
          row[static_cast<size_t>(i)] += x * line[i];
        }
      }
      for (int64_t i = 0; i < in; ++i) {
        const int64_t at = out_first ? o * in + i : i * out + o;
        to[at] += factor * row[static_cast<size_t>(i)];
      }
    }
  });
  return w.dtype() == DType::kFloat ? sum : ConvertTo(sum, w.dtype());
}

// Gives parameters the tensors of the folder.
class AdapterReader {
 public:
  explicit AdapterReader(TrainingModel* model)
      : model_(*model), folder_(ReadAdapterFolder(model->lora->folder)) {}

  void Read() {
    CheckSettings();
    for (const Adapter& adapter : model_.adapters) {
      Take(adapter.a);
      Take(adapter.b);
    }
    const std::vector<std::string> rest = Names(folder_.adapters);
    Check(lacking_.empty() && rest.empty(), "[", folder_.file,
          "] expected the adapters that `lora` adds to the model; ",
          lacking_.empty() ? "" : "the file lacks " + Joined(lacking_),
          lacking_.empty() || rest.empty() ? "" : "; ",
          rest.empty() ? "" : "the model lacks " + Joined(rest));
    ReadParameters();
  }

 private:
  void CheckSettings() const {
    const LoraSpec &held = folder_.spec, &wanted = *model_.lora;
    const bool same = held.rank == wanted.rank && held.alpha == wanted.alpha &&
                      held.rslora == wanted.rslora;
    Check(same, "[", wanted.folder, "] expected an adapter of ",
          SettingsOf(wanted), ", as `lora` says, got ", SettingsOf(held));
  }

  static std::vector<std::string> Names(const SourceMap& sources) {
    std::vector<std::string> names;
    for (const auto& [name, source] : sources) names.push_back(name);
    return names;
  }

  void Take(const std::string& name) {
    auto given = folder_.adapters.extract(name);
    if (given.empty()) {
      lacking_.push_back(name);
      return;
    }
    const Value& value = *model_.graph->Find(name);
    const StoredWeight stored = {folder_.file, name, given.mapped()};
    model_.first.insert_or_assign(
        name, ValueOf(stored, name, *value.shape, value.dtype));
  }

  // Parameters that were trained whole, by their names in the module.
  void ReadParameters() {
    StoredWeights stored;
    for (const auto& [name, source] : folder_.parameters) {
      stored.insert({name, {folder_.file, name, source}});
    }
    SourceMap weights =
        FromTorch(&stored, model_.Parameters(), model_.AllNames());
    for (const auto& [name, weight] : stored) {
      Fail("[", folder_.file, "] holds ", name,
           ", which is no parameter of the model; `inspect()` lists them");
    }
    std::vector<std::string> frozen;
    for (auto& [name, source] : weights) {
      const bool trained = model_.graph->Find(name)->role == Role::kParameter;
      if (!trained) frozen.push_back(name);
      model_.first.insert_or_assign(name, source);
    }
    if (frozen.empty()) return;
    model_.notes.push_back(Concat("[", folder_.file, "] holds ", Joined(frozen),
                                  ", trained before; this run keeps them as "
                                  "they are (`train` trains them on)"));
  }

  TrainingModel& model_;
  AdapterFolder folder_;  // without the adapters that are read
  std::vector<std::string> lacking_;
};

// torch's kaiming_uniform_ with a = sqrt(5), as of torch.nn.Linear: the bound
// is 1/sqrt(columns).
Tensor DrawLikeLinear(const Value& value, uint64_t seed) {
  const auto columns = static_cast<float>(value.dim(1));
  return DrawUniform(value, seed, 1.0f / std::sqrt(columns));
}

Tensor FirstOfA(const Value& a, const LoraSpec& spec, uint64_t seed) {
  if (spec.init == LoraInit::kGaussian) {
    return DrawNormal(a, seed, 1.0f / static_cast<float>(spec.rank));
  }
  return DrawLikeLinear(a, seed);
}

}  // namespace

LoraSpec ResolveLora(const std::string& text) {
  LoraSpec spec = ParseLora(text);
  return spec.targets.empty() ? ReadAdapterFolder(spec.folder).spec : spec;
}

void DrawAdapters(const std::vector<Adapter>& adapters, const LoraSpec& spec,
                  uint64_t seed, Graph* graph) {
  for (const Adapter& adapter : adapters) {
    Value& a = *graph->Find(adapter.a);
    a.data = FirstOfA(a, spec, seed);
    if (spec.init != LoraInit::kFalse) continue;
    Value& b = *graph->Find(adapter.b);
    b.data = DrawLikeLinear(b, seed);
  }
}

std::string LoraNote(const std::vector<Adapter>& adapters, const LoraSpec& spec,
                     const Graph& graph) {
  int64_t trained = 0, all = 0;
  for (const Value* value : graph.Initializers()) {
    const bool moves = value->role == Role::kParameter;
    if (!moves && value->role != Role::kFrozen) continue;
    all += NumElements(*value->shape);
    if (moves) trained += NumElements(*value->shape);
  }
  char share[32];
  std::snprintf(share, sizeof share, "%.3g",
                100 * static_cast<double>(trained) / static_cast<double>(all));
  return Concat(
      "`lora`: ", adapters.size(),
      adapters.size() == 1 ? " layer has an adapter" : " layers have adapters",
      " of r=", spec.rank, ", scaling ", spec.scaling(),
      spec.dropout > 0 ? Concat(", dropout ", spec.dropout) : "",
      spec.folder.empty() ? "" : ", from " + spec.folder, "; the run trains ",
      trained, " of ", all, " numbers (", share,
      " %). Adapters compute in high precision, unless `recipe_for` "
      "names them");
}

GemmFilter WithAdapters(GemmFilter filter,
                        const std::vector<Adapter>& adapters) {
  for (const Adapter& adapter : adapters) {
    for (const char* part : {".lora_A", ".lora_B"}) {
      filter.recipes.emplace_back(adapter.module + part, Recipe());
    }
  }
  return filter;
}

void ReadAdapters(TrainingModel* model) { AdapterReader(model).Read(); }

SourceMap MergeAdapters(const TrainingModel& model, SourceMap weights) {
  for (const Adapter& adapter : model.adapters) {
    const auto a = weights.extract(adapter.a), b = weights.extract(adapter.b);
    const auto held = weights.find(adapter.weight);
    if (a.empty() || b.empty() || held == weights.end()) continue;
    const TensorSource w = held->second;
    held->second = TensorSource(
        w.dtype(), w.shape(),
        [w, a = a.mapped(), b = b.mapped(), scaling = model.lora->scaling(),
         out_first = adapter.out_first] {
          return Merged(w.Pull(), a.Pull(), b.Pull(), scaling, out_first);
        });
  }
  return weights;
}

void ExportAdapters(const TrainingModel& model, const SourceMap& weights,
                    const std::string& folder) {
  Check(model.lora.has_value(), "[", model.graph->file,
        "] expected a run with `lora` for a folder of adapters, got one that "
        "trains the model's own parameters");
  AdapterLayers layers;
  SourceMap tensors;
  std::set<std::string> parts;
  for (const Adapter& adapter : model.adapters) {
    layers.modules.push_back(adapter.module);
    layers.fan_in_fan_out = adapter.fan_in_fan_out;
    for (const std::string& part : {adapter.a, adapter.b}) {
      tensors.insert_or_assign(part, weights.at(part));
      parts.insert(part);
    }
  }
  std::set<std::string> saved;
  for (const ParameterInfo& info : model.Parameters()) {
    if (!info.trained || parts.contains(info.name)) continue;
    const bool transposed = model.names.at(info.name).transposed;
    const TensorSource& weight = weights.at(info.name);
    tensors.insert_or_assign(info.fqn,
                             transposed ? Transposed(weight) : weight);
    saved.insert(info.fqn.substr(0, info.fqn.rfind('.')));
  }
  layers.saved.assign(saved.begin(), saved.end());
  WriteAdapterFolder(folder, *model.lora, layers, tensors);
}

}  // namespace onnx_fp8
