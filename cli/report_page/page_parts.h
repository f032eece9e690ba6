// SPDX-License-Identifier: Apache-2.0
//
// The parts of a report's page, as cmake/report_page.cmake has put them into
// the program.
#pragma once

#include <string_view>

namespace onnx_fp8 {

extern const std::string_view kPageHtml;    // page.html
extern const std::string_view kPageCss;     // page.css
extern const std::string_view kPageScript;  // page.js
extern const std::string_view kPageCharts;  // Chart.js, minified

}  // namespace onnx_fp8
