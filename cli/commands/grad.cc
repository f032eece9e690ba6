// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "base/printable.h"
#include "cli/array_output.h"
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "cli/report/cast_table.h"
#include "cli/report/text.h"
#include "training/run/session_options.h"
#include "training/step/session_checks.h"

namespace onnx_fp8 {
namespace {

const Option kGradOptions[] = {
    {"Own",
     "out",
     OptionKind::kFile,
     ".safetensors or .npz: loss, output.NAME, grad.NAME",
     "",
     {.letter = "o"}},
    {"Own", "input_grads", OptionKind::kSwitch,
     "also input_grad.NAME of every float input"},
};

CommandHelp GradHelp() {
  return WithSession(
      {"grad",
       "Loss, outputs and the gradient of every trained parameter for one "
       "batch, the first `batch_size` samples, in training mode but with "
       "Dropout off.",
       {{"Options", {"Model", "Weights", "Own", "stats", "Machine"}},
        {"Data", {"data", "Samples"}}},
       {"onnx-fp8 grad model.onnx --data batch.npz --loss cross_entropy -o "
        "grads.safetensors",
        "onnx-fp8 grad model.onnx --data batch.npz --loss output:loss --recipe "
        "tensorwise -o grads.safetensors"}});
}

TensorMap NamedArrays(const GradientResult& result) {
  TensorMap arrays = {{"loss", Tensor::Scalar(result.loss)}};
  for (const auto& [name, tensor] : result.outputs) {
    arrays["output." + name] = tensor;
  }
  // By the name of the initializer, whose shape it has. Exporters keep
  // PyTorch's name there, unless an optimization has made another tensor of it.
  for (const auto& [name, tensor] : result.gradients) {
    arrays["grad." + name] = tensor;
  }
  for (const auto& [name, tensor] : result.input_gradients) {
    arrays["input_grad." + name] = tensor;
  }
  return arrays;
}

}  // namespace

int Grad(const Arguments& arguments) {
  Flags flags(GradHelp(), kGradOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "data", "out"});
  const std::string out = flags.Text("out");
  RequireArrayPath(out);
  ApplyMachine(flags);
  SessionOptions options = SessionOptionsOf(flags, flags.Text("MODEL"));
  auto session = TrainingSession::Create(options);
  if (session->Options().loss.kind.empty()) flags.Require({"loss"});
  Notes(session->Notes());
  DataLayout layout =
      LayOutData(session->Inputs(), session->Loss(), DataOf(flags));
  Dataset data(MakeDatasetSpec(flags.List("data"), layout, options.budgets));
  Notes(data.notes());
  if (data.size() < layout.batch_size) {
    Note(Concat("the batch has ", data.size(), " samples, all that there are"));
  }
  const TensorMap batch = data.Batch(0);
  GradientResult result =
      session->Gradients(batch, flags.On("input_grads"), flags.Given("stats"));
  if (result.cause == kNoLabelCounts) {
    Note(result.cause + ": the loss is no number, and all gradients are 0");
  } else if (!result.cause.empty()) {
    Warn(NotFiniteText(result.cause));
  }
  WriteArrays(out, NamedArrays(result));
  Out() << "loss " << Number(result.loss, 7) << ", gradients of "
        << result.gradients.size() << " parameters in " << Printable(out)
        << "\n";
  if (flags.Given("stats")) PrintCasts(Out(), result.casts);
  return 0;
}

}  // namespace onnx_fp8
