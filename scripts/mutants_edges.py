# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: what lies at the edge. No memory, no disk,
flags and files of an odd kind, tables that look like weights."""
from mutants import M, Test, base, cli, graph, python, training

NEW = cli("OperatorNew*")
LITTLE = python("first_byte or little_memory")
OLD = python("old_opsets")
RULE = graph("*TrainedParameters*")
SHAPES = training("*Shapes.*")
FEED_FORWARD = Test("test_training_slow", "*FeedForwardSqnr*")

MEMORY = (
    M("memory: no reserve for the message", "cli/operator_new.cc",
      "  onnx_fp8::KeepReserve();\n", "", NEW),
    M("memory: the reserve is kept for ever", "cli/operator_new.cc",
      "  onnx_fp8::FreeReserve();\n", "", NEW),
    M("memory: `new` does not tell the amount", "cli/operator_new.cc",
      "  failed_bytes = bytes;\n", "", LITTLE),
    M("memory: any exception is told as its end", "cli/operator_new.cc",
      "|| !memory", "|| (!memory && !thrown)", NEW),
    M("memory: a file that can't be mapped is no matter of memory",
      "onnx_fp8/mapped_file.cc",
      "if (error == ENOMEM)", "if (error == -ENOMEM)", LITTLE),
    M("parallel: an error in a task is lost", "onnx_fp8/parallel.cc",
      "  error.Rethrow();\n", "", base("Parallel.*")),
    M("parallel: an error of a thread ends the process",
      "onnx_fp8/parallel.cc",
      "    } catch (...) {\n      error.Keep(i);",
      "    } catch (int) {\n      error.Keep(i);",
      base("Parallel.*")),
)

RUNS = (
    M("run folder: two may have it", "cli/run_folder.cc",
      "Check(flock(fd, LOCK_EX | LOCK_NB) == 0,",
      "Check(flock(fd, LOCK_SH | LOCK_NB) == 0,",
      python("two_starts or only_one_process")),
    M("train: a folder for what is refused", "cli/train.cc",
      "    ReadFolder();\n", "    ReadFolder();\n    MakeFolder();\n",
      python("written_files")),
    M("train: what has no gradient is found by the first step",
      "cli/model_outputs.cc", "  RequireNoForward(*graph);\n", "",
      python("written_files")),
    M("trainer: a full disk ends the run", "cli/trainer.cc",
      "    result_.save_error = error.what();\n", "    throw;\n",
      python("full_disk")),
    M("train: a last step that is not saved is no error", "cli/train.cc",
      'Check(r.saved, "the last', 'Check(true, "the last',
      python("full_disk")),
    M("file: why it can't be written is not said", "onnx_fp8/file.cc",
      "std::generic_category().message(error)", "error",
      python("nothing_can_be_written")),
    M("cli: what is printed for a shell is not quoted", "cli/flags.cc",
      "bool plain =\n        !word.empty() &&",
      "bool plain =\n        !word.empty() ||", python("paths_with")),
)

FLAGS = (
    M("shape: axes without a name have none", "cli/options.cc",
      'Concat(input.name, ".", i)', '""', cli("ShapeFlagTest.*"),
      python("axes_without")),
    M("inspect: prints other names than --shape takes", "cli/model_report.cc",
      "name = AxisName(input, i);",
      'if (name.empty()) name = Concat(input.name, "_", i);',
      python("axes_without")),
    M("groups: by the file's names only", "training/step_graph.cc",
      "known == source_.fp8.names.end() ? parameter",
      "known != source_.fp8.names.begin() ? parameter",
      training("Session.Groups*")),
    M("groups: of one graph's parameters", "training/step_graph.cc",
      "      names.insert({value->name, Fqn(value->name)});\n",
      "      const Value* here = step_.graph->Find(value->name);\n"
      "      if (!here || here->uses.empty()) continue;\n"
      "      names.insert({value->name, Fqn(value->name)});\n", SHAPES),
    M("patterns: of one graph's parameters", "training/step_graph.cc",
      "if (!here || here->uses.empty()) names.push_back(value->name);",
      "if (!here && here) names.push_back(value->name);", SHAPES),
    M("value: any input has one", "cli/options.cc",
      "if (!MayBeKey(input->dtype, shape)) {", "if (false) {",
      Test("test_bad_input", "value_of")),
    M("value: any number is one", "cli/options.cc",
      "if (!ok || error != std::errc() || stop != end) {\n"
      "      throw UsageError(\n"
      '          "--value:', "if (!ok || error != std::errc()) {\n"
      "      throw UsageError(\n"
      '          "--value:', Test("test_bad_input", "value_of")),
    M("tie: any two are equal", "graph/passes/trained_parameters.cc",
      "Check(transposed.has_value(),", "Check(true,",
      Test("test_bad_input", "tie_of")),
)

FORMS = (
    M("fuse attention: a mask of one element is a triangle",
      "graph/passes/fuse_attention.cc",
      "  if (scores.dim(-2) != n || x.rank() < 2 || x.dim(-2) != n || "
      "x.dim(-1) != n ||\n      x.size() != n * n) {",
      "  if (x.rank() >= 2 && x.size() == 1) n = 1;\n"
      "  if (x.rank() < 2 || x.size() != n * n) {",
      graph("FuseAttention*")),
    M("tables: half types are not known in float",
      "graph/passes/fixed_tables.cc", "? 4e-3", "? 1e-5", RULE),
    M("tables: bfloat16 is float16", "graph/passes/fixed_tables.cc",
      "? 3e-2", "? 4e-3", RULE),
    M("tables: a Fourier basis is a weight", "graph/passes/fixed_tables.cc",
      "return plus || minus;", "return plus && minus;", RULE),
    M("tables: cosines make a Fourier basis", "graph/passes/fixed_tables.cc",
      "plus &= fits && std::fabs(sine - window * std::sin(angle)) <= room;",
      "plus &= fits && !std::isnan(sine);", RULE),
    M("tables: zeros are a Fourier basis", "graph/passes/fixed_tables.cc",
      "  if (largest == 0) return false;\n", "", RULE),
    M("trained: behind Pad it is not", "graph/passes/trained_parameters.cc",
      'return node.op == "Resize" || node.op == "Pad";',
      'return node.op == "Resize";', RULE),
    M("trained: a number in Max is", "graph/passes/trained_parameters.cc",
      'return node.op == "Max" || node.op == "Min" || node.op == "Pow";',
      'return node.op == "Pow";', RULE),
    M("upgrade: DFT's default axis is the newer one", "graph/old_forms.cc",
      'node->Int("axis", 1));\n  node->attributes.erase("axis");',
      'node->Int("axis", -2));\n  node->attributes.erase("axis");',
      graph("Upgrade.*")),
    M("upgrade: bounds of Clip stay attributes", "graph/upgrade.cc",
      '    {11, "Clip", "min", 1},\n', "", OLD),
    M("upgrade: axes of Squeeze stay an attribute", "graph/upgrade.cc",
      '    {13, "Squeeze", "axes", 1},\n', "", OLD),
    M("upgrade: an old Resize rounds down where it shrinks",
      "graph/old_forms.cc", 'AsymmetricAttributes(*node, "ceil")',
      'AsymmetricAttributes(*node, "floor")', OLD),
    M("upgrade: `spatial` 0 is 1", "graph/old_forms.cc",
      "if (spatial) return node;", "if (spatial || node) return node;", OLD),
    M("upgrade: an old Scan has a batch", "graph/upgrade.cc",
      '    {9, "Scan", ScanOfBatches},\n', "", OLD),
    M("upgrade: an old mask is of bool", "graph/upgrade.cc",
      '    {10, "Dropout", DropoutMask},\n', "", OLD),
    M("upgrade: an old RoiAlign has half pixels", "graph/upgrade.cc",
      '    {16, "RoiAlign", RoiAlignDefault},\n', "",
      graph("Upgrade.*")),
)

CASTS = (
    M("sqnr: a feed-forward's blocks are rounded up",
      "graph/passes/operand_copies.cc", "return 2;", "return 1;",
      FEED_FORWARD),
    M("sqnr: a feed-forward's weights in blocks of rows",
      "onnx_fp8/recipe.cc", "weight.square = true;", "", FEED_FORWARD),
)

MUTANTS = MEMORY + RUNS + FLAGS + FORMS + CASTS
