// SPDX-License-Identifier: Apache-2.0
#include "training/run/compare_dumps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/joined.h"

namespace onnx_fp8 {
namespace {

std::string TypeOf(const Tensor& tensor) {
  return Concat(Name(tensor.dtype()), " ", ToString(tensor.shape()));
}

int64_t CountDiffering(const Tensor& a, const Tensor& b) {
  const size_t size = ByteSize(a.dtype());
  const auto* x = static_cast<const char*>(a.raw());
  const auto* y = static_cast<const char*>(b.raw());
  int64_t differing = 0;
  for (size_t at = 0; at < a.bytes(); at += size) {
    differing += std::memcmp(x + at, y + at, size) != 0;
  }
  return differing;
}

// Leaves the numbers out if the two have no common shape, or are codes.
TensorDifference Compare(const std::string& part, const Tensor& a,
                         const Tensor& b) {
  TensorDifference made{.part = part, .elements = a.size()};
  if (a.dtype() != b.dtype() || a.size() != b.size()) {
    made.differing = a.size();
    made.a_type = TypeOf(a);
    made.b_type = TypeOf(b);
    return made;
  }
  made.differing = CountDiffering(a, b);
  if (part == "codes") return made;
  const Tensor x = ConvertTo(a, DType::kFloat);
  const Tensor y = ConvertTo(b, DType::kFloat);
  double largest = 0, most = 0, signal = 0, noise = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double from = x.data<float>()[i], to = y.data<float>()[i];
    if (!std::isfinite(from) || !std::isfinite(to)) continue;
    largest = std::max(largest, std::abs(from));
    most = std::max(most, std::abs(from - to));
    signal += from * from;
    noise += (from - to) * (from - to);
  }
  made.max_abs = most;
  if (largest > 0) made.relative = most / largest;
  if (noise > 0 && signal > 0) made.sqnr = 10 * std::log10(signal / noise);
  return made;
}

// Errors: tensors before the cast of two sizes.
ComparedTensor Compare(const DumpedTensor& a, const DumpedTensor& b,
                       const std::string& file_of_b) {
  ComparedTensor made;
  made.label = a;
  for (Tensor* own :
       {&made.label.value, &made.label.codes, &made.label.scale}) {
    *own = Tensor();
  }
  const auto add = [&](const char* part, const Tensor& x, const Tensor& y) {
    if (x.defined() && y.defined()) made.parts.push_back(Compare(part, x, y));
  };
  if (a.value.defined() && b.value.defined()) {
    Check(a.value.size() == b.value.size(), "[", file_of_b, ": ",
          DumpedName(b, "value"), "] expected ", a.value.size(),
          " elements, as in the other dump, got ", b.value.size(),
          ": were their batches of one size?");
  }
  add("value", a.value, b.value);
  add("scale", a.scale, b.scale);
  add("codes", a.codes, b.codes);
  if (a.has_codes() && b.has_codes()) add("decoded", Decoded(a), Decoded(b));
  return made;
}

std::set<int64_t> StepsOf(const std::vector<DumpFile>& dumps) {
  std::set<int64_t> steps;
  for (const DumpFile& dump : dumps) steps.insert(dump.step);
  return steps;
}

std::string TextOf(const std::set<int64_t>& steps) {
  std::vector<std::string> words;
  for (int64_t step : steps) words.push_back(std::to_string(step));
  return Joined(words);
}

// A key that each tensor of a file has alone.
using TensorKey = std::tuple<std::string, std::string, std::string, int64_t>;

TensorKey KeyOf(const DumpedTensor& t) {
  return {t.fqn, t.gemm, t.operand, t.use};
}

std::string NameIn(const DumpFile& dump, const DumpedTensor& tensor) {
  return Concat(
      "step ", dump.step,
      dump.batches > 1 ? Concat(", micro-batch ", dump.batch) : std::string(),
      ": ", DumpedName(tensor, ""));
}

void Compare(const DumpFile& a, const DumpFile& b, const std::string& path_of_b,
             DumpComparison* all) {
  std::map<TensorKey, const DumpedTensor*> others;
  for (const DumpedTensor& tensor : b.tensors) others[KeyOf(tensor)] = &tensor;
  for (const DumpedTensor& tensor : a.tensors) {
    const auto other = others.find(KeyOf(tensor));
    if (other == others.end()) {
      all->only_a.push_back(NameIn(a, tensor));
      continue;
    }
    ComparedTensor made = Compare(tensor, *other->second, path_of_b);
    made.step = a.step;
    made.batch = a.batch;
    all->tensors.push_back(std::move(made));
    others.erase(other);
  }
  for (const DumpedTensor& tensor : b.tensors) {
    if (others.contains(KeyOf(tensor))) {
      all->only_b.push_back(NameIn(b, tensor));
    }
  }
}

}  // namespace

const TensorDifference* ComparedTensor::First() const {
  const auto it = std::ranges::find_if_not(parts, &TensorDifference::same);
  return it == parts.end() ? nullptr : &*it;
}

const TensorDifference* ComparedTensor::Find(const std::string& part) const {
  const auto it = std::ranges::find(parts, part, &TensorDifference::part);
  return it == parts.end() ? nullptr : &*it;
}

const TensorDifference* ComparedTensor::Numbers() const {
  const TensorDifference* first = First();
  const bool cast = first && first->part != "value";
  return cast ? Find("decoded") : first;
}

const ComparedTensor* DumpComparison::First() const {
  const auto it = std::ranges::find_if(
      tensors, [](const ComparedTensor& t) { return t.First() != nullptr; });
  return it == tensors.end() ? nullptr : &*it;
}

int64_t DumpComparison::differing() const {
  return std::ranges::count_if(
      tensors, [](const ComparedTensor& t) { return t.First() != nullptr; });
}

DumpComparison CompareDumps(const std::string& a,
                            const std::vector<DumpFile>& of_a,
                            const std::string& b,
                            const std::vector<DumpFile>& of_b) {
  for (const auto* dumps : {&of_a, &of_b}) {
    for (const DumpFile& dump : *dumps) {
      Check(dump.model == of_a.front().model, "[", dumps == &of_a ? a : b,
            "] expected dumps of the model of ", a,
            ", got some of a model with other parameters or shapes");
    }
  }
  DumpComparison all;
  const std::set<int64_t> steps_of_a = StepsOf(of_a),
                          steps_of_b = StepsOf(of_b);
  std::ranges::set_intersection(steps_of_a, steps_of_b,
                                std::back_inserter(all.steps));
  Check(!all.steps.empty(), "[", b, "] expected one of the steps of ", a, ", ",
        TextOf(steps_of_a), ", got ", TextOf(steps_of_b));
  for (const DumpFile& one : of_a) {
    for (const DumpFile& other : of_b) {
      if (one.step != other.step || one.batch != other.batch) continue;
      Compare(one, other, b, &all);
    }
  }
  return all;
}

}  // namespace onnx_fp8
