// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/joined.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/text.h"
#include "training/run/compare_dumps.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

using DumpJson = nlohmann::ordered_json;

const Option kCompareOptions[] = {
    {"Own", "DUMP", OptionKind::kFiles,
     "two that `dump` wrote, A and B: each is the folder of a run, its folder "
     "dumps, or one file"},
};

CommandHelp CompareHelp() {
  return {"compare",
          "Where two dumps of `dump` part first, in the order of the step, and "
          "by how much.",
          {{"Options", {"Own", "JSON", "Machine"}}},
          {"onnx-fp8 compare runs/tensorwise runs/rowwise",
           "onnx-fp8 compare runs/cpu runs/gpu --json"}};
}

std::string OrDash(const std::optional<double>& number) {
  return number ? Number(*number, 3) : "-";
}

std::string CountText(const TensorDifference& part) {
  if (part.a_type != part.b_type) {
    return Concat(part.a_type, " in A and ", part.b_type, " in B");
  }
  return Concat(part.differing, " of ", part.elements);
}

// One line: the dump, its recipe and its provider.
void PrintSource(const std::string& name, const std::string& path,
                 const DumpFile& dump) {
  Out() << "  " << name << "  " << Printable(path) << ": "
        << Printable(dump.recipe) << ", " << Printable(dump.provider) << "\n";
}

// The tensors that differ.
Table TableOf(const DumpComparison& all) {
  Table table({"step", "batch", "layer", "GEMM", "operand", "first part",
               "differing", "codes", "max abs", "relative", "SQNR"});
  for (const ComparedTensor& tensor : all.tensors) {
    const TensorDifference* first = tensor.First();
    if (!first) continue;
    const TensorDifference* codes = tensor.Find("codes");
    const TensorDifference& apart = *tensor.Numbers();
    const DumpedTensor& label = tensor.label;
    const std::string use =
        label.use > 1 ? Concat(".", label.use) : std::string();
    table.Row({std::to_string(tensor.step), std::to_string(tensor.batch),
               label.fqn, label.gemm + use, label.operand, first->part,
               CountText(*first), codes ? CountText(*codes) : "-",
               OrDash(apart.max_abs), OrDash(apart.relative),
               apart.sqnr ? Fixed(*apart.sqnr, 1) + " dB" : "-"});
  }
  return table;
}

void PrintFirst(const ComparedTensor& tensor) {
  const TensorDifference& first = *tensor.First();
  const TensorDifference& apart = *tensor.Numbers();
  const TensorDifference* codes = tensor.Find("codes");
  Out() << "they part in step " << tensor.step << ", micro-batch "
        << tensor.batch << ", at "
        << Printable(DumpedName(tensor.label, first.part)) << ": "
        << CountText(first) << " differ\n";
  if (codes && codes != &first) {
    Out() << "  codes: " << CountText(*codes) << " differ\n";
  }
  Out() << "  " << apart.part << ": max abs " << OrDash(apart.max_abs)
        << ", relative " << OrDash(apart.relative) << ", SQNR "
        << (apart.sqnr ? Fixed(*apart.sqnr, 1) + " dB" : "-") << "\n";
}

void PrintAlone(const char* name, const std::vector<std::string>& tensors) {
  if (tensors.empty()) return;
  Out() << "only in " << name << ": " << Printable(Joined(tensors)) << "\n";
}

DumpJson JsonOfPart(const TensorDifference& part) {
  DumpJson json = {{"part", part.part},
                   {"elements", part.elements},
                   {"differing", part.differing}};
  if (part.a_type != part.b_type) {
    json["types"] = {part.a_type, part.b_type};
  }
  if (part.max_abs) json["max_abs"] = *part.max_abs;
  if (part.relative) json["relative"] = *part.relative;
  if (part.sqnr) json["sqnr"] = *part.sqnr;
  return json;
}

DumpJson JsonOfTensor(const ComparedTensor& tensor) {
  DumpJson json = {{"step", tensor.step},
                   {"batch", tensor.batch},
                   {"fqn", tensor.label.fqn},
                   {"gemm", tensor.label.gemm},
                   {"operand", tensor.label.operand},
                   {"use", tensor.label.use},
                   {"same", tensor.First() == nullptr}};
  json["parts"] = DumpJson::array();
  for (const TensorDifference& part : tensor.parts) {
    json["parts"].push_back(JsonOfPart(part));
  }
  return json;
}

DumpJson JsonOfAll(const DumpComparison& all) {
  DumpJson json = {{"steps", all.steps},
                   {"compared", all.tensors.size()},
                   {"differing", all.differing()}};
  const ComparedTensor* first = all.First();
  json["first"] = first ? JsonOfTensor(*first) : DumpJson();
  json["tensors"] = DumpJson::array();
  for (const ComparedTensor& tensor : all.tensors) {
    json["tensors"].push_back(JsonOfTensor(tensor));
  }
  json["only_a"] = all.only_a;
  json["only_b"] = all.only_b;
  return json;
}

}  // namespace

int Compare(const Arguments& arguments) {
  Flags flags(CompareHelp(), kCompareOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"DUMP"});
  const std::vector<std::string> paths = flags.List("DUMP");
  if (paths.size() != 2) {
    throw OptionError(Concat("DUMP: expected two, got ", paths.size()));
  }
  const std::string &a = paths[0], &b = paths[1];
  ApplyMachine(flags);
  const std::vector<DumpFile> of_a = ReadDumps(a), of_b = ReadDumps(b);
  const DumpComparison all = CompareDumps(a, of_a, b, of_b);
  if (flags.On("json")) {
    Out() << JsonLine(JsonOfAll(all));
    return 0;
  }
  PrintSource("A", a, of_a.front());
  PrintSource("B", b, of_b.front());
  Out() << all.tensors.size() << " tensors of " << all.steps.size()
        << (all.steps.size() == 1 ? " step, " : " steps, ") << all.differing()
        << " differ\n";
  if (const ComparedTensor* first = all.First()) {
    PrintFirst(*first);
    TableOf(all).Print(Out());
  }
  PrintAlone("A", all.only_a);
  PrintAlone("B", all.only_b);
  return 0;
}

}  // namespace onnx_fp8
