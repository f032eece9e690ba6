// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/dump_products.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/glob.h"
#include "base/joined.h"
#include "graph/builder.h"
#include "graph/fp8/gemm_matrices.h"
#include "graph/fp8/measure_casts.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

// Metadata of products in high precision: the names of both operands.
constexpr const char* kOperandKeys[] = {"dumped_left", "dumped_right"};

bool IsDumped(const DumpSpec& spec, const std::string& fqn) {
  return std::ranges::any_of(spec.layers, [&](const std::string& glob) {
    return MatchesGlob(glob, fqn);
  });
}

bool IsInFp8(const Node& node) {
  return FactsOf(node).kind == OpKind::kScaledProduct;
}

// An attribute of a product in FP8, metadata of another one.
std::string FactOf(const Node& product, const char* key) {
  if (IsInFp8(product)) return product.String(key, "");
  const auto known = product.metadata.find(key);
  return known == product.metadata.end() ? "" : known->second;
}

// The node that casts an operand of the product; null: no node of the step
// does.
const Node* CastOf(const Node& product, size_t i) {
  const Node* node = product.in(2 * i)->producer;
  return node && FactsOf(*node).kind == OpKind::kQuantize ? node : nullptr;
}

// A step that does not cast an operand has its codes from before: it is a
// weight.
std::string OperandOf(const Node& product, size_t i) {
  if (!IsInFp8(product)) return FactOf(product, kOperandKeys[i]);
  const Node* cast = CastOf(product, i);
  return cast ? cast->String("operand", "") : "weight";
}

class ProductDumper {
 public:
  ProductDumper(Graph& graph, const DumpSpec& spec)
      : graph_(graph), spec_(spec) {}

  std::vector<DumpedOutputs> Run() {
    auto& nodes = graph_.nodes();
    for (auto it = nodes.begin(); it != nodes.end();) {
      const Node& node = *it++;
      const OpKind kind = FactsOf(node).kind;
      const bool multiplies =
          kind == OpKind::kScaledProduct || kind == OpKind::kProduct;
      if (!multiplies || node.part == Part::kRecomputed) continue;
      const std::string fqn = FactOf(node, "fqn");
      const std::string gemm = FactOf(node, "role");
      if (fqn.empty() || gemm.empty() || !IsDumped(spec_, fqn)) continue;
      label_ = {.fqn = fqn, .gemm = gemm, .use = ++uses_[{fqn, gemm}]};
      label_.recipe = FactOf(node, "recipe");
      before_ = it == nodes.end() ? nullptr : &*it;
      AddProduct(node);
    }
    return std::move(dumped_);
  }

 private:
  void AddProduct(const Node& product) {
    for (size_t i : {0, 1}) {
      const std::string operand = OperandOf(product, i);
      if (!spec_.operands.contains(operand)) continue;
      DumpedOutputs& made = Begin(operand);
      if (IsInFp8(product)) {
        const char* rows[] = {"a_block_rows", "b_block_rows"};
        const char* columns[] = {"a_block_columns", "b_block_columns"};
        made.label.block_rows = product.Int(rows[i], 0);
        made.label.block_columns = product.Int(columns[i], 0);
        made.codes = Output(product.in(2 * i));
        made.scale = Output(product.in(2 * i + 1));
        const Node* cast = CastOf(product, i);
        if (cast) made.value = Output(BeforeCasts(*cast));
      } else {
        made.value = Output(product.in(i));
      }
    }
    if (!spec_.operands.contains("output")) return;
    DumpedOutputs& made = Begin("output");
    made.value = Output(product.out(0));
  }

  DumpedOutputs& Begin(const std::string& operand) {
    DumpedOutputs& made = dumped_.emplace_back();
    made.label = label_;
    made.label.operand = operand;
    return made;
  }

  // The name of an output that is x. Passes that follow may give x another
  // name, or other memory; the Identity stays.
  std::string Output(Value* x) {
    auto [known, is_new] = names_.try_emplace(x);
    if (is_new) {
      Builder b(graph_, "dump.", before_);
      Value* same = b.Op("Identity", {x});
      graph_.outputs.push_back(same);
      known->second = same->name;
    }
    return known->second;
  }

  Graph& graph_;
  const DumpSpec& spec_;
  std::vector<DumpedOutputs> dumped_;
  std::map<std::pair<std::string, std::string>, int64_t> uses_;
  std::map<const Value*, std::string> names_;  // of outputs
  DumpedTensor label_;                         // of the product at hand
  Node* before_ = nullptr;                     // where new nodes go
};

}  // namespace

void NameOperands(const GemmInfo& gemm) {
  for (int slot : {0, 1}) {
    gemm.node->metadata[kOperandKeys[slot]] = OperandName(gemm, slot);
  }
}

void CheckDumped(const DumpSpec& spec,
                 const std::vector<GemmDecision>& decisions,
                 const std::string& file) {
  std::set<std::string> names;
  for (const GemmDecision& decision : decisions) {
    if (!decision.fqn.empty()) names.insert(decision.fqn);
  }
  for (const std::string& glob : spec.layers) {
    const bool matches = std::ranges::any_of(
        names,
        [&](const std::string& name) { return MatchesGlob(glob, name); });
    Check(matches, "[", file, "] `dump`: expected a linear layer that ", glob,
          " matches, got ",
          names.empty() ? "none" : Joined({names.begin(), names.end()}));
  }
}

std::vector<DumpedOutputs> DumpProducts(Graph& graph, const DumpSpec& spec) {
  return ProductDumper(graph, spec).Run();
}

}  // namespace onnx_fp8
