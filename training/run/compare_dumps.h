// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/run/dump_file.h"

namespace onnx_fp8 {

// How a tensor of B differs from the same tensor of A.
struct TensorDifference {
  std::string part;       // "value", "scale", "codes" or "decoded"
  int64_t elements = 0;   // of A's
  int64_t differing = 0;  // elements with other bytes
  // Types or shapes of A's and B's, if these differ: then all elements count as
  // differing, and there are no other numbers.
  std::string a_type = {}, b_type = {};
  // From pairs of finite numbers alone. Codes have none of the three.
  std::optional<double> max_abs = {};   // the largest |a - b|
  std::optional<double> relative = {};  // max_abs over the largest |a|
  // Σ a² over Σ (a - b)² in dB; none without a difference.
  std::optional<double> sqnr = {};

  bool same() const { return differing == 0 && a_type == b_type; }
};

// A tensor that both dumps have.
struct ComparedTensor {
  int64_t step = 0, batch = 1;
  DumpedTensor label;  // A's, without numbers
  // In the order in which a step makes them. A part that only one of them has
  // is left out.
  std::vector<TensorDifference> parts;

  // Null: nothing differs.
  const TensorDifference* First() const;
  // Null: one of them lacks the part.
  const TensorDifference* Find(const std::string& part) const;
  // The part whose numbers tell the distance: the tensor before the cast, or if
  // that is the same, the decoded one. Null: nothing differs.
  const TensorDifference* Numbers() const;
};

struct DumpComparison {
  std::vector<int64_t> steps;               // of both
  std::vector<ComparedTensor> tensors;      // in the order of A's steps
  std::vector<std::string> only_a, only_b;  // tensors of these steps

  // Null: nothing differs.
  const ComparedTensor* First() const;
  int64_t differing() const;
};

// The dumps at the two paths, which ReadDumps reads. Errors: ReadDumps'; dumps
// of two models; no step that both have; a tensor of another number of
// elements, as of a batch of another size.
DumpComparison CompareDumps(const std::string& a,
                            const std::vector<DumpFile>& of_a,
                            const std::string& b,
                            const std::vector<DumpFile>& of_b);

}  // namespace onnx_fp8
