// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "data/scaled_weights.h"

namespace onnx_fp8 {

// Gives weights of a file the names that a model has for them. A rename is
// OLD=NEW, as in model.*=*: a * in OLD matches any text, as short as possible,
// and the first * in NEW stands for the text of the first one in OLD, and so
// on. The first rename that matches a name counts. `path` names the file in
// messages. Errors: a rename that matches no name; two weights of one name.
void RenameWeights(const std::vector<std::string>& renames,
                   const std::string& path, StoredWeights* weights);

// Errors: OptionError about a text that is no rename.
void CheckRenames(const std::vector<std::string>& renames);

}  // namespace onnx_fp8
