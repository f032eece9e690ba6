// SPDX-License-Identifier: Apache-2.0
#include "data/ort_checkpoint.h"

#include <cstring>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/mapped_file.h"
#include "ort_checkpoint_generated.h"

namespace onnx_fp8 {
namespace {

constexpr int kVersion = 2;

template <typename T>
using Table = flatbuffers::Vector<flatbuffers::Offset<T>>;

std::string TextOf(const flatbuffers::String* text) {
  return text ? text->str() : "";
}

Tensor ReadTensor(const ort::Tensor& from, const std::string& where) {
  auto dtype = static_cast<DType>(from.data_type());
  Check(ByteSize(dtype) > 0, "[", where,
        "] expected a numeric tensor, got ONNX data type ", from.data_type());
  // Verifying does not check that items of 8 bytes are aligned.
  Shape shape(from.dims() ? from.dims()->size() : 0);
  if (!shape.empty()) {
    std::memcpy(shape.data(), from.dims()->Data(),
                shape.size() * sizeof(int64_t));
  }
  for (int64_t size : shape) {
    Check(size >= 0, "[", where, "] expected axis sizes >= 0, got ", size);
  }
  int64_t count = 0;
  try {
    count = NumElements(shape);
  } catch (const Error& error) {
    Fail("[", where, "] ", error.what());
  }
  size_t bytes = from.raw_data() ? from.raw_data()->size() : 0;
  Check(static_cast<uint64_t>(count) == bytes / ByteSize(dtype) &&
            bytes % ByteSize(dtype) == 0,
        "[", where, "] expected ", count, " elements of ", Name(dtype),
        " for shape ", ToString(shape), ", got ", bytes, " bytes");
  Tensor tensor = Tensor::Allocate(dtype, std::move(shape));
  if (bytes > 0) std::memcpy(tensor.raw(), from.raw_data()->data(), bytes);
  return tensor;
}

NamedTensors ReadTensors(const Table<ort::Tensor>* from,
                         const std::string& path,
                         std::set<std::string>* names) {
  NamedTensors tensors;
  if (!from) return tensors;
  for (const ort::Tensor* tensor : *from) {
    std::string name = TextOf(tensor->name());
    std::string where = Concat(path, ": ", name);
    Check(!name.empty(), "[", path, "] expected every tensor to have a name");
    Check(names->insert(name).second, "[", where,
          "] expected every tensor once, got it twice");
    tensors.emplace_back(name, ReadTensor(*tensor, where));
  }
  return tensors;
}

OrtOptimizerGroup ReadGroup(const ort::OptimizerGroup& from,
                            const std::string& path) {
  OrtOptimizerGroup group{
      TextOf(from.group_name()), from.step(), from.initial_learning_rate(), {}};
  if (!from.optimizer_states()) return group;
  std::set<std::string> parameters;
  for (const auto* state : *from.optimizer_states()) {
    std::string parameter = TextOf(state->param_name());
    Check(parameters.insert(parameter).second, "[", path,
          "] expected the moments of ", parameter, " once, got them twice");
    std::set<std::string> names;
    group.parameters.push_back(
        {parameter, ReadTensors(state->momentums(),
                                Concat(path, ": ", parameter), &names)});
  }
  return group;
}

template <typename From, typename To>
void ReadProperties(const From* from, To* to) {
  if (!from) return;
  for (const auto* property : *from) {
    if constexpr (std::is_same_v<typename To::mapped_type, std::string>) {
      (*to)[TextOf(property->name())] = TextOf(property->value());
    } else {
      (*to)[TextOf(property->name())] = property->value();
    }
  }
}

using Buffer = flatbuffers::FlatBufferBuilder;

flatbuffers::Offset<Table<ort::Tensor>> Tensors(Buffer& b,
                                                const NamedTensors& tensors) {
  std::vector<flatbuffers::Offset<ort::Tensor>> rows;
  for (const auto& [name, tensor] : tensors) {
    auto text = b.CreateString(name);
    auto dims = b.CreateVector(tensor.shape());
    b.ForceVectorAlignment(tensor.bytes(), 1, 8);
    auto data = b.CreateVector(static_cast<const uint8_t*>(tensor.raw()),
                               tensor.bytes());
    rows.push_back(ort::CreateTensor(
        b, text, 0, dims, static_cast<int32_t>(tensor.dtype()), data));
  }
  return b.CreateVector(rows);
}

flatbuffers::Offset<ort::OptimizerGroup> Group(Buffer& b,
                                               const OrtOptimizerGroup& group) {
  std::vector<flatbuffers::Offset<ort::ParameterOptimizerState>> states;
  for (const OrtMoments& state : group.parameters) {
    auto name = b.CreateString(state.parameter);
    auto moments = Tensors(b, state.moments);
    states.push_back(ort::CreateParameterOptimizerState(b, name, moments));
  }
  auto name = b.CreateString(group.name);
  auto rows = b.CreateVector(states);
  return ort::CreateOptimizerGroup(b, name, group.step, group.initial_lr, rows);
}

flatbuffers::Offset<ort::PropertyBag> Properties(
    Buffer& b, const OrtCheckpoint& checkpoint) {
  std::vector<flatbuffers::Offset<ort::IntProperty>> ints;
  std::vector<flatbuffers::Offset<ort::FloatProperty>> floats;
  std::vector<flatbuffers::Offset<ort::StringProperty>> strings;
  for (const auto& [name, value] : checkpoint.ints) {
    ints.push_back(ort::CreateIntProperty(b, b.CreateString(name), value));
  }
  for (const auto& [name, value] : checkpoint.floats) {
    floats.push_back(ort::CreateFloatProperty(b, b.CreateString(name), value));
  }
  for (const auto& [name, value] : checkpoint.strings) {
    auto key = b.CreateString(name);
    strings.push_back(ort::CreateStringProperty(b, key, b.CreateString(value)));
  }
  auto i = b.CreateVector(ints);
  auto f = b.CreateVector(floats);
  auto s = b.CreateVector(strings);
  return ort::CreatePropertyBag(b, i, f, s);
}

size_t BytesOf(const NamedTensors& tensors) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    bytes += tensor.bytes() + name.size() + 128;
  }
  return bytes;
}

}  // namespace

OrtCheckpoint ReadOrtCheckpoint(const std::string& path) {
  MappedFile file = MapFile(path);
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data);
  // A flatbuffer begins with the offset of its first table, 4 bytes, and an
  // identifier, 4 bytes.
  bool marked = file.size >= 8 && ort::CheckpointBufferHasIdentifier(bytes);
  Check(marked, "[", path,
        "] expected a checkpoint of onnxruntime-training, got another file");
  Check(file.size < FLATBUFFERS_MAX_BUFFER_SIZE, "[", path,
        "] expected a checkpoint below 2 GiB, got ", file.size, " bytes");
  flatbuffers::Verifier verifier(bytes, file.size, /*max_depth=*/16,
                                 /*max_tables=*/1 << 24);
  Check(ort::VerifyCheckpointBuffer(verifier), "[", path,
        "] expected a whole checkpoint, got one whose tables point outside the "
        "file (truncated or damaged)");
  const ort::Checkpoint* from = ort::GetCheckpoint(bytes);
  Check(from->version() == kVersion, "[", path,
        "] expected a checkpoint of version ", kVersion, ", got ",
        from->version());
  const ort::ModuleState* module = from->module_state();
  Check(module != nullptr, "[", path, "] expected parameters, got none");
  Check(!module->is_nominal_state() && !module->has_external_data(), "[", path,
        "] expected a checkpoint that holds its tensors, got a nominal one or "
        "one with external data");
  OrtCheckpoint checkpoint;
  std::set<std::string> names;
  checkpoint.trained =
      ReadTensors(module->requires_grad_params(), path, &names);
  checkpoint.frozen = ReadTensors(module->frozen_params(), path, &names);
  if (from->optimizer_groups()) {
    std::set<std::string> groups;
    for (const auto* group : *from->optimizer_groups()) {
      Check(groups.insert(TextOf(group->group_name())).second, "[", path,
            "] expected groups of parameters of different names, got \"",
            TextOf(group->group_name()), "\" twice");
      checkpoint.groups.push_back(ReadGroup(*group, path));
    }
  }
  if (const ort::PropertyBag* bag = from->property_bag()) {
    ReadProperties(bag->ints(), &checkpoint.ints);
    ReadProperties(bag->floats(), &checkpoint.floats);
    ReadProperties(bag->strings(), &checkpoint.strings);
  }
  return checkpoint;
}

void WriteOrtCheckpoint(const OrtCheckpoint& checkpoint,
                        const std::string& path) {
  size_t bytes = BytesOf(checkpoint.trained) + BytesOf(checkpoint.frozen);
  for (const OrtOptimizerGroup& group : checkpoint.groups) {
    for (const OrtMoments& state : group.parameters) {
      bytes += BytesOf(state.moments);
    }
  }
  Check(bytes < FLATBUFFERS_MAX_BUFFER_SIZE, "[", path,
        "] expected less than 2 GiB of parameters and moments, which this "
        "format can hold, got ",
        bytes, " bytes");
  Buffer b(bytes);
  auto trained = Tensors(b, checkpoint.trained);
  auto frozen = Tensors(b, checkpoint.frozen);
  auto module = ort::CreateModuleState(b, trained, frozen);
  std::vector<flatbuffers::Offset<ort::OptimizerGroup>> groups;
  for (const OrtOptimizerGroup& group : checkpoint.groups) {
    groups.push_back(Group(b, group));
  }
  auto optimizers = b.CreateVector(groups);
  auto properties = Properties(b, checkpoint);
  ort::FinishCheckpointBuffer(
      b, ort::CreateCheckpoint(b, kVersion, module, optimizers, properties));
  WriteFileAtomically(
      path, {reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize()});
}

}  // namespace onnx_fp8
