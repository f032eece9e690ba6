// SPDX-License-Identifier: Apache-2.0
//
// Prints the forecast of a step (step_forecast.h) as text, and makes it JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "cli/report/step_forecast.h"

namespace onnx_fp8 {

nlohmann::ordered_json ForecastJson(const StepForecast& forecast,
                                    const ForecastSpec& spec);
void PrintForecast(const StepForecast& forecast, const ForecastSpec& spec,
                   std::ostream& out);

}  // namespace onnx_fp8
