// SPDX-License-Identifier: Apache-2.0
#include "training/step/read_init.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "graph/batch_statistics.h"
#include "graph/export_record.h"
#include "graph/views.h"
#include "training/step/torch_weights.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kNamedWeights = 20;  // in a note or an error

// Whether the numbers of a weight may lie here: in floats, in codes, or packed
// in other integers. Masks and tables of positions are bools and int64s.
bool MayBeWeight(const TensorSource& array) {
  if (IsFloat(array.dtype())) return true;
  const bool table =
      array.dtype() == DType::kInt64 || array.dtype() == DType::kBool;
  return !table && array.shape().size() >= 2;
}

std::string FilesOfMissing(const MissingData& missing) {
  return Joined({missing.files.begin(), missing.files.end()});
}

// A source of the same weight. Errors of Pull: an element is NaN.
TensorSource OfNumbers(const TensorSource& weight, const std::string& path,
                       const std::string& name) {
  const auto pull = [weight, path, name] {
    Tensor read = weight.Pull();
    const bool is_float = read.dtype() == DType::kFloat;
    const Tensor floats = is_float ? read : ConvertTo(read, DType::kFloat);
    const float* x = floats.data<float>();
    for (int64_t i = 0; i < floats.size(); ++i) {
      Check(!std::isnan(x[i]), "[", path, "] expected numbers in ", name,
            ", got NaN at element ", i, " of ", floats.size());
    }
    return read;
  };
  return TensorSource(weight.dtype(), weight.shape(), pull, weight.stored());
}

class InitReader {
 public:
  InitReader(GivenWeights given, TrainingModel* model)
      : path_(std::move(given.path)),
        model_(*model),
        data_(std::move(given.missing)),
        drawn_(std::move(given.drawn)),
        arrays_(std::move(given.weights)) {
    for (const Adapter& adapter : model_.adapters) {
      adapters_.insert({adapter.a, adapter.b});
    }
  }

  void Read() {
    ReadStatistics();
    ParameterNames names = model_.AllNames();
    const std::vector<ParameterInfo> infos = Weights(&names);
    JoinTied(infos);
    ReadParameters(infos, names);
    ReadConstants();
    RequireData();
    CheckRest();
  }

 private:
  void ReadStatistics() {
    std::map<const Value*, std::string> given;
    for (const auto& s : BatchStatistics(*model_.graph, model_.AllNames())) {
      if (auto count = arrays_.find(s.count_key); count != arrays_.end()) {
        ReadCount(s.count_key, count->second);
        arrays_.erase(count);
      }
      auto array = arrays_.find(s.key);
      if (array == arrays_.end()) array = arrays_.find(s.value->name);
      if (array == arrays_.end()) continue;
      Tensor tensor =
          ValueOf(array->second, array->first, *s.value->shape, s.value->dtype)
              .Pull();
      auto [before, first] = given.emplace(s.value, array->first);
      bool same = Identical(tensor, s.value->data);
      Check(first || same, "[", array->second.file,
            "] expected the same numbers for ", before->second, " and ",
            array->first, ", which are one tensor of the model");
      if (!same && s.value->role == Role::kNone) {
        s.value->role = Role::kStatistic;
      }
      s.value->data = tensor;
      taken_.insert(s.value->name);
      arrays_.erase(array);
      any_ = true;
    }
  }

  void ReadCount(const std::string& key, const StoredWeight& stored) {
    const Tensor array = stored.source.Pull();
    bool number = IsInteger(array.dtype()) && array.size() == 1;
    Check(number && IntAt(array, 0) >= 0, "[", stored.file, "] expected ", key,
          " as a number of batches, got ", Name(array.dtype()),
          ToString(array.shape()),
          number ? Concat(" of ", IntAt(array, 0)) : std::string());
    model_.batches[key] = Tensor::Scalar(IntAt(array, 0));
  }

  // Parameters, and copies that became one with a parameter.
  std::vector<ParameterInfo> Weights(ParameterNames* names) const {
    std::vector<ParameterInfo> infos = model_.Parameters();
    for (const TiedCopy& copy : model_.copies) {
      auto named = names->emplace(copy.name, copy.torch).first;
      infos.push_back({copy.name, named->second.fqn, copy.dtype, copy.shape});
    }
    return infos;
  }

  // The model's record may tie several names to one tensor. The model has one
  // of these names; a file may use any of them.
  void JoinTied(const std::vector<ParameterInfo>& infos) {
    const ExportRecord record = ReadExportRecord(*model_.graph);
    std::set<std::string> own;
    for (const ParameterInfo& info : infos) {
      own.insert({info.name, info.fqn});
    }
    for (const ParameterInfo& info : infos) {
      for (const auto& key : NamesOfWeight(record, info.name, info.shape)) {
        auto other = own.contains(key) ? arrays_.end() : arrays_.find(key);
        if (other == arrays_.end()) continue;
        auto first = arrays_.find(info.fqn);
        if (first == arrays_.end()) first = arrays_.find(info.name);
        if (first == arrays_.end()) {
          auto moved = arrays_.extract(other);
          moved.key() = info.fqn;
          arrays_.insert(std::move(moved));
          continue;
        }
        Check(
            Identical(first->second.source.Pull(), other->second.source.Pull()),
            "[", other->second.file, "] expected the same numbers for ",
            first->first, " and ", key, ", which are one tensor of the module");
        arrays_.erase(other);
      }
    }
  }

  // Values for a copy become the first's.
  void ReadParameters(const std::vector<ParameterInfo>& infos,
                      const ParameterNames& names) {
    SourceMap weights = FromTorch(&arrays_, infos, names);
    for (const TiedCopy& copy : model_.copies) {
      auto given = weights.find(copy.name);
      if (given == weights.end()) continue;
      const TensorSource own =
          copy.transposed ? Transposed(given->second) : given->second;
      weights.erase(given);
      auto [first, added] = weights.emplace(copy.first, own);
      Check(added || Identical(first->second.Pull(), own.Pull()), "[", path_,
            "] expected the same numbers for ", copy.first, " and ", copy.name,
            ", which are one tensor (`no_tie` trains them apart)");
    }
    for (const ParameterInfo& info : model_.Parameters()) {
      auto given = weights.extract(info.name);
      if (!given.empty()) {
        taken_.insert(info.name);
        model_.first.emplace(info.name,
                             OfNumbers(given.mapped(), path_, info.fqn));
        any_ = true;
      } else if (!drawn_.contains(info.name) &&
                 !adapters_.contains(info.name)) {
        missing_.push_back(info.fqn);
      }
    }
    for (const TiedCopy& copy : model_.copies) {
      if (taken_.contains(copy.first)) taken_.insert(copy.name);
    }
  }

  // A state_dict has constants too, masks and tables of positions, and other
  // names of a tensor that the file has once.
  void ReadConstants() {
    for (auto it = arrays_.begin(); it != arrays_.end();) {
      const TensorSource& source = it->second.source;
      const Value* held = Held(it->first);
      const bool missing = held && data_.tensors.contains(held->name) &&
                           !taken_.contains(held->name);
      if (!held || missing || held->data.shape() != source.shape()) {
        ++it;
        continue;
      }
      bool same =
          Identical(ConvertTo(source.Pull(), held->dtype), First(*held));
      Check(same || held->name == it->first, "[", it->second.file,
            "] expected the same numbers for ", held->name, " and ", it->first,
            ", which are one tensor of the model");
      if (!same) others_.push_back(it->first);
      it = arrays_.erase(it);
    }
  }

  // The initializer of that name, or the one that an Identity gives that name.
  const Value* Held(const std::string& key) const {
    const Value* value = model_.graph->Find(key);
    if (value) value = BehindCopies(value);
    return value && value->is_initializer() ? value : nullptr;
  }

  // The numbers with which a run begins.
  Tensor First(const Value& held) const {
    auto given = model_.first.find(held.name);
    return given == model_.first.end() ? held.data : given->second.Pull();
  }

  // The names of arrays that nothing has taken.
  std::vector<std::string> Rest() const {
    std::vector<std::string> rest;
    for (const auto& [key, array] : arrays_) rest.push_back(key);
    return rest;
  }

  // All tensors whose data files are missing have got numbers.
  void RequireData() const {
    std::vector<std::string> lacking;
    for (const std::string& name : data_.tensors) {
      if (taken_.contains(name)) continue;
      const Value* value = model_.graph->Find(name);
      const bool weight = value && (value->role == Role::kParameter ||
                                    value->role == Role::kFrozen);
      Check(weight, "[", model_.graph->file, "] ", name,
            " is no parameter of the model, so weights do not replace it, and "
            "its data lie in ",
            FilesOfMissing(data_), ", which does not exist");
      lacking.push_back(name);
    }
    if (lacking.empty()) return;
    const std::vector<std::string> rest = Rest();
    Fail("[", path_, "] expected ", lacking.size(),
         " more weights, whose data files do not exist: ",
         Joined(lacking, kNamedWeights), "; it holds ", rest.size(),
         " tensors that the model lacks", rest.empty() ? "" : ": ",
         Joined(rest, kNamedWeights),
         " (`rename` gives them other names, `init` normal:STD draws missing "
         "weights)");
  }

  void CheckRest() {
    // Whoever draws missing weights knows that some are not there.
    const bool complete = missing_.empty() || !drawn_.empty();
    for (const auto& [key, array] : arrays_) {
      const DType dtype = array.source.dtype();
      Check(any_ && (complete || !MayBeWeight(array.source)), "[", array.file,
            "] holds \"", key,
            "\", which is no parameter of the model; `inspect()` lists "
            "them",
            missing_.empty() ? "" : "; " + missing_[0] + " gets no value",
            HintFor(dtype));
    }
    Note(Rest(), "is not in the model and is not read");
    Note(others_,
         "holds other numbers than the model's constant, which keeps its own");
    Note(missing_, "is not in the file and keeps the model's numbers");
    Note({drawn_.begin(), drawn_.end()}, "is not in the file and is drawn");
  }

  // For a tensor of this type that no parameter takes.
  std::string HintFor(DType dtype) const {
    if (!IsFloat(dtype)) {
      return Concat("; weights of ", Name(dtype),
                    IsFloat8(dtype) ? " without a scale" : "", " are not read");
    }
    return missing_.empty() ? "" : " (`rename` gives tensors other names)";
  }

  // One sentence about the first of some names, and how many more there are.
  void Note(const std::vector<std::string>& names, const char* fact) {
    if (names.empty()) return;
    std::string more = names.size() == 1
                           ? ""
                           : Concat(" (and ", names.size() - 1, " more: ",
                                    Joined({names.begin() + 1, names.end()},
                                           kNamedWeights - 1),
                                    ")");
    model_.notes.push_back(Concat("[", path_, "] ", names[0], more, " ", fact));
  }

  const std::string path_;
  TrainingModel& model_;
  const MissingData data_;
  const std::set<std::string> drawn_;
  std::set<std::string> adapters_;  // parameters that no file of weights has
  StoredWeights arrays_;            // that nothing has taken yet
  std::set<std::string> taken_;  // initializers that have a value of an array
  bool any_ = false;             // whether the model has taken one
  std::vector<std::string> missing_, others_;
};

}  // namespace

void ReadInit(GivenWeights given, TrainingModel* model) {
  if (!given.remark.empty()) model->notes.push_back(given.remark);
  InitReader(std::move(given), model).Read();
}

void RequireState(const MissingData& missing, const Graph& graph) {
  std::set<std::string> kept;
  for (const auto& s : BatchStatistics(graph, {})) kept.insert(s.value->name);
  for (const std::string& name : missing.tensors) {
    const Value* value = graph.Find(name);
    // A copy that became one with another tensor is no initializer.
    const bool constant =
        value && value->is_initializer() && value->role == Role::kNone;
    Check(!constant || kept.contains(name), "[", graph.file, "] ", name,
          " is no parameter of the model, so the checkpoint lacks it, and its "
          "data lie in ",
          FilesOfMissing(missing), ", which does not exist");
  }
}

std::vector<Value*> KeepStatistics(const TensorMap& state, const Graph& graph) {
  std::vector<Value*> kept;
  for (const auto& s : BatchStatistics(graph, {})) {
    if (s.value->role != Role::kNone || !state.contains(s.value->name)) {
      continue;
    }
    s.value->role = Role::kStatistic;
    kept.push_back(s.value);
  }
  return kept;
}

}  // namespace onnx_fp8
