// SPDX-License-Identifier: Apache-2.0
#include "cli/other_names.h"

#include <algorithm>
#include <utility>

namespace onnx_fp8 {
namespace {

// Names in PyTorch, transformers, Lightning, Keras and nanoGPT. --learning-rate
// differs from --lr by too many letters for a guess.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"--accelerator", "--provider"},
    {"--accumulate-grad-batches", "--grad-accum"},
    {"--accumulation-steps", "--grad-accum"},
    {"--adam-epsilon", "--eps"},
    {"--amp", "--dtype bfloat16"},
    {"--autocast", "--dtype bfloat16"},
    {"--batch", "--batch-size"},
    {"--beta1", "--betas"},
    {"--beta2", "--betas"},
    {"--bf16", "--dtype bfloat16"},
    {"--block-size", "--seq-len"},
    {"--bs", "--batch-size"},
    {"--clip-grad-norm", "--clip-norm"},
    {"--criterion", "--loss"},
    {"--dataset", "--data"},
    {"--device", "--provider"},
    {"--epsilon", "--eps"},
    {"--eval-data", "--val-data"},
    {"--eval-every", "--val-every"},
    {"--eval-steps", "--val-every"},
    {"--fp16", "--dtype float16"},
    {"--fp32", "--dtype float32"},
    {"--fp8", "--recipe tensorwise"},
    {"--gradient-accumulation", "--grad-accum"},
    {"--gradient-accumulation-steps", "--grad-accum"},
    {"--gradient-clip-val", "--clip-norm"},
    {"--half", "--dtype float16"},
    {"--iterations", "--steps"},
    {"--keep-best", "--save-best loss"},
    {"--learning-rate", "--lr"},
    {"--load-best-model-at-end", "--save-best loss"},
    {"--loss-fn", "--loss"},
    {"--loss-function", "--loss"},
    {"--lr-schedule", "--schedule"},
    {"--lr-scheduler", "--schedule"},
    {"--lr-scheduler-type", "--schedule"},
    {"--max-grad-norm", "--clip-norm"},
    {"--max-seq-length", "--seq-len"},
    {"--max-steps", "--steps"},
    {"--mixed-precision", "--dtype bfloat16"},
    {"--num-epochs", "--epochs"},
    {"--num-steps", "--steps"},
    {"--num-threads", "--threads"},
    {"--num-train-epochs", "--epochs"},
    {"--optim", "--optimizer"},
    {"--output-dir", "--out"},
    {"--per-device-train-batch-size", "--batch-size"},
    {"--precision", "--dtype"},
    {"--pretrained", "--init"},
    {"--random-state", "--seed"},
    {"--resume-from-checkpoint", "--resume"},
    {"--save-steps", "--save-every"},
    {"--scheduler", "--schedule"},
    {"--sequence-length", "--seq-len"},
    {"--shuffle", "--no-shuffle"},
    {"--targets", "--label"},
    {"--train-batch-size", "--batch-size"},
    {"--train-data", "--data"},
    {"--valid-data", "--val-data"},
    {"--validation-data", "--val-data"},
    {"--validation-split", "--val-data"},
    {"--warmup", "--schedule cosine:warmup=N"},
    {"--warmup-steps", "--schedule cosine:warmup=N"},
    {"--wd", "--weight-decay"},
    {"--weights", "--init"},
};

}  // namespace

std::string MeantByOthers(const std::string& flag,
                          const std::vector<std::string>& flags) {
  for (const auto& [name, ours] : kOtherNames) {
    if (flag != name) continue;
    const std::string text = ours;
    const std::string known = text.substr(0, text.find(' '));
    return std::ranges::count(flags, known) > 0 ? text : "";
  }
  return "";
}

}  // namespace onnx_fp8
