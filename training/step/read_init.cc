// SPDX-License-Identifier: Apache-2.0
#include "training/step/read_init.h"

#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "data/safetensors.h"
#include "graph/batch_statistics.h"
#include "graph/views.h"
#include "training/state/masters.h"
#include "training/step/torch_weights.h"

namespace onnx_fp8 {
namespace {

class InitReader {
 public:
  InitReader(const std::string& path, TrainingModel* model)
      : path_(path), model_(*model), arrays_(ReadSafetensors(path)) {
    Check(!arrays_.empty(), "[", path, "] expected weights, got none");
    JoinCorrections(&arrays_);  // of a checkpoint
  }

  void Read() {
    ReadStatistics();
    ReadParameters();
    ReadConstants();
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
          As(array->second, array->first, *s.value->shape, s.value->dtype);
      auto [before, first] = given.emplace(s.value, array->first);
      bool same = Identical(tensor, s.value->data);
      Check(first || same, "[", path_, "] expected the same numbers for ",
            before->second, " and ", array->first,
            ", which are one tensor of the model");
      if (!same && s.value->role == Role::kNone) {
        s.value->role = Role::kStatistic;
      }
      s.value->data = tensor;
      arrays_.erase(array);
      any_ = true;
    }
  }

  void ReadCount(const std::string& key, const Tensor& array) {
    bool number = IsInteger(array.dtype()) && array.size() == 1;
    Check(number && IntAt(array, 0) >= 0, "[", path_, "] expected ", key,
          " as a number of batches, got ", Name(array.dtype()),
          ToString(array.shape()),
          number ? Concat(" of ", IntAt(array, 0)) : std::string());
    model_.batches[key] = Tensor::Scalar(IntAt(array, 0));
  }

  Tensor As(const Tensor& array, const std::string& key, const Shape& shape,
            DType dtype) const {
    Check(IsFloat(array.dtype()), "[", path_, "] expected ", key,
          " of a float type, got ", Name(array.dtype()));
    Check(array.shape() == shape, "[", path_, "] expected ", key, " of shape ",
          ToString(shape), ", got ", ToString(array.shape()));
    return ConvertTo(array, dtype);
  }

  // Values for a copy become the first's.
  void ReadParameters() {
    std::vector<ParameterInfo> infos = model_.Parameters();
    ParameterNames names = model_.AllNames();
    for (const TiedCopy& copy : model_.copies) {
      auto named = names.emplace(copy.name, copy.torch).first;
      infos.push_back({copy.name, named->second.fqn, copy.dtype, copy.shape});
    }
    SourceMap weights = FromTorch(&arrays_, infos, names, path_);
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
      if (given.empty()) {
        missing_.push_back(info.fqn);
      } else {
        model_.first.insert(std::move(given));
        any_ = true;
      }
    }
  }

  // A state_dict has constants too, masks and tables of positions, and other
  // names of a tensor that the file has once.
  void ReadConstants() {
    for (auto it = arrays_.begin(); it != arrays_.end();) {
      const Value* held = Held(it->first);
      if (!held || held->data.shape() != it->second.shape()) {
        ++it;
        continue;
      }
      bool same = Identical(ConvertTo(it->second, held->dtype), First(*held));
      Check(same || held->name == it->first, "[", path_,
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

  void CheckRest() {
    std::vector<std::string> rest;
    for (const auto& [key, array] : arrays_) {
      Check(any_ && (missing_.empty() || !IsFloat(array.dtype())), "[", path_,
            "] holds \"", key,
            "\", which is no parameter of the model; `inspect()` lists "
            "them",
            missing_.empty() ? "" : "; " + missing_[0] + " gets no value");
      rest.push_back(key);
    }
    Note(rest, "is not in the model and is not read");
    Note(others_,
         "holds other numbers than the model's constant, which keeps its own");
    Note(missing_, "is not in the file and keeps the model's numbers");
  }

  // One sentence about the first of some names, and how many more there are.
  void Note(const std::vector<std::string>& names, const char* fact) {
    if (names.empty()) return;
    std::string more =
        names.size() == 1
            ? ""
            : Concat(" (and ", names.size() - 1,
                     " more: ", Joined({names.begin() + 1, names.end()}), ")");
    model_.notes.push_back(Concat("[", path_, "] ", names[0], more, " ", fact));
  }

  const std::string& path_;
  TrainingModel& model_;
  TensorMap arrays_;  // that nothing has taken yet
  bool any_ = false;  // whether the model has taken one
  std::vector<std::string> missing_, others_;
};

}  // namespace

void ReadInit(const std::string& path, TrainingModel* model) {
  InitReader(path, model).Read();
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
