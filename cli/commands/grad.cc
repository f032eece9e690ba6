// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "base/printable.h"
#include "cli/api_names.h"
#include "cli/array_output.h"
#include "cli/commands/commands.h"
#include "cli/data_flags.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report/text.h"
#include "training/step/session_checks.h"

namespace onnx_fp8 {
namespace {

struct GradFlags {
  std::string model, out, init;
  std::vector<std::string> data;
  DataFlags data_flags;
  SessionFlags session;
  MachineFlags machine;
  bool input_grads = false;

  void AddTo(Flags& flags) {
    flags.Positional("MODEL", &model, "the .onnx file");
    flags.Group("Data");
    flags.Files("--data", &data,
                "as for train; the first --batch-size samples are used");
    data_flags.AddTo(flags);
    session.AddTo(flags);
    flags.Group("Options");
    flags.File("--init", &init, "use these weights (.safetensors)");
    flags.File("-o,--out", &out,
               ".safetensors or .npz: loss, output.NAME, grad.NAME");
    flags.Switch("--input-grads", &input_grads,
                 "also input_grad.NAME of every float input");
    machine.AddTo(flags);
    flags.Example(
        "onnx-fp8 grad model.onnx --data batch.npz --loss cross_entropy -o "
        "grads.safetensors");
    flags.Example(
        "onnx-fp8 grad model.onnx --data batch.npz --loss output:loss --recipe "
        "tensorwise -o grads.safetensors");
  }
};

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
  Flags flags("grad",
              "Loss, outputs and the gradient of every trained parameter for "
              "one batch, "
              "in training mode but with Dropout off.");
  GradFlags values;
  values.AddTo(flags);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "--data", "--out"});
  RequireArrayPath("--out", values.out);
  values.machine.Apply();
  SessionOptions options = values.session.Make(values.model);
  options.given = GivenOptions(flags);
  options.init = values.init;
  auto session = TrainingSession::Create(options);
  if (session->Options().loss.kind.empty()) flags.Require({"--loss"});
  Notes(session->Notes());
  DataLayout layout =
      LayOutData(session->Inputs(), session->Loss(), values.data_flags.Make());
  Dataset data(MakeDatasetSpec(values.data, layout, options.budgets));
  Notes(data.notes());
  if (data.size() < layout.batch_size) {
    Note(Concat("the batch has ", data.size(), " samples, all that there are"));
  }
  const TensorMap batch = data.Batch(0);
  GradientResult result = session->Gradients(batch, values.input_grads);
  if (result.cause == kNoLabelCounts) {
    Note(result.cause + ": the loss is no number, and all gradients are 0");
  } else if (!result.cause.empty()) {
    Warn(NotFiniteText(result.cause));
  }
  WriteArrays(values.out, NamedArrays(result));
  Out() << "loss " << Number(result.loss, 7) << ", gradients of "
        << result.gradients.size() << " parameters in " << Printable(values.out)
        << "\n";
  return 0;
}

}  // namespace onnx_fp8
