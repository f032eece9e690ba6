// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/mutate_model.h"

#include <google/protobuf/message.h>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "graph/schemas_internal.h"

namespace onnx_fp8 {
namespace {

namespace onnx = ONNX_NAMESPACE;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Sizes and counts that programs get wrong.
constexpr int64_t kIntegers[] = {
    0,         1,         2,         3,         4,         7,         8,
    16,        -1,        -2,        -3,        255,       256,       1 << 16,
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 32, 1LL << 40, 1LL << 62,
    12345678,  17,        100,       -100};
constexpr double kReals[] = {0, 1, -1, 0.5, 1e-30, 1e30, 1e308, -0.0, 2, 1e-8};

class Mutation {
 public:
  Mutation(onnx::ModelProto* model, uint64_t seed)
      : model_(model), seed_(seed) {
    Collect(model);
    for (const auto& schema : Schemas()) ops_.push_back(schema.Name());
  }

  uint64_t Below(uint64_t n) { return RandomBelow(seed_, draws_++, n); }

  void Edit() {
    switch (Below(8)) {
      case 0:
        return EditNode();
      case 1:
        return AddAttribute();
      case 2:
        return Rewire();
      case 3:
        return CopyMessage();
      case 4:
        return MakeFunction();
      default:
        return EditField();
    }
  }

 private:
  static const std::vector<onnx::OpSchema>& Schemas() {
    static const auto schemas = [] {
      RegisterSchemas();
      std::vector<onnx::OpSchema> all =
          onnx::OpSchemaRegistry::get_all_schemas();
      std::erase_if(all, [](const auto& schema) {
        return !schema.domain().empty() && schema.domain() != "onnx_fp8";
      });
      return all;
    }();
    return schemas;
  }

  // Collects all messages of the model, and the names in it.
  void Collect(Message* message) {
    messages_.push_back(message);
    const Reflection* reflection = message->GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection->ListFields(*message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) {
        Collect(reflection->MutableMessage(message, field));
        continue;
      }
      for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
        Collect(reflection->MutableRepeatedMessage(message, field, i));
      }
    }
    if (auto* node = dynamic_cast<onnx::NodeProto*>(message)) {
      nodes_.push_back(node);
      names_.insert(names_.end(), node->input().begin(), node->input().end());
      names_.insert(names_.end(), node->output().begin(), node->output().end());
    }
    if (auto* info = dynamic_cast<onnx::ValueInfoProto*>(message)) {
      names_.push_back(info->name());
    }
  }

  template <typename T>
  T& Pick(std::vector<T>& all) {
    return all[Below(all.size())];
  }
  int64_t Integer() { return kIntegers[Below(std::size(kIntegers))]; }
  double Real() { return kReals[Below(std::size(kReals))]; }
  std::string Word() {
    static const std::vector<std::string> words = {
        "",          "ai.onnx", "onnx_fp8", "SAME_UPPER", "SAME_LOWER", "VALID",
        "ij,jk->ik", "...i,i",  "data.bin", "../x",       "x"};
    uint64_t kind = Below(4);
    if (kind == 0 || names_.empty()) return words[Below(words.size())];
    return kind == 1 ? Pick(ops_) : Pick(names_);
  }

  void EditNode() {
    if (nodes_.empty()) return;
    onnx::NodeProto* node = Pick(nodes_);
    switch (Below(3)) {
      case 0:
        node->set_op_type(Pick(ops_));
        node->set_domain("");
        return;
      case 1:
        node->add_input(Word());
        return;
      default:
        if (node->input_size() > 0) node->mutable_input()->RemoveLast();
    }
  }

  // Adds an attribute that the op has.
  void AddAttribute() {
    if (nodes_.empty()) return;
    onnx::NodeProto* node = Pick(nodes_);
    const auto* schema =
        onnx::OpSchemaRegistry::Schema(node->op_type(), 21, node->domain());
    if (!schema || schema->attributes().empty()) return;
    auto it = schema->attributes().begin();
    std::advance(it, static_cast<int64_t>(Below(schema->attributes().size())));
    onnx::AttributeProto* attribute = nullptr;
    for (auto& known : *node->mutable_attribute()) {
      if (known.name() == it->first) attribute = &known;
    }
    if (!attribute) attribute = node->add_attribute();
    attribute->set_name(it->first);
    attribute->set_type(
        static_cast<onnx::AttributeProto::AttributeType>(it->second.type));
    attribute->set_i(Integer());
    attribute->set_f(static_cast<float>(Real()));
    attribute->set_s(Word());
    attribute->clear_ints();
    for (uint64_t n = Below(5); n > 0; --n) attribute->add_ints(Integer());
  }

  void Rewire() {
    if (nodes_.empty() || names_.empty()) return;
    onnx::NodeProto* node = Pick(nodes_);
    if (node->input_size() == 0) return;
    auto slot =
        static_cast<int>(Below(static_cast<uint64_t>(node->input_size())));
    node->set_input(slot, Pick(names_));
  }

  // Another message of the same kind replaces one, or is added beside it.
  void CopyMessage() {
    Message* to = Pick(messages_);
    std::vector<Message*> same;
    for (Message* other : messages_) {
      if (other != to && other->GetDescriptor() == to->GetDescriptor()) {
        same.push_back(other);
      }
    }
    if (same.empty()) return;
    // Copy first: one may contain the other.
    std::unique_ptr<Message> copy(to->New());
    copy->CopyFrom(*Pick(same));
    if (copy->ByteSizeLong() > 4096) return;
    if (auto* node = dynamic_cast<onnx::NodeProto*>(copy.get());
        node && Below(2) == 0) {
      *model_->mutable_graph()->add_node() = *node;
      return;
    }
    to->CopyFrom(*copy);
  }

  // Moves a node into a function that replaces it; the function sometimes calls
  // itself, or lacks its output.
  void MakeFunction() {
    if (nodes_.empty()) return;
    onnx::NodeProto* node = Pick(nodes_);
    onnx::FunctionProto* function = model_->add_functions();
    function->set_name(Below(8) == 0 ? Pick(ops_) : "F");
    function->set_domain(Below(16) == 0 ? "ai.onnx" : "local");
    for (const std::string& name : node->input()) function->add_input(name);
    for (const std::string& name : node->output()) function->add_output(name);
    if (Below(8) != 0) *function->add_node() = *node;
    auto* import = function->add_opset_import();
    import->set_version(Below(4) == 0 ? Integer() : 17);
    auto* own = model_->add_opset_import();
    own->set_domain(function->domain());
    own->set_version(1);
    node->set_op_type(function->name());
    node->set_domain(Below(8) == 0 ? "" : function->domain());
    node->clear_attribute();
    if (Below(4) == 0) *function->add_node() = *node;
  }

  void EditField() {
    Message* message = Pick(messages_);
    const auto* descriptor = message->GetDescriptor();
    const Reflection* reflection = message->GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection->ListFields(*message, &fields);
    const FieldDescriptor* field =
        fields.empty() || Below(8) == 0
            ? descriptor->field(static_cast<int>(
                  Below(static_cast<uint64_t>(descriptor->field_count()))))
            : Pick(fields);
    if (field->is_repeated()) {
      EditRepeated(message, field);
    } else if (Below(16) == 0) {
      reflection->ClearField(message, field);
    } else {
      SetField(message, field);
    }
  }

  void EditRepeated(Message* message, const FieldDescriptor* field) {
    const Reflection* reflection = message->GetReflection();
    int size = reflection->FieldSize(*message, field);
    auto at = [&] {
      return static_cast<int>(Below(static_cast<uint64_t>(size)));
    };
    uint64_t way = Below(4);
    if (size == 0 || way == 0) return Add(message, field);
    if (way == 1) return reflection->RemoveLast(message, field);
    if (way == 2) return reflection->SwapElements(message, field, at(), at());
    int i = at();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetRepeatedInt32(message, field, i,
                                            static_cast<int32_t>(Integer()));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->SetRepeatedInt64(message, field, i, Integer());
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetRepeatedUInt64(message, field, i,
                                             static_cast<uint64_t>(Integer()));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection->SetRepeatedFloat(message, field, i,
                                            static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetRepeatedDouble(message, field, i, Real());
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->SetRepeatedString(message, field, i, Word());
      default:
        return reflection->RemoveLast(message, field);
    }
  }

  void Add(Message* message, const FieldDescriptor* field) {
    const Reflection* reflection = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->AddInt32(message, field,
                                    static_cast<int32_t>(Integer()));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->AddInt64(message, field, Integer());
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->AddUInt64(message, field,
                                     static_cast<uint64_t>(Integer()));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection->AddFloat(message, field, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->AddDouble(message, field, Real());
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->AddString(message, field, Word());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        reflection->AddMessage(message, field);
        return;
      default:
        return;
    }
  }

  void SetField(Message* message, const FieldDescriptor* field) {
    const Reflection* reflection = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetInt32(message, field,
                                    static_cast<int32_t>(Integer()));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->SetInt64(message, field, Integer());
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetUInt64(message, field,
                                     static_cast<uint64_t>(Integer()));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection->SetFloat(message, field, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetDouble(message, field, Real());
      case FieldDescriptor::CPPTYPE_STRING:
        return SetString(message, field);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection->SetEnumValue(message, field,
                                        static_cast<int>(Below(24)));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        reflection->MutableMessage(message, field);
        return;
      default:
        return;
    }
  }

  // Bytes (of a tensor) are cut or grow; strings become other words.
  void SetString(Message* message, const FieldDescriptor* field) {
    const Reflection* reflection = message->GetReflection();
    if (field->type() == FieldDescriptor::TYPE_STRING || Below(4) == 0) {
      return reflection->SetString(message, field, Word());
    }
    std::string bytes = reflection->GetString(*message, field);
    switch (Below(3)) {
      case 0:
        bytes.resize(Below(bytes.size() + 1));
        break;
      case 1:
        bytes.resize(Below(65), '\1');
        break;
      default: {
        int64_t value = Integer();
        size_t at = bytes.size() < 8 ? 0 : Below(bytes.size() / 8) * 8;
        bytes.replace(at, std::min<size_t>(8, bytes.size() - at),
                      reinterpret_cast<const char*>(&value), 8);
      }
    }
    reflection->SetString(message, field, bytes);
  }

  onnx::ModelProto* model_;
  uint64_t seed_;
  uint64_t draws_ = 0;
  std::vector<Message*> messages_;
  std::vector<onnx::NodeProto*> nodes_;
  std::vector<std::string> names_, ops_;
};

}  // namespace

size_t MutateModel(uint8_t* data, size_t size, size_t max_size, uint64_t seed) {
  google::protobuf::LogSilencer quiet;
  onnx::ModelProto model;
  if (size == 0 || !model.ParseFromArray(data, static_cast<int>(size))) {
    return 0;
  }
  uint64_t edits = RandomBelow(seed, 1u << 20, 5);
  if (edits == 0) return 0;
  // Each edit makes the collected messages stale.
  for (uint64_t i = 0; i < edits; ++i) {
    Mutation(&model, RandomBits(seed, i)).Edit();
  }
  std::string bytes = model.SerializeAsString();
  if (bytes.size() > max_size) return 0;
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

}  // namespace onnx_fp8
