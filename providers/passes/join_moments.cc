// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_moments.h"

#include <vector>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kFirstMoment = 2;  // operand; as a result it is 1

// A moment's nodes around an update.
struct Codec {
  Node* decode;
  Node* encode;
};

bool IsRead(const Graph& graph, const Value* x, const Node& reader) {
  return x->uses.size() == 1 && x->uses[0] == &reader && !IsReturned(graph, x);
}

// Whether the op is the one that encodes a moment. Kernels know Adam's second
// one, the mean of squares, by its place.
bool Encodes(const Node& op, size_t moment) {
  const bool fits = moment == 1 ? op.IsOurs("RoundStochastic") : op.Is("Cast");
  return fits && op.out(0)->dtype == DType::kBFloat16;
}

// Nothing unless each moment of the update has its codec, which nobody else
// reads.
std::vector<Codec> CodecsOf(const Graph& graph, const Node& update) {
  std::vector<Codec> codecs;
  for (size_t i = 0; i + 1 < update.outputs().size(); ++i) {
    const Value *in = update.in(kFirstMoment + i), *out = update.out(i + 1);
    Node* decode = in->producer;
    const bool decodes = decode && decode->Is("Cast") &&
                         decode->in(0)->dtype == DType::kBFloat16 &&
                         IsRead(graph, in, update);
    if (!decodes || !out || out->uses.size() != 1) return {};
    Node* encode = out->uses[0];
    if (!Encodes(*encode, i) || !IsRead(graph, out, *encode)) return {};
    codecs.push_back({decode, encode});
  }
  return codecs;
}

void Join(Graph& graph, Node& update, const std::vector<Codec>& codecs) {
  for (size_t i = 0; i < codecs.size(); ++i) {
    auto [decode, encode] = codecs[i];
    graph.SetInput(&update, kFirstMoment + i, decode->in(0));
    graph.RemoveNode(decode);
    if (encode->IsOurs("RoundStochastic")) {
      const size_t next = update.inputs().size();
      graph.SetInput(&update, next, encode->in(1));
      graph.SetInput(&update, next + 1, encode->in(2));
      update.attributes.insert(encode->attributes.begin(),
                               encode->attributes.end());
    }
    Value* kept = encode->out(0);
    graph.MoveOutput(kept, &update, 1 + i);
    graph.RemoveNode(encode);
  }
}

}  // namespace

void JoinMoments(Graph& graph, const KernelRegistry& kernels) {
  std::vector<Node*> updates;
  for (Node& node : graph.nodes()) {
    if (FactsOf(node).kind != OpKind::kParameterUpdate) continue;
    const KernelEntry* entry = kernels.Find(node.domain, node.op);
    if (entry && entry->traits.coded_moments) updates.push_back(&node);
  }
  for (Node* update : updates) {
    Join(graph, *update, CodecsOf(graph, *update));
  }
}

}  // namespace onnx_fp8
