// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "graph/graph.h"
#include "providers/amax.h"

namespace onnx_fp8 {

// The view of a kernel: one node, its operands, its results. Results are
// already allocated with the dtype and shape that the plan knows. Floats may be
// kept in 16 bits where the kernel's traits say so (narrow_in, narrow_out).
class KernelContext {
 public:
  KernelContext(const Node& node, std::span<const Tensor> inputs,
                std::span<Tensor> outputs, uint64_t draw = 0)
      : node_(node), inputs_(inputs), outputs_(outputs), draw_(draw) {}
  // The same with other operands and results, for a kernel that calls another
  // one.
  KernelContext With(std::span<const Tensor> inputs,
                     std::span<Tensor> outputs) const {
    KernelContext other = *this;
    other.inputs_ = inputs;
    other.outputs_ = outputs;
    return other;
  }

  const Node& node() const { return node_; }
  // Number of the random draw, as in Executor::Run.
  uint64_t draw() const { return draw_; }
  // The same number in the provider's memory, for kernels that draw and that a
  // provider may record; null if the provider's memory is the host's.
  const uint64_t* DrawOnDevice() const { return draw_on_device_; }
  void set_draw_on_device(const uint64_t* draw) { draw_on_device_ = draw; }

  size_t num_inputs() const { return inputs_.size(); }
  size_t num_outputs() const { return outputs_.size(); }
  // False for an omitted optional operand.
  bool HasIn(size_t i) const {
    return i < inputs_.size() && inputs_[i].defined();
  }
  // REQUIRES: HasIn(i).
  const Tensor& In(size_t i) const { return inputs_[i]; }
  // The 16-bit float as which the plan keeps the floats of operand i or of
  // result i; kUndefined: it keeps them as they are.
  DType NarrowIn(size_t i) const {
    return node_.in(i) ? node_.in(i)->narrow : DType::kUndefined;
  }
  DType NarrowOut(size_t i) const {
    return node_.out(i) ? node_.out(i)->narrow : DType::kUndefined;
  }
  // False if nobody reads that result.
  bool HasOut(size_t i) const {
    return i < outputs_.size() && node_.out(i) != nullptr;
  }
  // REQUIRES: HasOut(i) and a shape that does not depend on data.
  Tensor& Out(size_t i) { return outputs_[i]; }
  // For results whose shape depends on data (NonZero, Range with computed
  // bounds): allocates if the plan could not. Errors: the plan knew another
  // shape.
  Tensor& Out(size_t i, DType dtype, const Shape& shape);

  // The place for the amax of output i, all zeros; null if nobody asks for it.
  AmaxCell* Measured(size_t i) const {
    return i < measured_.size() ? measured_[i] : nullptr;
  }
  // The amax of input 0; null if it is not known.
  const AmaxCell* KnownAmax() const { return known_; }
  // Cell i of the KernelTraits::own_amaxes; null if the amax of input 0 is
  // known.
  AmaxCell* OwnAmax(size_t i) const { return own_ ? own_ + i : nullptr; }
  void SetAmaxes(const AmaxCell* known, std::span<AmaxCell* const> measured,
                 AmaxCell* own = nullptr) {
    known_ = known;
    measured_ = measured;
    own_ = own;
  }
  std::span<AmaxCell* const> measured() const { return measured_; }

  // The group of ranks of that name; null if this run has none.
  Communicator* Group(std::string_view name) const {
    if (!groups_) return nullptr;
    auto it = groups_->find(name);
    return it == groups_->end() ? nullptr : it->second;
  }
  void set_groups(const Groups* groups) { groups_ = groups; }

  // Memory for the kernel itself, at a multiple of 256, in which it may leave
  // anything. Errors: the plan has less for the node
  // (KernelTraits::workspace).
  void* Workspace(size_t bytes) const;
  void set_workspace(const Tensor& memory) { workspace_ = memory; }

  // The queue() of the provider that the kernel belongs to.
  void* queue() const { return queue_; }
  void set_queue(void* queue) { queue_ = queue; }

  // Node attributes, as in Node.
  bool Has(std::string_view key) const { return node_.Has(key); }
  int64_t Int(std::string_view key, int64_t otherwise) const {
    return node_.Int(key, otherwise);
  }
  float Float(std::string_view key, float otherwise) const {
    return node_.Float(key, otherwise);
  }
  std::string String(std::string_view key, std::string_view otherwise) const {
    return node_.String(key, otherwise);
  }
  std::vector<int64_t> Ints(std::string_view key,
                            std::vector<int64_t> otherwise = {}) const {
    return node_.Ints(key, std::move(otherwise));
  }

  // The node's place in messages.
  NodePlace Where() const { return node_.Where(); }

 private:
  const Node& node_;
  std::span<const Tensor> inputs_;
  std::span<Tensor> outputs_;
  uint64_t draw_;
  void* queue_ = nullptr;
  const AmaxCell* known_ = nullptr;
  std::span<AmaxCell* const> measured_;
  const uint64_t* draw_on_device_ = nullptr;
  AmaxCell* own_ = nullptr;
  const Groups* groups_ = nullptr;
  Tensor workspace_;
};

// A kernel is a free function; it reads In(i) and fills Out(i). Errors that
// input can cause are thrown as Error that begins with "[Where()]".
using Kernel = void (*)(KernelContext&);

// Runs several nodes at once, none of which depends on another one.
using KernelOfMany = void (*)(std::span<KernelContext>);

// The bytes that a kernel needs for itself, by a node's attributes, its
// host_inputs, and dtypes and shapes of all else, which has no memory yet, but
// a common address. Without a device, queue() is null: then it is a forecast.
using WorkspaceBytes = size_t (*)(KernelContext&);

// How results may share memory with operands, and what else a plan must know.
struct KernelTraits {
  // Output 0 is input 0 under another shape: the plan aliases the two and the
  // kernel does not run (Reshape, Identity, …).
  bool view = false;
  // Pairs (input, output) that may be the same memory: nothing reads element i
  // of that input after element i of the output is written. Other inputs are
  // never that memory.
  std::vector<std::pair<int, int>> in_place = {};
  // The deepest product that the kernel adds to an operand in its place without
  // another pass over memory; add_to_sums.h asks.
  int64_t adds_depth = std::numeric_limits<int64_t>::max();
  // Float outputs whose amax the kernel can write to Measured(). They are read
  // as input 0 by kernels with `uses_amax`, which then need no pass over memory
  // to find it.
  std::vector<size_t> measures = {};
  bool uses_amax = false;
  // Cells of the plan, cleared before each run, in which the kernel measures
  // for itself. With `uses_amax`: only where no kernel has measured input 0.
  size_t own_amaxes = 0;
  // Operands that the kernel reads on the host. If the list is empty and the
  // kernel is no view, Add takes the op's `host` (graph/op_facts.h). If the
  // provider has memory of its own, these operands must be constants, and the
  // plan passes the host's copy.
  std::vector<size_t> host_inputs = {};
  // Float operands that it also reads as 16-bit floats, and float results that
  // it also rounds to 16-bit floats; an amax is measured on the rounded result.
  // store_narrow.h asks.
  std::vector<size_t> narrow_in = {}, narrow_out = {};
  // It copies elements of operands, whatever they are: all float operands and
  // results have one dtype in memory.
  bool moves = false;
  // It draws random values: it reads the number of the draw.
  bool draws = false;
  // It updates a parameter, and also reads and writes the parameter and moments
  // that are kept in fewer bytes; join_masters.h and join_moments.h ask.
  bool coded_state = false;
  // It multiplies two 8-bit operands, inputs 0 and 2, unless both are
  // float8e5m2; check_products.h asks.
  bool one_e5m2 = false;
  // Its scales (inputs 1 and 3), if they belong to 32 elements each, had better
  // be float8e8m0; mx_scales.h asks.
  bool byte_scales = false;
  // The memory that is kept for the kernel in the arena while the node runs;
  // null: none.
  WorkspaceBytes workspace = nullptr;
  // Does the work of `kernel` for several nodes, with the same bits. Nodes with
  // the same `many` may run together (run_together.h); null: each runs alone.
  KernelOfMany many = nullptr;
};

struct KernelEntry {
  Kernel kernel = nullptr;
  KernelTraits traits;
};

// (domain, op) → kernel; one per provider, filled by an explicit list.
class KernelRegistry {
 public:
  // Errors: the op is there already.
  void Add(std::string_view op, Kernel kernel, KernelTraits traits = {},
           std::string_view domain = "");
  // null if there is none.
  const KernelEntry* Find(std::string_view domain, std::string_view op) const;
  std::vector<std::string> Names() const;
  // Errors: an op has no row of facts (graph/op_facts.h).
  void RequireFacts() const;

  // By (domain, op).
  using Entries =
      std::map<std::pair<std::string, std::string>, KernelEntry, std::less<>>;
  const Entries& entries() const { return entries_; }

 private:
  Entries entries_;
};

}  // namespace onnx_fp8
