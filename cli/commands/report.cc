// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "cli/output_place.h"
#include "cli/report/text.h"
#include "cli/report_page/page.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

const Option kReportOptions[] = {
    {"Own", "RUN", OptionKind::kFiles,
     "the folders of up to 8 runs, which `train()` writes to `out`"},
};

CommandHelp ReportHelp() {
  return {"report",
          "One HTML page about runs, which a browser opens offline: losses, "
          "gradient norms, heat maps of the casts to FP8 (of runs with "
          "`stats`), skipped steps and settings.",
          {{"Options", {"Own", "Output", "Machine"}}},
          {"onnx-fp8 report runs/digits -o report.html",
           "onnx-fp8 report runs/fp32 runs/tensorwise runs/delayed -o "
           "report.html"}};
}

// Errors: the page can't be written there, or would replace a file that is no
// such page.
void RequirePlace(const std::string& out) {
  RequireFolderOf(out);
  Check(!IsFolder(out), "[", out,
        "] is a folder: expected the name of a page, such as report.html");
  if (!PathExists(out)) return;
  const InputFile old(out);
  std::string begin(std::min<uint64_t>(old.size(), kPageBegin.size()), '\0');
  old.Read(begin.data(), begin.size(), 0);
  Check(begin == kPageBegin, "[", out,
        "] is there, and is no page of `report()`: remove it, or take another "
        "name");
}

std::vector<RunRecord> ReadRuns(const std::vector<std::string>& folders) {
  std::vector<RunRecord> runs;
  for (const std::string& folder : folders) {
    RunRecord& run = runs.emplace_back(ReadRunRecord(folder));
    for (const std::string& note : run.notes) Note(folder + ": " + note);
  }
  return runs;
}

}  // namespace

int Report(const Arguments& arguments) {
  Flags flags(ReportHelp(), kReportOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"RUN", "out"});
  const std::vector<std::string> folders = flags.List("RUN");
  const std::string out = flags.Text("out");
  if (folders.size() > kMostReportedRuns) {
    throw OptionError(Concat("RUN: expected at most ", kMostReportedRuns,
                             " folders, got ", folders.size()));
  }
  ApplyMachine(flags);
  RequirePlace(out);
  const std::vector<RunRecord> runs = ReadRuns(folders);
  const std::string page = ReportPage(runs);
  WriteFileAtomically(out, page);
  size_t rows = 0;
  for (const RunRecord& run : runs) rows += run.casts.size();
  Out() << Printable(out) << ": " << runs.size()
        << (runs.size() == 1 ? " run, " : " runs, ")
        << (rows > 0 ? Concat("heat maps of ", rows, " tensors, ")
                     : std::string("no statistics (--stats makes them), "))
        << ByteText(page.size()) << "\n";
  return 0;
}

}  // namespace onnx_fp8
