// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/dump_spec.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/joined.h"
#include "base/number_text.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {

DumpSpec ParseDump(const std::vector<std::string>& layers,
                   const std::vector<std::string>& steps,
                   const std::vector<std::string>& what) {
  DumpSpec spec{.layers = layers};
  if (layers.empty() != steps.empty()) {
    throw OptionError(layers.empty() ? "`at_steps` needs `dump`"
                                     : "`dump` needs `at_steps`");
  }
  if (layers.empty() && !what.empty()) {
    throw OptionError("`what` needs `dump`");
  }
  for (const std::string& text : steps) {
    int64_t step = 0;
    if (!ReadNumber(text, &step) || step < 1) {
      throw OptionError(Concat(
          "`at_steps`: expected whole numbers from 1, got \"", text, "\""));
    }
    spec.steps.insert(step);
  }
  const std::vector<std::string> known(std::begin(kDumpedOperands),
                                       std::end(kDumpedOperands));
  for (const std::string& word : what.empty() ? known : what) {
    if (std::ranges::count(known, word) == 0) {
      throw OptionError(Concat("`what`: expected words of ", Joined(known),
                               ", got \"", word, "\""));
    }
    spec.operands.insert(word);
  }
  return spec;
}

}  // namespace onnx_fp8
