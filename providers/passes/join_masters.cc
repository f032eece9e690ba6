// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_masters.h"

#include <unordered_set>
#include <vector>

#include "providers/passes/coded_updates.h"

namespace onnx_fp8 {
namespace {

bool AreSplit(const Node& decode, const Node& encode) {
  return decode.IsOurs("DecodeMaster") && encode.IsOurs("EncodeMaster") &&
         decode.Int("correction", 0) == encode.Int("correction", 0) &&
         encode.out(0) && encode.out(1);
}

bool AreDrawn(const Node& decode, const Node& encode) {
  return WidensBFloat16(decode) && encode.IsOurs("RoundStochastic");
}

// Adds operands behind the last one.
void AddOperands(Graph& graph, Node& update,
                 const std::vector<Value*>& operands) {
  for (Value* operand : operands) {
    graph.SetInput(&update, update.inputs().size(), operand);
  }
}

// Whether the parameter's codec has joined the update.
bool JoinMaster(Graph& graph, Node& update,
                const std::unordered_set<const Value*>& returned) {
  Value *old = update.in(0), *next = update.out(0);
  Node* decode = old->producer;
  if (!decode || !next || next->uses.size() != 1 || returned.contains(next)) {
    return false;
  }
  Node* encode = next->uses[0];
  const bool split = AreSplit(*decode, *encode);
  if (!split && !AreDrawn(*decode, *encode)) return false;
  graph.SetInput(&update, 0, decode->in(0));
  if (split) {
    AddOperands(graph, update, {decode->in(1)});
  } else {
    AddOperands(graph, update, {encode->in(1), encode->in(2)});
  }
  for (const auto& [name, value] : encode->attributes) {
    update.attributes[name == "stream" ? "master_stream" : name] = value;
  }
  if (old->uses.empty() && !returned.contains(old)) graph.RemoveNode(decode);
  graph.MoveOutput(encode->out(0), &update, 0);
  if (split) {
    graph.MoveToNewOutput(encode->out(1), &update, update.outputs().size());
  }
  graph.RemoveNode(encode);
  return true;
}

}  // namespace

void JoinMasters(Graph& graph, const KernelRegistry& kernels) {
  const std::unordered_set<const Value*> returned = ReturnedValues(graph);
  bool any = false;
  for (Node* update : CodedUpdates(graph, kernels)) {
    any |= JoinMaster(graph, *update, returned);
  }
  // The number of the update may be computed behind its new reader.
  if (any) graph.Sort();
}

}  // namespace onnx_fp8
