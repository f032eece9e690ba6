// SPDX-License-Identifier: Apache-2.0
//
// A validation as one number, its score: the larger, the better. Checkpoints
// keep scores in their notes, so that a resumed run compares with them.
#pragma once

#include <map>
#include <string>

#include "onnx_fp8/early_stop.h"
#include "onnx_fp8/evaluate.h"

namespace onnx_fp8 {

// `criterion`: "loss" or "accuracy". NaN: the validation has no such number.
double ScoreOf(const std::string& criterion, const Evaluation& evaluation);

// The number in the text of a note, NumberText's. Errors: another text; the
// message names the note and `folder`.
double ScoreIn(const std::string& text, const std::string& note,
               const std::string& folder);

// What `stop` has seen, as notes, and the reverse. Notes of another criterion,
// or none, leave `stop` as it is. Errors: ScoreIn's and CountIn's.
void AddNotes(const EarlyStop& stop, const std::string& criterion,
              std::map<std::string, std::string>* notes);
void ReadNotes(const std::map<std::string, std::string>& notes,
               const std::string& criterion, const std::string& folder,
               EarlyStop* stop);

}  // namespace onnx_fp8
