// SPDX-License-Identifier: Apache-2.0
#include "cli/calibration_data.h"

#include "cli/output.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {

Dataset CalibrationData(const OptionSet& options,
                        const TrainingSession& session) {
  const DataLayout layout =
      LayOutData(session.Inputs(), session.Loss(), DataOf(options));
  DatasetSpec spec =
      MakeDatasetSpec(options.List("data"), layout, BudgetsOf(options));
  spec.shuffle = true;
  spec.drop_last = true;
  Dataset data(spec);
  Notes(data.notes());
  return data;
}

}  // namespace onnx_fp8
