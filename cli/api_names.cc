// SPDX-License-Identifier: Apache-2.0
#include "cli/api_names.h"

#include <utility>

namespace onnx_fp8 {
namespace {

// The first row that fits counts.
constexpr std::pair<const char*, const char*> kNames[] = {
    {"measure a `SpeedTable`", "measure: onnx-fp8 bench gemm --save FILE"},
    {"`StepFile` with `grad_accum`", "`onnx-fp8 rewrite --grad-accum`"},
    {"`StepFile`", "`onnx-fp8 rewrite --loss`"},
    {"`RewriteModel`", "`onnx-fp8 rewrite`"},
    {"`SpeedTableJson`", "`onnx-fp8 bench WHAT --save`"},
    {"`batch_norm=eval`", "--batch-norm eval"},
    {"`batch_norm=train`", "--batch-norm train"},
    {"`batch_size`", "--batch-size"},
    {"`budgets`", "--budget"},
    {"`dtype`", "--dtype"},
    {"`exclude`", "--exclude"},
    {"`expand`", "--expand"},
    {"`files`", "--data"},
    {"`filter_fqns`", "--filter-fqns"},
    {"`freeze`", "--freeze"},
    {"`grad_accum`", "--grad-accum"},
    {"`include`", "--include"},
    {"`inspect` with `mesh`", "`onnx-fp8 inspect --mesh`"},
    {"`isa`", "--isa"},
    {"`label`", "--label"},
    {"`recipe`", "--recipe"},
    {"`recipes`", "--recipe-for"},
    {"`scales`", "--scales"},
    {"`seed`", "--seed"},
    {"`seq_len`", "--seq-len"},
    {"`shard`", "--shard"},
    {"`shuffle`", "--no-shuffle"},
    {"`speeds`", "--auto-filter"},
    {"`tie_copies=false`", "--no-tie"},
    {"`ties`", "--tie"},
    {"`train`", "--train"},
    {"`values`", "--value"},
    {"`whole`", "--whole"},
};

}  // namespace

std::string InFlags(std::string message) {
  for (const auto& [name, flag] : kNames) {
    const std::string api = name;
    for (size_t at = 0; (at = message.find(api, at)) != std::string::npos;) {
      message.replace(at, api.size(), flag);
      at += std::string(flag).size();
    }
  }
  return message;
}

}  // namespace onnx_fp8
