// SPDX-License-Identifier: Apache-2.0
#include "python/keywords.h"

#include <regex>

#include "cli/api_names.h"

namespace onnx_fp8 {
namespace {

std::string WithUnderscores(std::string name) {
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

}  // namespace

std::string InKeywords(const std::string& message) {
  std::string text = InFlags(message);
  // "`onnx-fp8 rewrite --loss`" → "`onnx_fp8.rewrite` with `loss`".
  static const std::regex command("`onnx-fp8 ([a-z]+)( --[a-z-]+)?`");
  static const std::regex flag("(^|[^a-zA-Z0-9-])--([a-z][a-z0-9-]*)(=)?");
  static const std::regex shortened("^-o( |:)");
  std::string named;
  std::smatch match;
  for (; std::regex_search(text, match, command); text = match.suffix()) {
    named += match.prefix().str() + "`onnx_fp8." + match[1].str() + "`";
    if (match[2].matched) named += " with" + match[2].str();
  }
  text = std::regex_replace(named + text, shortened, "--out$1");
  // "did you mean --dtype bfloat16?" → "did you mean `dtype="bfloat16"`?"
  static const std::regex meant("(did you mean )--([a-z-]+) ([^?]+)\\?");
  if (std::regex_search(text, match, meant)) {
    text = match.prefix().str() + match[1].str() + "`" +
           WithUnderscores(match[2].str()) + "=\"" + match[3].str() + "\"`?" +
           match.suffix().str();
  }
  std::string result;
  for (; std::regex_search(text, match, flag); text = match.suffix()) {
    if (match.prefix().str().ends_with("./dev build")) {  // no option of ours
      result += match.prefix().str() + match.str();
      continue;
    }
    result += match.prefix().str() + match[1].str() + "`" +
              WithUnderscores(match[2].str()) + "`" + match[3].str();
  }
  result += text;
  static const std::regex model("^MODEL\\b"), folder("^DIR\\b");
  result = std::regex_replace(result, model, "`model`");
  result = std::regex_replace(result, folder, "`run`");
  static const std::regex no_flag("there is no flag ");
  return std::regex_replace(result, no_flag, "there is no option ");
}

}  // namespace onnx_fp8
