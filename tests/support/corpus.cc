// SPDX-License-Identifier: Apache-2.0
#include "tests/support/corpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "onnx_fp8/check.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// Cases marked round 1 in the corpus' table.
std::set<std::string> Round1Names(const fs::path& corpus) {
  std::set<std::string> names;
  std::ifstream readme(corpus / "README.md");
  const std::string mark = "| **round 1** ";
  for (std::string line; std::getline(readme, line);) {
    if (!line.starts_with(mark)) continue;
    std::string rest = line.substr(mark.size());
    names.insert(rest.substr(0, rest.find(' ')));
  }
  return names;
}

void AddCases(const fs::path& root, bool fixture,
              std::vector<CorpusFile>* files) {
  std::set<std::string> round1 = Round1Names(root);
  for (const auto& folder : fs::directory_iterator(root)) {
    if (!fs::exists(folder.path() / "reference.json")) continue;
    std::string name = folder.path().filename();
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".onnx") continue;
      files->push_back({name, entry.path().stem(), folder.path(),
                        fixture || round1.contains(name), fixture});
    }
  }
}

std::vector<CorpusFile> FindFiles() {
  std::vector<CorpusFile> files;
  fs::path source = SourcePath("");
  if (fs::exists(source / "tests/fixtures")) {
    AddCases(source / "tests/fixtures", true, &files);
  }
  const char* given = std::getenv("ONNX_FP8_CORPUS");
  fs::path corpus = given ? fs::path(given) : source / "../shared/corpus";
  if (fs::exists(corpus)) {
    AddCases(corpus, false, &files);
  } else {
    std::cerr << "corpus not found at " << corpus.string()
              << ": its cases (28 models, 61 files) were not run\n";
  }
  std::ranges::sort(files, {}, [](const CorpusFile& file) {
    return std::tuple(!file.fixture, file.name, file.variant);
  });
  return files;
}

}  // namespace

nlohmann::json CorpusFile::Json(const std::string& file) const {
  std::ifstream in(folder + "/" + file);
  Check(in.good(), "[", folder, "/", file, "] can't be read");
  return nlohmann::json::parse(in);
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

std::vector<CorpusFile> Round1(const std::vector<std::string>& variants) {
  std::vector<CorpusFile> files = WithVariants(variants);
  std::erase_if(files, [](const CorpusFile& file) { return !file.round1; });
  return files;
}

std::string CorpusTestName(const testing::TestParamInfo<CorpusFile>& info) {
  return (info.param.fixture ? "fixture_" : "") + info.param.name + "_" +
         info.param.variant;
}

void PrintTo(const CorpusFile& file, std::ostream* out) {
  *out << file.model();
}

}  // namespace onnx_fp8
