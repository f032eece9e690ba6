// SPDX-License-Identifier: Apache-2.0
#include "graph/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "graph/node_notes.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kInlineElements = 8;

std::string Block(const Graph& graph, const std::string& indent);

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/' ||
         c == ':' || c == '-';
}

std::string Quoted(const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string NameText(const std::string& name) {
  bool plain = !name.empty() && name != "_" && name.back() != ':' &&
               std::ranges::all_of(name, IsPlain);
  return plain ? name : Quoted(name);
}

// The shortest text that reads back as the same number and shows that it is a
// floating-point number.
template <typename T>
std::string FloatText(T x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string ElementText(const Tensor& t, int64_t i) {
  if (IsInteger(t.dtype()) || t.dtype() == DType::kBool) {
    return t.dtype() == DType::kUInt64 ? std::to_string(t.data<uint64_t>()[i])
                                       : std::to_string(IntAt(t, i));
  }
  if (t.dtype() == DType::kDouble) return FloatText(t.data<double>()[i]);
  return FloatText(static_cast<float>(DoubleAt(t, i)));
}

// "{1,2}" for small tensors, "{...}" for others.
std::string Elements(const Tensor& t) {
  if (t.size() > kInlineElements || ByteSize(t.dtype()) == 0) return "{...}";
  std::string out = "{";
  for (int64_t i = 0; i < t.size(); ++i) {
    if (i > 0) out += ",";
    out += ElementText(t, i);
  }
  return out + "}";
}

std::string Text(int64_t x) { return std::to_string(x); }
std::string Text(float x) { return FloatText(x); }
std::string Text(const std::string& x) { return Quoted(x); }

template <typename T>
std::string Text(const std::vector<T>& list) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += ",";
    out += Text(list[i]);
  }
  return out + "]";
}

std::string AttributeText(const Attribute& attribute,
                          const std::string& indent) {
  return std::visit(
      [&](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "?";
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return Name(value.dtype()) + ToString(value.shape()) +
                 Elements(value);
        } else if constexpr (std::is_same_v<T, std::shared_ptr<Graph>>) {
          if (!value) return "{}";
          return "{\n" + Block(*value, indent + "  ") + indent + "}";
        } else {
          return Text(value);
        }
      },
      attribute);
}

std::string NodeText(const Node& node, const std::string& indent) {
  std::string out;
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (i > 0) out += ", ";
    const Value* value = node.out(i);
    out += value ? NameText(value->name) + ": " + TypeText(*value) : "_";
  }
  out += " = ";
  if (!node.domain.empty()) out += node.domain + ".";
  out += node.op;
  const char* separator = "<";
  for (const auto& [key, attribute] : node.attributes) {
    out += separator + key + "=" + AttributeText(attribute, indent);
    separator = ", ";
  }
  if (!node.attributes.empty()) out += ">";
  out += "(";
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (i > 0) out += ", ";
    if (node.in(i)) out += NameText(node.in(i)->name);
  }
  return out + ")";
}

std::string SourceText(const Value& value) {
  std::string out = value.is_input ? "input " : "";
  if (value.is_initializer()) out += std::string(Name(value.role)) + " ";
  out += NameText(value.name) + ": " + TypeText(value);
  bool constant = value.is_initializer() && value.role == Role::kNone;
  if (constant && value.data.size() <= kInlineElements) {
    out += " = " + Elements(value.data);
  }
  return out;
}

// Writes all lines except the heading.
std::string Block(const Graph& graph, const std::string& indent) {
  std::string out;
  for (const Value* value : graph.inputs) {
    out += indent + SourceText(*value) + "\n";
  }
  for (const Value* value : graph.Values()) {
    if (value->is_input || value->producer) continue;
    out += indent + (value->is_initializer() ? "" : "captured ") +
           SourceText(*value) + "\n";
  }
  for (const Node& node : graph.nodes()) {
    out += indent + NodeText(node, indent);
    std::string path = NodePath(node);
    if (!path.empty()) out += "  # " + path;
    out += "\n";
  }
  for (const Value* value : graph.outputs) {
    out += indent + "output " + NameText(value->name) + "\n";
  }
  for (const StateBinding& binding : graph.state) {
    out += indent + "update " + NameText(binding.state->name) + " = " +
           NameText(binding.next->name) + "\n";
  }
  return out;
}

// Makes the text one line of printable characters: paths stand in comments.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

}  // namespace

std::string TypeText(const Value& value) {
  std::string out = value.dtype == DType::kUndefined ? "?" : Name(value.dtype);
  if (value.narrow != DType::kUndefined) {
    out += std::string(" as ") + Name(value.narrow);
  }
  if (value.is_sequence) out = "seq(" + out + ")";
  if (!value.shape) return out;
  out += "[";
  for (size_t i = 0; i < value.shape->size(); ++i) {
    if (i > 0) out += ",";
    int64_t size = (*value.shape)[i];
    bool named = i < value.axis_names.size() && !value.axis_names[i].empty();
    if (size >= 0) {
      out += std::to_string(size);
    } else {
      out += named ? NameText(value.axis_names[i]) : "?";
    }
  }
  return out + "]";
}

std::string NodePath(const Node& node) {
  const std::vector<std::string> scopes = NameScopes(node);
  const size_t n = scopes.size();
  if (n >= 2 && !scopes[n - 2].empty()) {
    return OneLine(scopes[n - 2] + "/" + scopes[n - 1]);
  }
  if (n >= 1 && !scopes[n - 1].empty()) return OneLine(scopes[n - 1]);
  return OneLine(node.name);
}

std::string Print(const Node& node) { return NodeText(node, ""); }

std::string Print(const Graph& graph) {
  return "graph " + Quoted(graph.name) + " opset " +
         std::to_string(graph.opset) + "\n" + Block(graph, "");
}

}  // namespace onnx_fp8
