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

bool Draws(const Node& encode) {
  return encode.IsOurs("RoundStochastic") ||
         encode.IsOurs("EncodeSecondMoment");
}

bool AreRoundings(const Node& decode, const Node& encode) {
  return decode.Is("Cast") && decode.in(0)->dtype == DType::kBFloat16 &&
         decode.out(0)->dtype == DType::kFloat &&
         (encode.Is("Cast") || Draws(encode)) &&
         encode.out(0)->dtype == DType::kBFloat16;
}

// `encode` keeps the codes and scales that `decode` reads if `ok` is false.
bool AreCodes(const Node& decode, const Node& encode, const Value* ok) {
  return decode.IsOurs("DecodeMoment") &&
         (encode.IsOurs("EncodeMoment") || Draws(encode)) &&
         (decode.Int("squared", 0) != 0) == Draws(encode) &&
         encode.in(1) == decode.in(0) && encode.in(2) == decode.in(1) &&
         encode.in(3) == ok;
}

// Nothing unless each moment of the update has its codec, which nobody else
// reads, all are of one kind, and the second one alone draws.
std::vector<Codec> CodecsOf(const Graph& graph, const Node& update) {
  const Value* ok = update.inputs().back();
  std::vector<Codec> codecs;
  for (size_t i = 1; i < update.outputs().size(); ++i) {
    const Value *in = update.in(kFirstMoment + i - 1), *out = update.out(i);
    Node* decode = in->producer;
    if (!decode || !IsRead(graph, in, update) || !out ||
        out->uses.size() != 1 || !IsRead(graph, out, *out->uses[0])) {
      return {};
    }
    Node* encode = out->uses[0];
    const bool fits =
        AreRoundings(*decode, *encode) || AreCodes(*decode, *encode, ok);
    const bool like_first = i == 1 || decode->op == codecs[0].decode->op;
    const bool is_second = i == 2;
    if (!fits || !like_first || Draws(*encode) != is_second) return {};
    codecs.push_back({decode, encode});
  }
  return codecs;
}

// The draws are the last two operands of the node.
void JoinDraws(Graph& graph, Node& update, const Node& encode) {
  const size_t next = update.inputs().size(), seed = encode.inputs().size() - 2;
  graph.SetInput(&update, next, encode.in(seed));
  graph.SetInput(&update, next + 1, encode.in(seed + 1));
  update.attributes.insert(encode.attributes.begin(), encode.attributes.end());
}

void Join(Graph& graph, Node& update, const std::vector<Codec>& codecs) {
  std::vector<Value*> scales;
  for (size_t i = 0; i < codecs.size(); ++i) {
    auto [decode, encode] = codecs[i];
    graph.SetInput(&update, kFirstMoment + i, decode->in(0));
    if (decode->in(1)) scales.push_back(decode->in(1));
    graph.RemoveNode(decode);
    if (Draws(*encode)) JoinDraws(graph, update, *encode);
    graph.MoveOutput(encode->out(0), &update, 1 + i);
    if (encode->out(1)) {
      graph.MoveToNewOutput(encode->out(1), &update, update.outputs().size());
    }
    graph.RemoveNode(encode);
  }
  for (Value* scale : scales) {
    graph.SetInput(&update, update.inputs().size(), scale);
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
