// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/onnx_node_cases.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "base/check.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/upgrade.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

struct Exclusion {
  const char* prefix;  // of the case's name; with "$" at its end, the whole
                       // name
  const char* reason;
};

constexpr Exclusion kExclusions[] = {
    {"test_ai_onnx_ml_", "domain ai.onnx.ml"},
    {"test_adagrad", "domain ai.onnx.preview.training"},
    {"test_adam", "domain ai.onnx.preview.training"},
    {"test_momentum", "domain ai.onnx.preview.training"},
    {"test_nesterov_momentum", "domain ai.onnx.preview.training"},
    {"test_bernoulli", "random results"},
    // -236, -139 and -136 are expected as 20, 117 and 120 (with float16 scales
    // one less), which is NumPy's cast. ONNX's text says saturate(), and
    // onnxruntime gives -128: test_integer_ops.py compares with that.
    {"test_qlinearmatmul_2D_int8_", "expects codes to wrap around"},
    {"test_qlinearmatmul_3D_int8_", "expects codes to wrap around"},
    // ONNX's text says length_resized, the size of the result, and PyTorch and
    // onnxruntime compute so: test_operator_details.py compares with them.
    {"test_resize_downsample_scales_cubic_align_corners",
     "expects corners of a length that is not rounded"},
    {"test_resize_downsample_scales_linear_align_corners",
     "expects corners of a length that is not rounded"},
    {"test_training_dropout$", "NumPy's random numbers"},
    {"test_training_dropout_default", "NumPy's random numbers"},
    {"test_training_dropout_mask", "NumPy's random numbers"},
};

// Import refuses opsets below 7. In such cases, the ops for which we have
// kernels have not changed since, so the files are read without import.
std::unique_ptr<Graph> Read(const OnnxCase& node_case) {
  std::string path = node_case.folder + "/model.onnx";
  auto graph = ReadModel(path, {.as_is = true});
  return graph->opset < kOldestOpset ? std::move(graph) : ReadModel(path);
}

bool HasTypes(const std::vector<Value*>& values) {
  return std::ranges::all_of(values, [](const Value* value) {
    return !value->is_sequence && ByteSize(value->dtype) > 0;
  });
}

bool HasKernels(const Graph& graph) {
  return std::ranges::all_of(graph.nodes(), [](const Node& node) {
    return CpuKernels().Find(node.domain, node.op) != nullptr;
  });
}

// Cases whose expected results were typed in with four digits. They get ONNX's
// own tolerance, 1e-3.
constexpr const char* kFourDigits[] = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad",
    "test_gridsample_bicubic",
    "test_roialign_aligned_false",
    "test_roialign_aligned_true",
};

// |a - b| may be up to relative * |b| + absolute.
struct Tolerance {
  double relative, absolute;
};

Tolerance ToleranceOf(DType dtype, bool four_digits) {
  if (four_digits) return {1e-3, 1e-7};
  switch (dtype) {
    case DType::kFloat:
      return {1e-4, 1e-6};
    case DType::kDouble:
      return {1e-6, 1e-9};
    // Two units in the last place.
    case DType::kFloat16:
      return {2 * 0x1p-10, 1e-6};
    case DType::kBFloat16:
      return {2 * 0x1p-7, 1e-6};
    default:
      return {0, 0};
  }
}

bool Near(double got, double expected, Tolerance tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (got == expected) return true;  // also for infinities
  return std::abs(got - expected) <=
         tolerance.relative * std::abs(expected) + tolerance.absolute;
}

std::string Compare(const Tensor& got, const Tensor& expected,
                    bool four_digits) {
  if (!got.defined()) return "no result";
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape()) {
    return Concat("expected ", Name(expected.dtype()),
                  ToString(expected.shape()), ", got ", Name(got.dtype()),
                  ToString(got.shape()));
  }
  Tolerance tolerance = ToleranceOf(got.dtype(), four_digits);
  int64_t wrong = 0, first = 0;
  for (int64_t i = got.size(); i-- > 0;) {
    bool same = IsInteger(got.dtype()) || got.dtype() == DType::kBool
                    ? IntAt(got, i) == IntAt(expected, i)
                    : Near(DoubleAt(got, i), DoubleAt(expected, i), tolerance);
    if (same) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return "";
  return Concat(wrong, " of ", got.size(), " elements differ; at ", first,
                " expected ", DoubleAt(expected, first), ", got ",
                DoubleAt(got, first));
}

std::map<const Value*, Tensor> Evaluate(const Graph& graph,
                                        const fs::path& data) {
  std::map<const Value*, Tensor> values;
  for (const Value* value : graph.Initializers()) values[value] = value->data;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    values[graph.inputs[i]] =
        ReadTensorProto(data / ("input_" + std::to_string(i) + ".pb"));
  }
  auto evaluator = MakeCpuEvaluator();
  for (const Node& node : graph.nodes()) {
    std::vector<Tensor> inputs;
    for (const Value* value : node.inputs()) {
      inputs.push_back(value ? values.at(value) : Tensor());
    }
    std::vector<Tensor> outputs = evaluator->Evaluate(node, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.out(i)) values[node.out(i)] = outputs[i];
    }
  }
  return values;
}

std::string RunDataSet(const Graph& graph, const fs::path& data,
                       bool four_digits) {
  std::map<const Value*, Tensor> values = Evaluate(graph, data);
  std::string differences;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value* output = graph.outputs[i];
    Tensor expected =
        ReadTensorProto(data / ("output_" + std::to_string(i) + ".pb"));
    std::string difference = Compare(values.at(output), expected, four_digits);
    if (difference.empty()) continue;
    differences += Concat(data.filename().string(), ", output ", i, " (",
                          output->name, "): ", difference, "\n");
  }
  return differences;
}

std::vector<fs::path> SortedEntries(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder)) {
    entries.push_back(entry.path());
  }
  std::ranges::sort(entries);
  return entries;
}

}  // namespace

std::string Excluded(const std::string& name) {
  for (const Exclusion& exclusion : kExclusions) {
    if ((name + "$").starts_with(exclusion.prefix)) return exclusion.reason;
  }
  return "";
}

OnnxCases FindNodeCases() {
  std::string folder = NodeCasesFolder();
  Check(fs::is_directory(folder), "[", folder,
        "] expected the folder of ONNX's node cases; configure with "
        "ONNX_FP8_PYTHON, as `./dev build` does");
  OnnxCases cases;
  for (const fs::path& entry : SortedEntries(folder)) {
    OnnxCase node_case = {entry.filename(), entry};
    if (!Excluded(node_case.name).empty()) {
      cases.excluded.push_back(node_case.name);
      continue;
    }
    try {
      auto graph = Read(node_case);
      if (!HasTypes(graph->inputs) || !HasTypes(graph->outputs)) {
        cases.without_type.push_back(node_case.name);
      } else if (!HasKernels(*graph)) {
        cases.without_kernel.push_back(node_case.name);
      } else {
        cases.runnable.push_back(node_case);
      }
    } catch (const Error& error) {
      cases.unreadable.push_back(node_case.name + ": " + error.what());
    }
  }
  return cases;
}

std::string RunNodeCase(const OnnxCase& node_case) {
  try {
    auto graph = Read(node_case);
    bool four_digits = std::ranges::count(kFourDigits, node_case.name) > 0;
    std::string differences;
    for (const fs::path& entry : SortedEntries(node_case.folder)) {
      if (!fs::is_directory(entry)) continue;
      differences += RunDataSet(*graph, entry, four_digits);
    }
    return differences;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace onnx_fp8
