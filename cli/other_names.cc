// SPDX-License-Identifier: Apache-2.0
#include "cli/other_names.h"

#include <algorithm>
#include <utility>

namespace onnx_fp8 {
namespace {

// Names in PyTorch, transformers, Lightning, Keras and nanoGPT. learning_rate
// differs from lr by too many letters for a guess.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"accelerator", "provider"},
    {"accumulate_grad_batches", "grad_accum"},
    {"accumulation_steps", "grad_accum"},
    {"activation_checkpointing", "recompute=blocks"},
    {"adam_epsilon", "eps"},
    {"amp", "dtype=bfloat16"},
    {"autocast", "dtype=bfloat16"},
    {"batch", "batch_size"},
    {"beta1", "betas"},
    {"beta2", "betas"},
    {"bf16", "dtype=bfloat16"},
    {"block_size", "seq_len"},
    {"bs", "batch_size"},
    {"clip_grad_norm", "clip_norm"},
    {"criterion", "loss"},
    {"dataset", "data"},
    {"detect_anomaly", "on_nonfinite=explain"},
    {"device", "provider"},
    {"early_stopping", "early_stop"},
    {"early_stopping_patience", "early_stop"},
    {"epsilon", "eps"},
    {"eval_batch_size", "val_batch_size"},
    {"eval_data", "val_data"},
    {"eval_every", "val_every"},
    {"eval_steps", "val_every"},
    {"fp16", "dtype=float16"},
    {"fp32", "dtype=float32"},
    {"fp8", "recipe=tensorwise"},
    {"gradient_accumulation", "grad_accum"},
    {"gradient_accumulation_steps", "grad_accum"},
    {"gradient_checkpointing", "recompute=blocks"},
    {"gradient_clip_val", "clip_norm"},
    {"half", "dtype=float16"},
    {"iterations", "steps"},
    {"keep_best", "save_best=loss"},
    {"learning_rate", "lr"},
    {"load_best_model_at_end", "save_best=loss"},
    {"log_dir", "tensorboard"},
    {"logdir", "tensorboard"},
    {"logging_dir", "tensorboard"},
    {"loss_fn", "loss"},
    {"loss_function", "loss"},
    {"lr_schedule", "schedule"},
    {"lr_scheduler", "schedule"},
    {"lr_scheduler_type", "schedule"},
    {"max_grad_norm", "clip_norm"},
    {"max_seq_length", "seq_len"},
    {"max_steps", "steps"},
    {"mixed_precision", "dtype=bfloat16"},
    {"num_epochs", "epochs"},
    {"num_steps", "steps"},
    {"num_threads", "threads"},
    {"num_train_epochs", "epochs"},
    {"optim", "optimizer"},
    {"output_dir", "out"},
    {"overlap", "no_overlap"},
    {"patience", "early_stop"},
    {"per_device_eval_batch_size", "val_batch_size"},
    {"per_device_train_batch_size", "batch_size"},
    {"precision", "dtype"},
    {"pretrained", "weights"},
    {"random_state", "seed"},
    {"report_to", "tensorboard"},
    {"resume_from_checkpoint", "resume"},
    {"save_steps", "save_every"},
    {"save_total_limit", "keep_last"},
    {"scheduler", "schedule"},
    {"sequence_length", "seq_len"},
    {"shuffle", "no_shuffle"},
    {"targets", "label"},
    {"tie_copies", "no_tie"},
    {"train_batch_size", "batch_size"},
    {"train_data", "data"},
    {"valid_data", "val_data"},
    {"validation_data", "val_data"},
    {"validation_split", "val_data"},
    {"warmup", "schedule=cosine:warmup=N"},
    {"warmup_steps", "schedule=cosine:warmup=N"},
    {"wd", "weight_decay"},
};

}  // namespace

std::string MeantByOthers(const std::string& option,
                          const std::vector<std::string>& options) {
  for (const auto& [name, ours] : kOtherNames) {
    if (option != name) continue;
    const std::string text = ours;
    const std::string known = text.substr(0, text.find('='));
    return std::ranges::count(options, known) > 0 ? text : "";
  }
  return "";
}

}  // namespace onnx_fp8
