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
    {"`batch_norm`", "--batch-norm"},
    {"`batch_size`", "--batch-size"},
    {"`betas`", "--betas"},
    {"`budgets`", "--budget"},
    {"`class_axis`", "--class-axis"},
    {"`class_weights`", "--class-weights"},
    {"`clip_norm`", "--clip-norm"},
    {"`delta`", "--delta"},
    {"`dtype`", "--dtype"},
    {"`eps`", "--eps"},
    {"`exclude`", "--exclude"},
    {"`expand`", "--expand"},
    {"`files`", "--data"},
    {"`filter_fqns`", "--filter-fqns"},
    {"`freeze`", "--freeze"},
    {"`grad_accum`", "--grad-accum"},
    {"`groups`", "--group"},
    {"`ignore_index`", "--ignore-index"},
    {"`include`", "--include"},
    {"`init`", "--init"},
    {"`insecure`", "--insecure"},
    {"`inspect` with `mesh`", "`onnx-fp8 inspect --mesh`"},
    {"`isa`", "--isa"},
    {"`label`", "--label"},
    {"`label_smoothing`", "--label-smoothing"},
    {"`logits`", "--logits"},
    {"`loss`", "--loss"},
    {"`loss_scale`", "--loss-scale"},
    {"`loss_scale_interval`", "--loss-scale-interval"},
    {"`lr`", "--lr"},
    {"`momentum`", "--momentum"},
    {"`nesterov`", "--nesterov"},
    {"`nondeterministic`", "--nondeterministic"},
    {"`optimizer`", "--optimizer"},
    {"`ort_training`", "--ort-training"},
    {"`outputs`", "--outputs"},
    {"`profile`", "--profile"},
    {"`recipe`", "--recipe"},
    {"`recipes`", "--recipe-for"},
    {"`resume`", "--resume"},
    {"`save_best`", "--save-best"},
    {"`scales`", "--scales"},
    {"`seed`", "--seed"},
    {"`seq_len`", "--seq-len"},
    {"`shard`", "--shard"},
    {"`shuffle`", "--no-shuffle"},
    {"`speeds`", "--auto-filter"},
    {"`tie_copies=false`", "--no-tie"},
    {"`ties`", "--tie"},
    {"`timeline`", "--timeline"},
    {"`timeline_steps`", "--timeline-steps"},
    {"`train`", "--train"},
    {"`tune`", "--tune"},
    {"`values`", "--value"},
    {"`weight_decay`", "--weight-decay"},
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

std::set<std::string> GivenOptions(const Flags& flags) {
  std::set<std::string> options;
  for (const auto& [name, flag] : kNames) {
    const std::string api = name;
    if (flags.Given(flag)) options.insert(api.substr(1, api.size() - 2));
  }
  return options;
}

}  // namespace onnx_fp8
