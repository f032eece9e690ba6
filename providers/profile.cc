// SPDX-License-Identifier: Apache-2.0
#include "providers/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "graph/print.h"
#include "onnx_fp8/check.h"
#include "onnx_fp8/file.h"

namespace onnx_fp8 {
namespace {

std::string OpName(const Node& node) {
  return node.domain.empty() ? node.op : node.domain + "." + node.op;
}

// The node's note of that name, "" without.
std::string Note(const Node& node, const std::string& key) {
  auto attribute = node.attributes.find(key);
  if (attribute != node.attributes.end()) {
    if (auto* text = std::get_if<std::string>(&attribute->second)) return *text;
  }
  auto entry = node.metadata.find(key);
  return entry == node.metadata.end() ? "" : entry->second;
}

}  // namespace

void Profiler::Add(const Node& node, Clock::time_point begin,
                   Clock::time_point end) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  if (events_.empty()) start_ = begin;
  events_.push_back({&node, Microseconds(begin - start_).count(),
                     Microseconds(end - begin).count()});
}

std::string Profiler::ChromeTrace() const {
  auto trace = nlohmann::json::array();
  for (const Event& event : events_) {
    const Node& node = *event.node;
    nlohmann::json args = {{"op", OpName(node)}};
    for (const Value* value : node.outputs()) {
      if (!value) continue;
      args["shape"] = TypeText(*value);
      break;
    }
    if (std::string path = NodePath(node); !path.empty()) args["path"] = path;
    for (const char* key : {"role", "fqn"}) {
      if (std::string note = Note(node, key); !note.empty()) args[key] = note;
    }
    trace.push_back({{"name", node.Where()},
                     {"cat", OpName(node)},
                     {"ph", "X"},
                     {"pid", 1},
                     {"tid", 1},
                     {"ts", event.begin},
                     {"dur", event.duration},
                     {"args", std::move(args)}});
  }
  // Names come from files and need not be UTF-8.
  return trace.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Profiler::WriteChromeTrace(const std::string& path) const {
  WriteFileAtomically(path, ChromeTrace() + "\n");
}

std::string Profiler::Summary() const {
  struct Row {
    std::string op;
    size_t calls = 0;
    double time = 0;
  };
  std::map<std::string, Row> by_op;
  double total = 0;
  for (const Event& event : events_) {
    Row& row = by_op[OpName(*event.node)];
    ++row.calls;
    row.time += event.duration;
    total += event.duration;
  }
  std::vector<Row> rows;
  size_t width = 5;
  for (auto& [op, row] : by_op) {
    row.op = op;
    width = std::max(width, op.size());
    rows.push_back(row);
  }
  std::ranges::stable_sort(rows, std::greater<>(), &Row::time);
  rows.insert(rows.begin(), {"total", events_.size(), total});
  std::string text = "op" + std::string(width - 2, ' ') +
                     "    calls          ms  share     us/call\n";
  for (const Row& row : rows) {
    char line[128];
    double calls = static_cast<double>(std::max<size_t>(row.calls, 1));
    std::snprintf(line, sizeof line, " %8zu %11.3f %5.1f%% %11.2f\n", row.calls,
                  row.time / 1e3, total > 0 ? 100 * row.time / total : 0.0,
                  row.time / calls);
    text += row.op + std::string(width - row.op.size(), ' ') + line;
  }
  return text;
}

}  // namespace onnx_fp8
