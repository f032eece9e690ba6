// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "onnx_fp8/tensor_range.h"
#include "providers/run/node_observer.h"

namespace onnx_fp8 {

// A tensor that a node reads or makes.
struct SeenTensor {
  std::string name;
  std::string type;                  // "float[16,24]"
  std::optional<TensorRange> range;  // none: it holds no floats
};

// Where NaN or Inf comes from.
struct NotFiniteOrigin {
  enum class Source {
    kNode,   // of finite operands; or NaN, with an Inf that is a constant
    kInput,  // the batch has it
    kState,  // the weights or another state have it
  };
  Source source = Source::kNode;
  // The node that makes it; else the first one that reads it.
  std::string node;     // as messages name it
  std::string op;       // "onnx_fp8.ScaledMatMul"
  std::string role;     // as NodeProfile::role
  std::string layer;    // its FQN; "": not known
  std::string forward;  // of a node of the backward: the forward's; or ""
  std::vector<SeenTensor> operands;
  SeenTensor result;           // or the input or the state
  std::vector<int64_t> index;  // of its first element that is not finite
  bool is_nan = false;         // that element
  int64_t batch = 0;           // of the step's batches
  int64_t sample = -1;         // of the batch; -1: not known
};

// A large result of a node.
struct LargeResult {
  std::string node, layer;
  double amax = 0;
};

// Finds where the NaN or Inf of a step comes from. A step's results are its
// loss, the norm of its gradients, its new state. What reaches none of them is
// no fault: a mask of -Inf for instance.
//
// Or, at a lower cost, where NaN or Inf of new state comes from: only the nodes
// that make new state are watched, and an operand that is not finite has no
// source then.
class NotFiniteWatch : public NodeObserver {
 public:
  // Watches the nodes that make new state, and no others.
  NotFiniteWatch() : of_state_(true) {}
  // `samples`: of each of the step's batches. `by_sample`: their arrays whose
  // first axis has the samples.
  NotFiniteWatch(std::vector<int64_t> samples, std::set<std::string> by_sample)
      : sizes_(std::move(samples)), by_sample_(std::move(by_sample)) {}

  void Begin(const Graph& graph, ExecutionProvider& provider) override;
  void Before(const Node& node, std::span<const Tensor> inputs) override;
  void After(const Node& node, std::span<const Tensor> outputs) override;
  void End(const Graph& graph) override;

  // The first one, in the order in which the nodes run. If no result of a step
  // has it, the first one at all, as an update may look at flags alone.
  const std::optional<NotFiniteOrigin>& found() const {
    return found_ ? found_ : unused_;
  }
  // Whether a result of a step has it.
  bool reaches_results() const { return found_.has_value(); }
  // The largest finite results of nodes of the model and its backward, the
  // largest first.
  const std::vector<LargeResult>& largest() const { return largest_; }

 private:
  // Facts about a value that a node has read or made.
  struct Seen {
    std::optional<TensorRange> range;
    // Index in origins_; -1: it is finite, or a constant.
    int origin = -1;
    // An Inf that the model may mean: of a constant, of an input.
    bool weak = false;
    bool sample_rows = false;

    bool finite() const { return !range || range->finite(); }
  };

  bool Watches(const Node& node) const;
  const Seen& Look(const Value& value, const Tensor& tensor, const Node& by);
  Seen LookAtSource(const Value& value, const Tensor& tensor, const Node& by);
  // Fills in origin and weak of a result that is not finite.
  void Trace(const Node& node, const Value& value, const Tensor& tensor,
             Seen* seen);
  int AddOrigin(NotFiniteOrigin::Source source, const Node& node,
                const Value& value, const Tensor& tensor, const Seen& seen);
  bool HasRows(const Value* value) const;
  SeenTensor Describe(const Value& value) const;
  void KeepLargest(const Node& node, const TensorRange& range);

  const bool of_state_ = false;
  const std::vector<int64_t> sizes_;
  const std::set<std::string> by_sample_;
  // The number of the last batch that a Run has read, and its samples. The
  // latter are 0 in a Run that reads no batch.
  int64_t batch_ = -1, samples_ = 0;
  ExecutionProvider* provider_ = nullptr;  // of a Run
  // The values of the current Run.
  std::unordered_map<const Value*, Seen> seen_;
  std::unordered_set<const Value*> new_state_;  // with of_state_
  std::vector<NotFiniteOrigin> origins_;
  std::optional<NotFiniteOrigin> found_, unused_;
  std::vector<LargeResult> largest_;
};

// The FQN of the layer that a node belongs to: the weight of a product, as
// `stats` names it, or the module that the exporter tells; "": not known.
std::string LayerOf(const Node& node);

}  // namespace onnx_fp8
