// SPDX-License-Identifier: Apache-2.0
#include "tests/support/corpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/check.h"
#include "tests/support/left_out.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

std::vector<CorpusFile> FindFiles() {
  std::vector<CorpusFile> files = FilesIn(SourcePath("tests/fixtures"), true);
  const char* given = std::getenv("ONNX_FP8_CORPUS");
  std::string corpus = given ? given : SourcePath("../shared/corpus");
  std::vector<CorpusFile> more = FilesIn(corpus, false);
  std::string missing = WhatIsMissing(corpus, more);
  if (!missing.empty()) LeaveOut(missing);
  files.insert(files.end(), more.begin(), more.end());
  return files;
}

}  // namespace

nlohmann::json CorpusFile::Json(const std::string& file) const {
  std::ifstream in(folder + "/" + file);
  Check(in.good(), "[", folder, "/", file, "] can't be read");
  return nlohmann::json::parse(in);
}

std::vector<CorpusFile> FilesIn(const std::string& folder, bool fixture) {
  std::vector<CorpusFile> files;
  std::error_code none;
  for (const auto& home : fs::directory_iterator(folder, none)) {
    if (!fs::exists(home.path() / "reference.json")) continue;
    for (const auto& entry : fs::directory_iterator(home)) {
      if (entry.path().extension() != ".onnx") continue;
      files.push_back(
          {home.path().filename(), entry.path().stem(), home.path(), fixture});
    }
  }
  std::ranges::sort(files, {}, [](const CorpusFile& file) {
    return std::pair(file.name, file.variant);
  });
  return files;
}

std::string WhatIsMissing(const std::string& path,
                          const std::vector<CorpusFile>& files) {
  std::set<std::string> there;
  for (const CorpusFile& file : files) {
    there.insert(file.name + "/" + file.variant);
  }
  std::ifstream list(SourcePath("tests/support/corpus_files.txt"));
  Check(list.good(), "tests/support/corpus_files.txt can't be read");
  size_t known = 0, missing = 0;
  std::string first;
  for (std::string line; std::getline(list, line); ++known) {
    if (there.contains(line)) continue;
    if (missing++ == 0) first = line;
  }
  if (missing == 0) return "";
  return Concat(missing, " of the ", known, " files of the corpus at ", path,
                ", the first of which is ", first);
}

const std::vector<CorpusFile>& CorpusFiles() {
  static const std::vector<CorpusFile> files = FindFiles();
  return files;
}

std::vector<CorpusFile> WithVariants(const std::vector<std::string>& variants) {
  std::vector<CorpusFile> chosen;
  for (const CorpusFile& file : CorpusFiles()) {
    bool wanted = std::ranges::find(variants, file.variant) != variants.end();
    if (wanted) chosen.push_back(file);
  }
  return chosen;
}

std::string CorpusTestName(const testing::TestParamInfo<CorpusFile>& info) {
  return (info.param.fixture ? "fixture_" : "") + info.param.name + "_" +
         info.param.variant;
}

void PrintTo(const CorpusFile& file, std::ostream* out) {
  *out << file.model();
}

}  // namespace onnx_fp8
