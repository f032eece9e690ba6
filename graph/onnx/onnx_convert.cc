// SPDX-License-Identifier: Apache-2.0
#include <onnx/defs/schema.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/upgrade.h"

namespace onnx_fp8 {
namespace {

static_assert(std::endian::native == std::endian::little,
              "raw_data is little-endian");

template <typename T, typename Field>
void Fill(Tensor& tensor, const Field& field, const std::string& where) {
  Check(field.size() == tensor.size(), "[", where, "] expected ", tensor.size(),
        " elements for shape ", ToString(tensor.shape()), ", got ",
        field.size());
  T* out = static_cast<T*>(tensor.raw());
  for (int i = 0; i < field.size(); ++i) {
    out[i] = static_cast<T>(field.Get(i));
  }
}

// Reads the typed fields of a TensorProto, for tensors without raw_data.
void FillFromFields(const onnx::TensorProto& proto, Tensor& t,
                    const std::string& where) {
  switch (t.dtype()) {
    case DType::kFloat:
      return Fill<float>(t, proto.float_data(), where);
    case DType::kDouble:
      return Fill<double>(t, proto.double_data(), where);
    case DType::kInt64:
      return Fill<int64_t>(t, proto.int64_data(), where);
    case DType::kUInt32:
      return Fill<uint32_t>(t, proto.uint64_data(), where);
    case DType::kUInt64:
      return Fill<uint64_t>(t, proto.uint64_data(), where);
    case DType::kInt32:
      return Fill<int32_t>(t, proto.int32_data(), where);
    case DType::kBool:
      return Fill<bool>(t, proto.int32_data(), where);
    default:
      break;
  }
  if (ByteSize(t.dtype()) == 2) {
    return Fill<uint16_t>(t, proto.int32_data(), where);
  }
  return Fill<uint8_t>(t, proto.int32_data(), where);
}

Attribute AttributeFromProto(const onnx::AttributeProto& proto,
                             const std::string& where,
                             const ExternalReader& external) {
  using P = onnx::AttributeProto;
  switch (proto.type()) {
    case P::INT:
      return proto.i();
    case P::FLOAT:
      return proto.f();
    case P::STRING:
      return proto.s();
    case P::INTS:
      return std::vector<int64_t>(proto.ints().begin(), proto.ints().end());
    case P::FLOATS:
      return std::vector<float>(proto.floats().begin(), proto.floats().end());
    case P::STRINGS:
      return std::vector<std::string>(proto.strings().begin(),
                                      proto.strings().end());
    case P::TENSOR:
      return ToTensor(proto.t(), where, external);
    case P::GRAPH: {
      auto graph = std::make_shared<Graph>();
      AddGraphFromProto(*graph, proto.g(), external);
      return graph;
    }
    default:
      return std::monostate{};
  }
}

struct AttributeWriter {
  onnx::AttributeProto* proto;

  void operator()(std::monostate) const {}
  void operator()(int64_t x) const {
    proto->set_type(onnx::AttributeProto::INT);
    proto->set_i(x);
  }
  void operator()(float x) const {
    proto->set_type(onnx::AttributeProto::FLOAT);
    proto->set_f(x);
  }
  void operator()(const std::string& x) const {
    proto->set_type(onnx::AttributeProto::STRING);
    proto->set_s(x);
  }
  void operator()(const std::vector<int64_t>& x) const {
    proto->set_type(onnx::AttributeProto::INTS);
    for (int64_t i : x) proto->add_ints(i);
  }
  void operator()(const std::vector<float>& x) const {
    proto->set_type(onnx::AttributeProto::FLOATS);
    for (float f : x) proto->add_floats(f);
  }
  void operator()(const std::vector<std::string>& x) const {
    proto->set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& s : x) proto->add_strings(s);
  }
  void operator()(const Tensor& x) const {
    proto->set_type(onnx::AttributeProto::TENSOR);
    ToProto(x, "", proto->mutable_t());
  }
  void operator()(const std::shared_ptr<Graph>& x) const {
    proto->set_type(onnx::AttributeProto::GRAPH);
    onnx::GraphProto* g = proto->mutable_g();
    g->set_name(x->name);
    for (const Node& node : x->nodes()) *g->add_node() = ToProto(node);
    for (const Value* value : x->inputs) {
      auto* info = g->add_input();
      info->set_name(value->name);
      if (value->dtype != DType::kUndefined) {
        ToProto(value->dtype, value->shape, info->mutable_type());
      }
    }
    for (const Value* value : x->Initializers()) {
      ToProto(value->data, value->name, g->add_initializer());
    }
    for (const Value* value : x->outputs) {
      auto* info = g->add_output();
      info->set_name(value->name);
      if (value->dtype != DType::kUndefined) {
        ToProto(value->dtype, value->shape, info->mutable_type());
      }
    }
  }
};

// The body and the bodies in it read `outer` under the name that they use for
// it, `name`. Afterwards they read it under its own name; null: they read
// nothing.
void ReadAs(Graph& body, const std::string& name, const Value* outer) {
  Value* inner = body.Find(name);
  if (!inner || inner->producer || inner->is_input || inner->is_initializer()) {
    return;  // it is a value of its own
  }
  for (Node& node : body.nodes()) {
    for (Graph* deeper : node.Subgraphs()) ReadAs(*deeper, name, outer);
  }
  if (outer) return body.Rename(inner, outer->name);
  for (Node& node : body.nodes()) {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (node.in(i) == inner) body.SetInput(&node, i, nullptr);
    }
  }
}

// Whether nodes of the op may lack output i: not if it is required, or one of
// any number of results.
bool MayOmit(const Node& node, size_t i) {
  const auto* schema =
      onnx::OpSchemaRegistry::Schema(node.op, kNormalOpset, node.domain);
  if (!schema || schema->outputs().empty()) return true;
  const auto& outputs = schema->outputs();
  return outputs[std::min(i, outputs.size() - 1)].GetOption() ==
         onnx::OpSchema::Optional;
}

// A file may leave a result that nobody reads without a name. Kernels, passes
// and gradients then rely on a value in each place that the op always has.
void NameResults(Graph& graph) {
  for (Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      if (node.out(i) || MayOmit(node, i)) continue;
      graph.AddOutput(&node, i, graph.FreshName(node.op + ".unread"));
    }
  }
}

void SetAxisNames(const onnx::TypeProto& type, Value* value) {
  if (!type.tensor_type().has_shape()) return;
  bool any = false;
  std::vector<std::string> names;
  for (const auto& dim : type.tensor_type().shape().dim()) {
    names.push_back(dim.has_dim_value() ? "" : dim.dim_param());
    any |= !dim.has_dim_value();
  }
  if (any) value->axis_names = std::move(names);
}

// Any byte but 0 is true, as in ONNX Runtime. Kernels know 0 and 1 alone.
Tensor WithPlainBools(Tensor t) {
  auto* bytes = static_cast<const uint8_t*>(t.raw());
  if (std::all_of(bytes, bytes + t.size(), [](auto b) { return b <= 1; })) {
    return t;
  }
  Tensor plain = Tensor::Allocate(DType::kBool, t.shape());
  std::transform(bytes, bytes + t.size(), plain.data<bool>(),
                 [](auto b) { return b != 0; });
  return plain;
}

// Errors: the file declares two types for one value.
void CheckOneType(const onnx::TypeProto& declared, const Value& value,
                  const std::string& file) {
  auto dtype = static_cast<DType>(declared.tensor_type().elem_type());
  bool same = dtype == DType::kUndefined || value.dtype == DType::kUndefined ||
              dtype == value.dtype;
  Check(same, "[", file, "] expected one type of \"", value.name, "\", got ",
        Name(value.dtype), " and ", Name(dtype));
}

// Errors: an input with a default is declared with another type than this
// default's.
void CheckDefault(const onnx::TypeProto& declared, const Value& value,
                  const std::string& file) {
  CheckOneType(declared, value, file);
  if (!declared.tensor_type().has_shape()) return;
  Value input;
  MergeType(declared, &input);
  bool fits = input.shape->size() == value.shape->size();
  for (size_t i = 0; fits && i < input.shape->size(); ++i) {
    fits = (*input.shape)[i] < 0 || (*input.shape)[i] == (*value.shape)[i];
  }
  Check(fits, "[", file, "] expected initializer \"", value.name,
        "\" of shape ", ToString(*input.shape),
        ", as the input of that name declares it, got ",
        ToString(*value.shape));
}

Tensor TensorOf(const onnx::TensorProto& proto, const std::string& where,
                const ExternalReader& external) {
  DType dtype = static_cast<DType>(proto.data_type());
  std::string who = where + (proto.name().empty() ? "" : " " + proto.name());
  Check(ByteSize(dtype) > 0, "[", who,
        "] expected a numeric tensor, got ONNX data type ", proto.data_type(),
        " (", onnx::TensorProto::DataType_Name(proto.data_type()), ")");
  for (int64_t size : proto.dims()) {
    Check(size >= 0, "[", who, "] expected axis sizes >= 0, got ", size);
  }
  Shape shape(proto.dims().begin(), proto.dims().end());
  int64_t count = 0;
  try {
    count = NumElements(shape);
  } catch (const Error& error) {
    Fail("[", who, "] ", error.what());
  }
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    Check(static_cast<bool>(external), "[", who,
          "] holds external data, which can't be read here");
    return external(proto, who);
  }
  // Checked before allocating: a malformed file must not ask for terabytes.
  if (proto.has_raw_data()) {
    Check(static_cast<uint64_t>(count) ==
                  proto.raw_data().size() / ByteSize(dtype) &&
              proto.raw_data().size() % ByteSize(dtype) == 0,
          "[", who, "] expected ", count, " elements of ", Name(dtype),
          " for shape ", ToString(shape), ", got ", proto.raw_data().size(),
          " bytes");
    Tensor t = Tensor::Allocate(dtype, std::move(shape));
    if (t.bytes() > 0) std::memcpy(t.raw(), proto.raw_data().data(), t.bytes());
    return t;
  }
  Check(count <= static_cast<int64_t>(proto.ByteSizeLong()), "[", who,
        "] expected ", count, " elements for shape ", ToString(shape),
        ", got fewer");
  Tensor t = Tensor::Allocate(dtype, std::move(shape));
  FillFromFields(proto, t, who);
  return t;
}

}  // namespace

Tensor ToTensor(const onnx::TensorProto& proto, const std::string& where,
                const ExternalReader& external) {
  Tensor t = TensorOf(proto, where, external);
  return t.dtype() == DType::kBool ? WithPlainBools(std::move(t)) : t;
}

void DescribeTensor(const TensorSource& tensor, const std::string& name,
                    onnx::TensorProto* proto) {
  proto->set_name(name);
  proto->set_data_type(static_cast<int32_t>(tensor.dtype()));
  for (int64_t size : tensor.shape()) proto->add_dims(size);
}

void ToProto(const Tensor& tensor, const std::string& name,
             onnx::TensorProto* proto) {
  DescribeTensor(tensor, name, proto);
  proto->set_raw_data(tensor.raw(), tensor.bytes());
}

void ToProto(DType dtype, const std::optional<Shape>& shape,
             onnx::TypeProto* proto) {
  auto* tensor = proto->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int32_t>(dtype));
  if (!shape) return;
  auto* dims = tensor->mutable_shape();
  for (int64_t size : *shape) {
    auto* dim = dims->add_dim();
    if (size >= 0) dim->set_dim_value(size);
  }
}

void MergeType(const onnx::TypeProto& proto, Value* value) {
  if (proto.has_sequence_type()) value->is_sequence = true;
  if (!proto.has_tensor_type()) return;
  const auto& type = proto.tensor_type();
  if (type.elem_type() != 0)
    value->dtype = static_cast<DType>(type.elem_type());
  if (!type.has_shape()) return;
  Shape shape;
  for (const auto& dim : type.shape().dim()) {
    shape.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
  }
  if (value->shape && value->shape->size() == shape.size()) {
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 0) shape[i] = (*value->shape)[i];
    }
  }
  value->shape = std::move(shape);
}

Node* AddNodeFromProto(Graph& graph, const onnx::NodeProto& proto,
                       ValueMap& values, Node* before,
                       const ExternalReader& external) {
  std::string where = proto.op_type() + " " + proto.name();
  Check(!proto.op_type().empty(), "[", graph.file,
        "] expected every node to have an op_type, got none for \"",
        proto.name(), "\"");
  auto value_of = [&](const std::string& name) -> Value* {
    if (name.empty()) return nullptr;
    auto [it, added] = values.try_emplace(name, nullptr);
    if (added) it->second = graph.AddCaptured(name);
    return it->second;
  };
  std::vector<Value*> inputs;
  for (const std::string& name : proto.input()) {
    inputs.push_back(value_of(name));
  }
  Attributes attributes;
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    Check(attribute.ref_attr_name().empty(), "[", where, "] attribute ",
          attribute.name(), " refers to a function's attribute \"",
          attribute.ref_attr_name(), "\" outside of a function");
    attributes[attribute.name()] =
        AttributeFromProto(attribute, where, external);
  }
  // A value that a subgraph reads from outside must be known to this graph too,
  // so that a graph around this one sees it in turn.
  for (const auto& [key, attribute] : attributes) {
    auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (!subgraph) continue;
    for (Value* inner : (*subgraph)->Values()) {
      if (inner->producer || inner->is_input || inner->is_initializer()) {
        continue;
      }
      std::string name = inner->name;
      Value* outer = value_of(name);
      if (!outer || outer->name != name) ReadAs(**subgraph, name, outer);
    }
  }
  std::vector<std::string> outputs;
  for (const std::string& name : proto.output()) {
    const Value* known = name.empty() || before ? nullptr : graph.Find(name);
    if (known) {
      bool read = !known->producer && !known->is_input &&
                  !known->is_initializer() && !known->uses.empty();
      Fail("[", where, "] computes \"", name, "\", which ",
           read ? std::string(known->uses[0]->Where()) +
                      " has read before: expected nodes in the order of the "
                      "computation, without a cycle"
                : "is there already: expected values to be computed once");
    }
    outputs.push_back(name.empty() ? "" : graph.FreshName(name));
  }
  std::string domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  Node* node = graph.AddNode(proto.op_type(), inputs, outputs,
                             std::move(attributes), domain, before);
  node->name = proto.name();
  for (const auto& entry : proto.metadata_props()) {
    std::string& text =
        entry.key() == kNameNote ? node->name : node->metadata[entry.key()];
    text = entry.value();
  }
  for (int i = 0; i < proto.output_size(); ++i) {
    if (Value* value = node->out(static_cast<size_t>(i))) {
      values[proto.output(i)] = value;
    }
  }
  return node;
}

onnx::NodeProto ToProto(const Node& node) {
  onnx::NodeProto proto;
  proto.set_op_type(node.op);
  proto.set_domain(node.domain);
  proto.set_name(node.name);
  for (const Value* value : node.inputs()) {
    proto.add_input(value ? value->name : "");
  }
  for (const Value* value : node.outputs()) {
    proto.add_output(value ? value->name : "");
  }
  for (const auto& [name, attribute] : node.attributes) {
    if (std::holds_alternative<std::monostate>(attribute)) continue;
    auto* entry = proto.add_attribute();
    entry->set_name(name);
    std::visit(AttributeWriter{entry}, attribute);
  }
  for (const auto& [key, value] : node.metadata) {
    auto* entry = proto.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  return proto;
}

namespace {

// Parts of a GraphProto. A const one stays as it is, another one is used up.
const auto& InitializersOf(const onnx::GraphProto& g) {
  return g.initializer();
}
auto& InitializersOf(onnx::GraphProto& g) { return *g.mutable_initializer(); }
const auto& NodesOf(const onnx::GraphProto& g) { return g.node(); }
auto& NodesOf(onnx::GraphProto& g) { return *g.mutable_node(); }

// A part of a graph that is used up gives its memory back, which Clear() would
// keep.
template <typename Part>
void Used(Part& part) {
  if constexpr (!std::is_const_v<Part>) Part().Swap(&part);
}

void AddInputs(Graph& graph, const onnx::GraphProto& proto, ValueMap* values) {
  for (const auto& input : proto.input()) {
    graph.listed_inputs.push_back(input.name());
    if (auto it = values->find(input.name()); it != values->end()) {
      // Old files list initializers as inputs too, as defaults for inputs not
      // fed.
      Check(it->second->is_initializer(), "[", graph.file,
            "] expected graph inputs to be listed once, got \"", input.name(),
            "\" twice");
      CheckDefault(input.type(), *it->second, graph.file);
      continue;
    }
    Value* value =
        graph.AddInput(input.name(), DType::kUndefined, std::nullopt);
    MergeType(input.type(), value);
    SetAxisNames(input.type(), value);
    (*values)[input.name()] = value;
  }
}

void AddOutputs(Graph& graph, const onnx::GraphProto& proto,
                const ValueMap& values) {
  for (const auto& output : proto.output()) {
    auto it = values.find(output.name());
    Check(it != values.end() || !graph.Find(output.name()), "[", graph.file,
          "] graph output \"", output.name(), "\" is never computed");
    Value* value =
        it != values.end() ? it->second : graph.AddCaptured(output.name());
    CheckOneType(output.type(), *value, graph.file);
    if (!value->is_initializer()) MergeType(output.type(), value);
    graph.outputs.push_back(value);
  }
  for (const auto& info : proto.value_info()) {
    auto it = values.find(info.name());
    if (it == values.end() || !it->second->producer) continue;
    CheckOneType(info.type(), *it->second, graph.file);
    MergeType(info.type(), it->second);
  }
}

// `Proto`: a GraphProto, const unless it is used up.
template <typename Proto>
void AddGraph(Graph& graph, Proto& proto, const ExternalReader& external) {
  graph.name = proto.name();
  if (proto.sparse_initializer_size() > 0) {
    Fail("[", graph.file,
         "] expected dense initializers, got the sparse one \"",
         proto.sparse_initializer(0).values().name(), "\"");
  }
  ValueMap values;
  for (auto& initializer : InitializersOf(proto)) {
    values[initializer.name()] = graph.AddInitializer(
        initializer.name(), ToTensor(initializer, graph.file, external));
    Used(initializer);
  }
  AddInputs(graph, proto, &values);
  int position = 0;
  for (auto& node : NodesOf(proto)) {
    AddNodeFromProto(graph, node, values, nullptr, external)->source =
        position++;
    Used(node);
  }
  NameResults(graph);
  AddOutputs(graph, proto, values);
}

}  // namespace

void AddGraphFromProto(Graph& graph, const onnx::GraphProto& proto,
                       const ExternalReader& external) {
  AddGraph(graph, proto, external);
}

void MoveGraphFromProto(Graph& graph, onnx::GraphProto* proto,
                        const ExternalReader& external) {
  AddGraph(graph, *proto, external);
}

}  // namespace onnx_fp8
