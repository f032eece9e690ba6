// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/ort_graph.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "graph/onnx/onnx_io.h"
#include "providers/ort/kernel_context.h"

namespace onnx_fp8 {
namespace {

// Larger constants do not decide what a node means: they are not copied into
// the serialized model.
constexpr size_t kMostInModel = 1024;

using Text = OrtStatus* (*)(const OrtNode*, const char**);

std::string TextOf(Text get, const OrtNode* node) {
  const char* text = nullptr;
  Must(get(node, &text));
  return text ? text : "";
}

template <typename T>
T NumberOf(const OrtOpAttr* attribute, OrtOpAttrType type) {
  T number;
  size_t bytes = 0;
  Must(Ort().ReadOpAttr(attribute, type, &number, sizeof(T), &bytes));
  return number;
}

template <typename T, typename Field>
void AddNumbers(const std::string& bytes, Field* field) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T number;
    std::memcpy(&number, bytes.data() + at, sizeof(T));
    field->Add(number);
  }
}

void ToProto(const Tensor& tensor, const std::string& name,
             onnx::TensorProto* proto) {
  proto->set_name(name);
  proto->set_data_type(static_cast<int32_t>(tensor.dtype()));
  for (int64_t size : tensor.shape()) proto->add_dims(size);
  proto->set_raw_data(tensor.raw(), tensor.bytes());
}

void AddAttribute(const OrtOpAttr* attribute, const std::string& where,
                  onnx::NodeProto* node) {
  using P = onnx::AttributeProto;
  const char* name = nullptr;
  OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
  Must(Ort().OpAttr_GetName(attribute, &name));
  Must(Ort().OpAttr_GetType(attribute, &type));
  auto* proto = node->add_attribute();
  proto->set_name(name);
  switch (type) {
    case ORT_OP_ATTR_INT:
      proto->set_type(P::INT);
      return proto->set_i(NumberOf<int64_t>(attribute, type));
    case ORT_OP_ATTR_FLOAT:
      proto->set_type(P::FLOAT);
      return proto->set_f(NumberOf<float>(attribute, type));
    case ORT_OP_ATTR_STRING:
      proto->set_type(P::STRING);
      return proto->set_s(AttributeBytes(attribute, type));
    case ORT_OP_ATTR_INTS:
      proto->set_type(P::INTS);
      return AddNumbers<int64_t>(AttributeBytes(attribute, type),
                                 proto->mutable_ints());
    case ORT_OP_ATTR_FLOATS:
      proto->set_type(P::FLOATS);
      return AddNumbers<float>(AttributeBytes(attribute, type),
                               proto->mutable_floats());
    case ORT_OP_ATTR_TENSOR: {
      OrtValue* value = nullptr;
      Must(Ort().OpAttr_GetTensorAttributeAsOrtValue(attribute, &value));
      proto->set_type(P::TENSOR);
      OrtStatus* status = Guarded(
          [&] { ToProto(ViewOf(*value, where), "", proto->mutable_t()); });
      Ort().ReleaseValue(value);
      return Must(status);
    }
    default:
      Fail("[", where, "] attribute ", name,
           ": expected a number, a text, a list of numbers or a tensor");
  }
}

Tensor ConstantOf(const OrtValueInfo* value) {
  const OrtValue* data = nullptr;
  Must(Ort().ValueInfo_GetInitializerValue(value, &data));
  std::string name = NameOf(value);
  Check(data != nullptr, "[", name, "] expected an initializer, got no data");
  return ViewOf(*data, name);
}

void AddInfo(const OrtValueInfo* value,
             google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* list) {
  auto* info = list->Add();
  info->set_name(NameOf(value));
  info->mutable_type()->mutable_tensor_type()->set_elem_type(
      static_cast<int32_t>(DTypeOf(value)));
}

// kUndefined: no tensor, or one of a type that we do not have.
DType ElementOf(const OrtTypeInfo* type) {
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  ONNXType kind = ONNX_TYPE_UNKNOWN;
  if (!type) return DType::kUndefined;
  Must(Ort().GetOnnxTypeFromTypeInfo(type, &kind));
  if (kind != ONNX_TYPE_TENSOR) return DType::kUndefined;
  Must(Ort().CastTypeInfoToTensorInfo(type, &tensor));
  if (tensor) Must(Ort().GetTensorElementType(tensor, &element));
  return FromRuntime(element);
}

// An input becomes an initializer with these contents.
void SetConstant(Graph& graph, const std::string& name, Tensor data) {
  Value* value = graph.Find(name);
  value->dtype = data.dtype();
  value->shape = data.shape();
  value->data = std::move(data);
  value->is_input = false;
  value->axis_names.clear();
  std::erase(graph.inputs, value);
}

}  // namespace

std::vector<const OrtValueInfo*> InputsOf(const OrtNode* node) {
  return ListOf<const OrtValueInfo*>(node, Ort().Node_GetNumInputs,
                                     Ort().Node_GetInputs);
}

std::vector<const OrtValueInfo*> OutputsOf(const OrtNode* node) {
  return ListOf<const OrtValueInfo*>(node, Ort().Node_GetNumOutputs,
                                     Ort().Node_GetOutputs);
}

std::vector<const OrtNode*> NodesOf(const OrtGraph* graph) {
  return ListOf<const OrtNode*>(graph, Ort().Graph_GetNumNodes,
                                Ort().Graph_GetNodes);
}

std::string NameOf(const OrtValueInfo* value) {
  const char* name = nullptr;
  if (value) Must(Ort().GetValueInfoName(value, &name));
  return name ? name : "";
}

std::string OpOf(const OrtNode* node) {
  return TextOf(Ort().Node_GetOperatorType, node);
}

std::string DomainOf(const OrtNode* node) {
  std::string domain = TextOf(Ort().Node_GetDomain, node);
  return domain == "ai.onnx" ? "" : domain;
}

DType DTypeOf(const OrtValueInfo* value) {
  const OrtTypeInfo* type = nullptr;
  Must(Ort().GetValueInfoTypeInfo(value, &type));
  return ElementOf(type);
}

bool IsSequence(const OrtValueInfo* value) {
  if (!value) return false;
  const OrtTypeInfo* type = nullptr;
  const OrtSequenceTypeInfo* sequence = nullptr;
  Must(Ort().GetValueInfoTypeInfo(value, &type));
  if (!type) return false;
  Must(Ort().CastTypeInfoToSequenceTypeInfo(type, &sequence));
  if (!sequence) return false;
  OrtTypeInfo* element = nullptr;
  Must(Ort().GetSequenceElementType(sequence, &element));
  DType dtype = ElementOf(element);
  Ort().ReleaseTypeInfo(element);
  return dtype != DType::kUndefined;
}

bool IsConstant(const OrtValueInfo* value) {
  bool constant = false;
  Must(Ort().ValueInfo_IsConstantInitializer(value, &constant));
  return constant;
}

onnx::NodeProto ToNodeProto(const OrtNode* node) {
  onnx::NodeProto proto;
  proto.set_op_type(OpOf(node));
  proto.set_domain(DomainOf(node));
  proto.set_name(TextOf(Ort().Node_GetName, node));
  for (const OrtValueInfo* value : InputsOf(node)) {
    proto.add_input(NameOf(value));
  }
  for (const OrtValueInfo* value : OutputsOf(node)) {
    proto.add_output(NameOf(value));
  }
  std::string where = proto.op_type() + " " + proto.name();
  for (const OrtOpAttr* attribute : ListOf<const OrtOpAttr*>(
           node, Ort().Node_GetNumAttributes, Ort().Node_GetAttributes)) {
    AddAttribute(attribute, where, &proto);
  }
  return proto;
}

int OpsetOf(const OrtGraph* graph) {
  size_t count = 0;
  Must(Ort().Graph_GetNumOperatorSets(graph, &count));
  std::vector<const char*> domains(count);
  std::vector<int64_t> versions(count);
  Must(Ort().Graph_GetOperatorSets(graph, domains.data(), versions.data(),
                                   count));
  for (size_t i = 0; i < count; ++i) {
    std::string domain = domains[i];
    if (domain.empty() || domain == "ai.onnx") {
      return static_cast<int>(versions[i]);
    }
  }
  Fail("expected a graph that imports the ONNX domain");
}

std::string PathOf(const OrtGraph* graph) {
  const ORTCHAR_T* path = nullptr;
  Must(Ort().Graph_GetModelPath(graph, &path));
  return path ? path : "";
}

std::unique_ptr<Graph> ToGraph(int opset, std::span<const OrtNode* const> nodes,
                               std::span<const OrtValueInfo* const> inputs,
                               std::span<const OrtValueInfo* const> outputs) {
  onnx::ModelProto model;
  model.set_ir_version(10);
  auto* import = model.add_opset_import();
  import->set_version(opset);
  import = model.add_opset_import();
  import->set_domain(kDomain);
  import->set_version(1);
  auto* g = model.mutable_graph();
  g->set_name("fused");
  std::set<std::string> known, made;
  std::vector<std::pair<std::string, Tensor>> large;
  auto add = [&](const OrtValueInfo* value) {
    std::string name = NameOf(value);
    if (!value || made.contains(name) || !known.insert(name).second) return;
    if (IsConstant(value)) {
      Tensor data = ConstantOf(value);
      if (data.bytes() <= kMostInModel) {
        return ToProto(data, name, g->add_initializer());
      }
      large.emplace_back(name, data.Clone());
    }
    AddInfo(value, g->mutable_input());
  };
  for (const OrtValueInfo* value : inputs) add(value);
  for (const OrtNode* node : nodes) {
    for (const OrtValueInfo* value : InputsOf(node)) add(value);
    for (const OrtValueInfo* value : OutputsOf(node)) {
      made.insert(NameOf(value));
    }
    *g->add_node() = ToNodeProto(node);
  }
  for (const OrtValueInfo* value : outputs) AddInfo(value, g->mutable_output());
  auto graph = ReadModelFromBytes(model.SerializeAsString());
  for (auto& [name, data] : large) SetConstant(*graph, name, std::move(data));
  return graph;
}

}  // namespace onnx_fp8
