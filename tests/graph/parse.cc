// SPDX-License-Identifier: Apache-2.0
#include "tests/graph/parse.h"

#include <sstream>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// One line of text, read from left to right.
class Line {
 public:
  explicit Line(const std::string& text) : text_(text) {}

  // True and past it if `token` comes next.
  bool Take(const std::string& token) {
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  void Expect(const std::string& token) {
    Check(Take(token), "expected \"", token, "\" in \"", text_, "\" before \"",
          text_.substr(at_), "\"");
  }
  // Up to one of `ends` (or the end of the line).
  std::string Until(const std::string& ends) {
    size_t end = std::min(text_.find_first_of(ends, at_), text_.size());
    std::string word = text_.substr(at_, end - at_);
    at_ = end;
    return word;
  }
  // A quoted string (no escapes) or a name up to one of `ends`.
  std::string Name(const std::string& ends) {
    if (!Take("\"")) return Until(ends);
    std::string name = Until("\"");
    Expect("\"");
    return name;
  }
  std::string Rest() const { return text_.substr(at_); }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

struct Type {
  DType dtype;
  std::optional<Shape> shape;
  std::vector<std::string> axis_names;
  DType narrow = DType::kUndefined;
};

Type ParseType(Line& line) {
  Type type{ParseDType(line.Until("[, =")), {}, {}};
  if (line.Take(" as ")) type.narrow = ParseDType(line.Until("[, ="));
  if (!line.Take("[")) return type;
  type.shape = Shape();
  while (!line.Take("]")) {
    std::string axis = line.Name(",]");
    bool known = axis.find_first_not_of("0123456789") == std::string::npos;
    type.shape->push_back(known ? std::stoll(axis) : -1);
    type.axis_names.push_back(known || axis == "?" ? "" : axis);
    line.Take(",");
  }
  return type;
}

std::vector<std::string> Words(Line& line, const std::string& end) {
  std::vector<std::string> words;
  while (!line.Take(end)) {
    words.push_back(line.Name("," + end));
    line.Take(",");
  }
  return words;
}

bool IsFloatText(const std::string& text) {
  return text.find_first_of(".enf") != std::string::npos;
}

Attribute ParseAttribute(Line& line) {
  if (line.Take("[")) {
    std::vector<int64_t> ints;
    std::vector<float> floats;
    for (const std::string& word : Words(line, "]")) {
      if (IsFloatText(word)) {
        floats.push_back(std::stof(word));
      } else {
        ints.push_back(std::stoll(word));
      }
    }
    if (!floats.empty()) return floats;
    return ints;
  }
  if (line.Take("\"")) {
    std::string text = line.Until("\"");
    line.Expect("\"");
    return text;
  }
  std::string word = line.Until(",>");
  if (IsFloatText(word)) return std::stof(word);
  return static_cast<int64_t>(std::stoll(word));
}

Value* FindValue(const Graph& graph, const std::string& name) {
  Value* value = graph.Find(name);
  Check(value != nullptr, "expected a value, got \"", name, "\"");
  return value;
}

void ParseSource(Graph& graph, Line& line, bool is_input,
                 std::optional<Role> role) {
  std::string name = line.Name(" ");
  if (name.back() == ':') name.pop_back();
  line.Take(":");
  line.Expect(" ");
  Type type = ParseType(line);
  Value* value =
      is_input ? graph.AddInput(name, type.dtype, type.shape) : nullptr;
  if (role) {
    Tensor data = Tensor::Zeros(type.dtype, type.shape.value_or(Shape()));
    if (line.Take(" = {")) {
      Tensor values = Tensor::Zeros(DType::kDouble, data.shape());
      std::vector<std::string> words = Words(line, "}");
      Check(static_cast<int64_t>(words.size()) == data.size(),
            "wrong number of values for ", name);
      for (size_t i = 0; i < words.size(); ++i) {
        values.data<double>()[i] = std::stod(words[i]);
      }
      data = ConvertTo(values, type.dtype);
    }
    if (!value) value = graph.AddInitializer(name, data);
    value->data = data;
    value->role = *role;
  }
  value->axis_names = type.axis_names;
  value->narrow = type.narrow;
}

void ParseNode(Graph& graph, Line& line) {
  std::vector<std::string> names;
  std::vector<Type> types;
  do {
    names.push_back(line.Name(" ,"));
    if (names.back() == "_") {
      names.back().clear();
      types.emplace_back();
      continue;
    }
    if (!names.back().empty() && names.back().back() == ':') {
      names.back().pop_back();
    }
    line.Take(":");
    line.Expect(" ");
    types.push_back(ParseType(line));
  } while (line.Take(", "));
  line.Expect(" = ");
  std::string op = line.Until("<(");
  std::string domain;
  if (size_t dot = op.rfind('.'); dot != std::string::npos) {
    domain = op.substr(0, dot);
    op = op.substr(dot + 1);
  }
  Attributes attributes;
  if (line.Take("<")) {
    do {
      std::string key = line.Until("=");
      line.Expect("=");
      attributes[key] = ParseAttribute(line);
    } while (line.Take(", "));
    line.Expect(">");
  }
  line.Expect("(");
  std::vector<Value*> inputs;
  while (!line.Take(")")) {
    std::string name = line.Name(",)");
    inputs.push_back(name.empty() ? nullptr : FindValue(graph, name));
    line.Take(", ");
  }
  Node* node = graph.AddNode(op, inputs, names, attributes, domain);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!node->out(i)) continue;
    node->out(i)->dtype = types[i].dtype;
    node->out(i)->shape = types[i].shape;
    node->out(i)->narrow = types[i].narrow;
  }
  if (line.Take("  # ")) node->name = line.Rest();
}

void ParseLine(Graph& graph, Line& line) {
  if (line.Take("graph \"")) {
    graph.name = line.Until("\"");
    line.Expect("\" opset ");
    graph.opset = std::stoi(line.Rest());
    return;
  }
  if (line.Take("output ")) {
    graph.outputs.push_back(FindValue(graph, line.Name(" ")));
    return;
  }
  if (line.Take("update ")) {
    Value* state = FindValue(graph, line.Name(" "));
    line.Expect(" = ");
    graph.state.push_back({state, FindValue(graph, line.Name(" "))});
    return;
  }
  if (line.Take("captured ")) {
    graph.AddCaptured(line.Name(":"));
    return;
  }
  bool is_input = line.Take("input ");
  std::optional<Role> role;
  for (int i = 0; i <= static_cast<int>(Role::kWeightCopy); ++i) {
    auto known = static_cast<Role>(i);
    if (line.Take(std::string(Name(known)) + " ")) role = known;
  }
  if (is_input || role) {
    ParseSource(graph, line, is_input, role);
  } else {
    ParseNode(graph, line);
  }
}

}  // namespace

std::unique_ptr<Graph> ParseGraph(const std::string& text) {
  auto graph = std::make_unique<Graph>();
  std::istringstream lines(text);
  for (std::string text_line; std::getline(lines, text_line);) {
    text_line.erase(0, text_line.find_first_not_of(' '));
    if (text_line.empty()) continue;
    try {
      Line line(text_line);
      ParseLine(*graph, line);
    } catch (const std::exception& error) {
      Fail("[", text_line, "] ", error.what());
    }
  }
  return graph;
}

}  // namespace onnx_fp8
