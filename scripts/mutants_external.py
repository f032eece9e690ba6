# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: external data, and models of any size."""
from mutants import M, Test, base, cli, graph, python

COPY = base("CopyFileTest.*")
OTHER = python("external_data")

MUTANTS = (
    M("copy: holes are filled", "onnx_fp8/copy_file.cc",
      "    if (begin < 0) return {at, size_};\n", "    return {at, size_};\n",
      COPY),
    M("copy: only what the kernel copies", "onnx_fp8/copy_file.cc",
      "std::vector<char> buffer(begin < end ? kBuffer : 0);",
      "begin = end;\n  std::vector<char> buffer;", COPY),
    M("copy: a hole at the end is lost", "onnx_fp8/copy_file.cc",
      "out.Skip(begin - done);", "if (begin < end) out.Skip(begin - done);",
      COPY),
    M("copy: the temporary file stays", "onnx_fp8/file.cc",
      "    RemoveTree(temporary);\n    throw;", "    throw;", COPY, OTHER),
    M("copy: compares the beginning", "onnx_fp8/copy_file.cc",
      "if (std::memcmp(p.data(), q.data(), count) != 0) return false;\n"
      "    done += count;",
      "if (std::memcmp(p.data(), q.data(), count) != 0) return false;\n"
      "    done = x.size();", COPY),
    M("external copy: also into the own folder", "graph/external_copy.cc",
      "    if (fs::equivalent(from, to, none)) return;\n", "", OTHER),
    M("external copy: over the model's data", "graph/external_copy.cc",
      "    CheckApart(to, location);\n", "",
      Test("test_bad_input", "external")),
    M("external copy: beside links", "graph/external_copy.cc",
      "    CheckPlain(to_folder, name);\n", "    CheckPlain(to_folder, {});\n",
      Test("test_bad_input", "external")),
    M("external copy: replaces what is there", "graph/external_copy.cc",
      "if (!same) Refuse(task);", "if (!same) Copy(task);", OTHER),
    M("external copy: copies before it compares", "graph/external_copy.cc",
      "    for (const auto& [to, task] : present_) Compare(task);\n",
      "    for (const auto& [to, task] : absent_) Copy(task);\n"
      "    for (const auto& [to, task] : present_) Compare(task);\n", OTHER),
    M("external copy: goes on after Ctrl-C", "cli/progress.cc",
      "if (Interrupted()) {", "if (false) {", cli("Progress*")),
    M("mapped file: must fit into memory", "onnx_fp8/mapped_file.cc",
      "MAP_PRIVATE | MAP_NORESERVE", "MAP_PRIVATE", OTHER),
    M("tensor: zeros are written", "onnx_fp8/tensor.cc",
      "if (data == MAP_FAILED) Fail(OutOfMemoryText(bytes));",
      "if (data == MAP_FAILED) Fail(OutOfMemoryText(bytes));\n"
      "  for (size_t i = 0; i < bytes; i += 4096) {\n"
      "    static_cast<volatile char*>(data)[i] = 0;\n  }", OTHER),
    M("rewrite: functions that hold a product stay", "graph/rewrite_model.cc",
      "if (function != functions.end()) admitted.insert(function->second);",
      "if (function == functions.end()) admitted.insert({});",
      python("functions")),
    M("rewrite: all functions that hold a product go",
      "graph/rewrite_model.cc",
      "if (!decision.fp8 || mark == metadata.end()) continue;",
      "if (mark == metadata.end()) continue;", python("functions")),
    M("functions: a call's default attributes are lost",
      "graph/inline_functions.cc", "if (!given.contains(attribute.name())) {",
      "if (false) {", python("functions")),
    M("functions: nodes have the model's opset", "graph/inline_functions.cc",
      "if (!stays && own != opset)", "if (false)", python("functions")),
    M("functions: outputs that nobody computes", "graph/check_functions.cc",
      "!inputs.contains(name) && scopes_.back().contains(name)", "true",
      python("output_that")),
    M("inference: an input without a type is none", "graph/infer_shapes.cc",
      "    type_of[value->name] = &it->second;\n",
      "    if (value->dtype != DType::kUndefined) {\n"
      "      type_of[value->name] = &it->second;\n    }\n",
      Test("test_fuzz", "*model")),
    M("views: every way back is walked", "graph/views.cc",
      "} else if (seen.insert(value).second) {", "} else {",
      graph("WeightBehind.*")),
    M("views: the last weight counts", "graph/views.cc",
      "open.insert(open.end(), in.rbegin(), in.rend());",
      "open.insert(open.end(), in.begin(), in.end());",
      graph("WeightBehind.*")),
)
