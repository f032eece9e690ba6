# SPDX-License-Identifier: Apache-2.0
"""Mutants of optimizers/."""
from mutant import M, optimizers, python

TRACES = optimizers("*Traces.*:AppendOptimizer.*")
SCHEDULE = optimizers("Schedule.*")

MUTANTS = (
    M("loss scale: grows to infinity", "optimizers/loss_scale.cc",
      '{full, b.Op("Less", {grown, infinity})}',
      '{full, b.Op("Less", {infinity, grown})}', optimizers("LossScale.*")),
    M("loss scale: a bad step does not count anew",
      "optimizers/loss_scale.cc", '{ok, b.Op("Not", {full})}',
      '{b.Op("Or", {ok, b.Op("Not", {ok})}), b.Op("Not", {full})}',
      optimizers("LossScale.*")),
    M("loss scale: the norm is taken of scaled gradients",
      "optimizers/optimizer.cc",
      "if (inverse) norm = b.Mul(norm, inverse);", "(void)inverse;",
      python("gradscaler")),
    M("loss scale: updates take scaled gradients", "optimizers/optimizer.cc",
      "if (inverse) scale = b.Mul(scale, inverse);", "",
      python("test_dtype and every_command")),
    M("optimizer: gradients are scaled up to the limit",
      "optimizers/optimizer.cc",
      'return b.Op("Min", {scale, b.Scalar(1, norm)});', "return scale;",
      TRACES),
    M("optimizer: NaN passes as finite", "optimizers/optimizer.cc",
      'return b.Op("Less", {x, b.Scalar(kInfinity, x)});',
      'return b.Op("Not", {b.Op("GreaterOrEqual", {x, b.Scalar(kInfinity, '
      "x)})});", TRACES),
    M("optimizer: an infinite amax is no reason to skip",
      "optimizers/optimizer.cc", 'ok = b.Op("And", {ok, IsFinite(b, max)});',
      'ok = b.Op("Or", {ok, IsFinite(b, max)});', TRACES),
    M("optimizer: skipped steps count", "optimizers/optimizer.cc",
      "b.Add(values.step, b.Cast(values.ok, DType::kInt64))",
      "b.Add(values.step, b.Int(1))", TRACES),
    M("schedule: warm-up starts at 0", "optimizers/schedule.cc",
      "return lr * static_cast<double>(step) /",
      "return lr * static_cast<double>(step - 1) /", SCHEDULE),
    M("schedule: decay is a step ahead", "optimizers/schedule.cc",
      "static_cast<double>(step - 1 - schedule.warmup)",
      "static_cast<double>(step - schedule.warmup)", SCHEDULE),
    M("schedule: linear goes below min", "optimizers/schedule.cc",
      "lr * (1 - p * (1 - schedule.min))", "lr * (1 - p)", SCHEDULE),
    M("schedule: cosine ends early", "optimizers/schedule.cc",
      "std::cos(std::numbers::pi * p)",
      "std::cos(std::numbers::pi * std::min(1.0, 1.1 * p))", SCHEDULE),
    M("adamw_hf: PyTorch's epsilon", "optimizers/adam.cc",
      "late.step = b.Int(int64_t{1} << 40);", "",
      python("ort_training and those_of")),
)
