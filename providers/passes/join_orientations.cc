// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_orientations.h"

#include <ranges>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/dependence.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8 {
namespace {

constexpr char kJoinedOp[] = "QuantizeBlockTranspose";
constexpr int64_t kShortColumn = 128;

bool QuantizesRows(const Node& node) {
  if (!node.IsOurs("QuantizeBlock") || node.Int("block_rows", 0) != 1) {
    return false;
  }
  int64_t block = node.Int("block_columns", -1);
  Shape matrix = CodeMatrix(*node.in(0));
  return IsPartOfBoth(block) && !matrix.empty() &&
         (block > 0 || matrix[0] > kShortColumn);
}

// Whether the node gives columns the scales that `rows` gives rows.
bool IsPartner(const Graph& graph, const Node& node, const Node& rows) {
  if (!node.IsOurs("QuantizeColumns")) return false;
  // The graph returns this amax under its name. The amax of the rows has
  // another name.
  if (node.out(2) && IsReturned(graph, node.out(2))) return false;
  for (const char* key : {"to", "block_columns", "pow2", "scale_to"}) {
    if (node.Int(key, -1) != rows.Int(key, -1)) return false;
  }
  return node.Float("q_max", 0) == rows.Float("q_max", 0);
}

using Places = std::unordered_map<const Node*, size_t>;

// Whether the node decodes a weight that is kept in fewer bytes.
bool Decodes(const Node& node) {
  return node.IsOurs("DecodeMaster") ||
         (node.Is("Cast") && node.in(0)->is_initializer());
}

// The nodes that read a value, or with `decoded` another decoding of the same
// weight.
std::vector<Node*> ReadersOf(const Value& value, bool decoded) {
  const Node* own = value.producer;
  if (!decoded || !own || !Decodes(*own)) return value.uses;
  std::vector<Node*> readers;
  for (const Node* node : own->in(0)->uses) {
    const bool same = node->op == own->op && node->domain == own->domain &&
                      node->inputs() == own->inputs() &&
                      node->out(0)->dtype == value.dtype;
    if (!same) continue;
    const std::vector<Node*>& uses = node->out(0)->uses;
    readers.insert(readers.end(), uses.begin(), uses.end());
  }
  return readers;
}

// The last one; null: there is none.
Node* PartnerOf(const Graph& graph, const Node& rows, const Places& places,
                bool decoded) {
  Node* last = nullptr;
  for (Node* reader : ReadersOf(*rows.in(0), decoded)) {
    if (!IsPartner(graph, *reader, rows)) continue;
    if (!last || places.at(reader) > places.at(last)) last = reader;
  }
  return last;
}

std::vector<Node*> NodesOf(Graph& graph) {
  std::vector<Node*> nodes;
  for (Node& node : graph.nodes()) nodes.push_back(&node);
  return nodes;
}

// Result `from` of a node becomes result `to` of the joined node.
void Move(Graph& graph, const Node& node, size_t from, Node& joined,
          size_t to) {
  Value* made = node.out(from);
  if (made) graph.MoveToNewOutput(made, &joined, to);
}

void Join(Graph& graph, Node& rows, Node& columns, Node& first) {
  Value* const operands[] = {rows.in(0), columns.in(0)};
  Node& joined = *graph.AddNode(kJoinedOp, {first.in(0)}, {}, rows.attributes,
                                kDomain, &first);
  joined.name = rows.name;
  joined.metadata = rows.metadata;
  joined.part = rows.part;
  for (size_t i : {0, 1, 2}) Move(graph, rows, i, joined, i);
  if (columns.out(2) && joined.out(2)) {
    graph.ReplaceUses(columns.out(2), joined.out(2));
  } else {
    Move(graph, columns, 2, joined, 2);
  }
  Move(graph, columns, 0, joined, kTransposedCodes);
  Move(graph, columns, 1, joined, kTransposedScales);
  Move(graph, columns, ColumnSumsOf(columns), joined, ColumnSumsOf(joined));
  graph.RemoveNode(&rows);
  graph.RemoveNode(&columns);
  for (Value* operand : operands) {  // another decoding: nobody needs it now
    const bool idle = operand->uses.empty() && !IsReturned(graph, operand);
    if (operand != joined.in(0) && idle) graph.RemoveNode(operand->producer);
  }
}

}  // namespace

void JoinOrientations(Graph& graph, const KernelRegistry& kernels, bool weights,
                      bool decoded) {
  if (!kernels.Find(kDomain, kJoinedOp)) return;
  const std::vector<Node*> nodes = NodesOf(graph);
  const Dependences of(nodes);
  std::vector<Node*> all;
  Places places;
  for (Node* node : nodes) {
    places.emplace(node, places.size());
    if (!weights && of.copies.contains(node)) continue;
    if (QuantizesRows(*node)) all.push_back(node);
  }
  for (Node* rows : std::views::reverse(all)) {
    Node* columns = PartnerOf(graph, *rows, places, decoded);
    if (!columns) continue;
    bool rows_first = places.at(rows) < places.at(columns);
    Join(graph, *rows, *columns, rows_first ? *rows : *columns);
  }
}

}  // namespace onnx_fp8
