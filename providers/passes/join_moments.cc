// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_moments.h"

#include <unordered_set>
#include <vector>

#include "providers/ops/element_places.h"
#include "providers/passes/coded_updates.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kFirstMoment = 2;  // operand; as a result it is 1

// A moment's nodes around an update.
struct Codec {
  Node* decode;
  Node* encode;
};

bool IsRead(const std::unordered_set<const Value*>& returned, const Value* x,
            const Node& reader) {
  return x->uses.size() == 1 && x->uses[0] == &reader && !returned.contains(x);
}

// Whether the node measures the update by the moments that it makes.
bool Measures(const Node& node, const Node& update) {
  if (!node.IsOurs("UpdateAmax") || update.outputs().size() < 3) return false;
  bool alike = true;
  for (const char* name : {"one_minus_beta1", "one_minus_beta2", "eps"}) {
    alike &= node.Float(name, 0) == update.Float(name, 0);
  }
  return alike && node.in(0) == update.out(1) && node.in(1) == update.out(2) &&
         node.in(2) == update.in(kFirstMoment + 2);
}

// The only reader of a new moment beside nodes that measure the update, at most
// one; null: there is no such reader.
Node* EncoderOf(const std::unordered_set<const Value*>& returned,
                const Value* next, const Node& update) {
  Node* encoder = nullptr;
  size_t meters = 0;
  if (returned.contains(next)) return nullptr;
  for (Node* reader : next->uses) {
    if (Measures(*reader, update)) {
      ++meters;
    } else if (encoder) {
      return nullptr;
    } else {
      encoder = reader;
    }
  }
  return meters <= 1 ? encoder : nullptr;
}

bool Draws(const Node& encode) {
  return encode.IsOurs("RoundStochastic") ||
         encode.IsOurs("EncodeSecondMoment");
}

bool AreRoundings(const Node& decode, const Node& encode) {
  return WidensBFloat16(decode) && (encode.Is("Cast") || Draws(encode)) &&
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

// The only operand that is a bool.
const Value* OkOf(const Node& update) {
  for (const Value* operand : update.inputs()) {
    if (operand && operand->dtype == DType::kBool) return operand;
  }
  return nullptr;
}

// A joined parameter (join_masters.h) may have a correction.
size_t CountMoments(const Node& update) {
  return update.outputs().size() - 1 - (update.Has("correction") ? 1 : 0);
}

// A joined parameter without a correction is rounded by draws.
bool DrawsParameter(const Node& update) {
  return update.in(0)->dtype == DType::kBFloat16 && !update.Has("correction");
}

// Whether the update can take over the draws: it has one set of attributes for
// the places of elements.
bool TakesPlacesOf(const Node& update, const Node& encode) {
  return !DrawsParameter(update) || PlacesOf(update) == PlacesOf(encode);
}

// Nothing unless each moment of the update has its codec, which nobody else
// reads, all are of one kind, and the second one alone draws.
std::vector<Codec> CodecsOf(const std::unordered_set<const Value*>& returned,
                            const Node& update) {
  const Value* ok = OkOf(update);
  std::vector<Codec> codecs;
  for (size_t i = 1; i <= CountMoments(update); ++i) {
    const Value *in = update.in(kFirstMoment + i - 1), *out = update.out(i);
    Node* decode = in->producer;
    Node* encode = out ? EncoderOf(returned, out, update) : nullptr;
    if (!decode || !IsRead(returned, in, update) || !encode) return {};
    const bool fits =
        AreRoundings(*decode, *encode) || AreCodes(*decode, *encode, ok);
    const bool like_first = i == 1 || decode->op == codecs[0].decode->op;
    const bool is_second = i == 2;
    if (!fits || !like_first || Draws(*encode) != is_second) return {};
    if (is_second && !TakesPlacesOf(update, *encode)) return {};
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

// null: there is none.
Node* MeterOf(const Node& update) {
  if (update.outputs().size() < 2 || !update.out(1)) return nullptr;
  for (Node* reader : update.out(1)->uses) {
    if (Measures(*reader, update)) return reader;
  }
  return nullptr;
}

void Join(Graph& graph, Node& update, const std::vector<Codec>& codecs) {
  if (codecs.empty()) return;
  // The meter is recognized by the results of the update's body.
  Node* meter = MeterOf(update);
  for (size_t i : {0, 1}) {
    if (meter) graph.SetInput(meter, i, nullptr);
  }
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
  if (!meter) return;
  graph.MoveToNewOutput(meter->out(0), &update, update.outputs().size());
  graph.RemoveNode(meter);
}

}  // namespace

void JoinMoments(Graph& graph, const KernelRegistry& kernels) {
  const std::unordered_set<const Value*> returned = ReturnedValues(graph);
  for (Node* update : CodedUpdates(graph, kernels)) {
    Join(graph, *update, CodecsOf(returned, *update));
  }
}

}  // namespace onnx_fp8
