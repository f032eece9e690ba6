// SPDX-License-Identifier: Apache-2.0
#include "training/state/checkpoint.h"

#include <onnx/defs/parser.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/safetensors.h"
#include "onnx_fp8/session.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

namespace onnx = ONNX_NAMESPACE;
using Json = nlohmann::json;

constexpr std::string_view kSeparator = "\n====\n";
constexpr char kFolder[] = "/checkpoints/step_00000002/";
constexpr char kModelText[] = R"(<ir_version: 8, opset_import: ["" : 17]>
  g (float[N,16] x) => (float[N,16] y) {
    h = MatMul(x, w)
    y = Add(h, b)
  })";

void AddWeight(const char* name, const Shape& shape, onnx::GraphProto* graph) {
  auto* tensor = graph->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  for (int64_t dim : shape) tensor->add_dims(dim);
  for (int64_t i = NumElements(shape); i-- > 0;) {
    tensor->add_float_data(static_cast<float>(i % 5) / 4);
  }
}

SessionOptions Options() {
  onnx::ModelProto model;
  auto status = onnx::OnnxParser::Parse(model, kModelText);
  Check(status.IsOK(), status.ErrorMessage());
  AddWeight("w", {16, 16}, model.mutable_graph());
  AddWeight("b", {16}, model.mutable_graph());
  SessionOptions options;
  options.model = ScratchFile("model.onnx", model.SerializeAsString());
  options.loss.kind = "mse";
  options.recipe = ParseRecipe("delayed");
  return options;
}

// Corrects the sums of an edited checkpoint, so that the code behind them is
// tried too.
std::string Sealed(const std::string& text, const std::string& state_path,
                   uint64_t state_bytes, const std::string& model) {
  Json manifest = Json::parse(text, nullptr, false);
  if (!manifest.is_object()) return text;
  manifest["state_bytes"] = state_bytes;
  manifest["model"] = model;
  try {
    Json tensors = Json::object();
    for (const auto& [name, tensor] : ReadSafetensors(state_path)) {
      tensors[name] = {{"dtype", Name(tensor.dtype())},
                       {"shape", tensor.shape()},
                       {"crc32", Hex(Crc32(tensor.raw(), tensor.bytes()))}};
    }
    manifest["tensors"] = tensors;
  } catch (const Error&) {
  }
  manifest.erase("crc32");
  std::string sealed =
      manifest.dump(-1, ' ', false, Json::error_handler_t::replace);
  manifest["crc32"] = Hex(Crc32(sealed.data(), sealed.size()));
  return manifest.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The model's fingerprint, as in one of its checkpoints.
std::string Fingerprint(TrainingSession& session) {
  std::string folder = ScratchFolder() + "/own";
  session.Save(folder, {}, {});
  auto manifest = folder + "/checkpoints/step_00000000/manifest.json";
  std::ifstream in(manifest);
  return Json::parse(in).at("model");
}

// Continues the run: one evaluation, one step.
void Resume(TrainingSession& session, const std::string& dir) {
  session.Restore(dir);
  session.Scales();
  TensorMap feeds = {{"x", Tensor::Zeros(DType::kFloat, {2, 16})},
                     {"labels", Tensor::Zeros(DType::kFloat, {2, 16})}};
  session.Eval(feeds);
  session.Step({feeds}, 0.1);
}

}  // namespace

// Four parts with kSeparator between them: "sealed" or anything else, `latest`,
// the manifest, the state.
void FuzzCheckpoint(std::string_view bytes) {
  static auto session = TrainingSession::Create(Options());
  static const std::string model = Fingerprint(*session);
  static const std::string dir = ScratchFolder() + "/run";
  static const bool made = std::filesystem::create_directories(dir + kFolder);
  static_cast<void>(made);
  std::array<std::string, 4> parts;
  for (std::string& part : parts) {
    size_t end = std::min(bytes.find(kSeparator), bytes.size());
    part = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + kSeparator.size(), bytes.size()));
  }
  auto& [mode, latest, manifest, state] = parts;
  std::string at = std::string("run") + kFolder;
  std::string path = ScratchFile(at + "state.safetensors", state);
  if (mode == "sealed") manifest = Sealed(manifest, path, state.size(), model);
  ScratchFile(at + "manifest.json", manifest);
  ScratchFile("run/latest", latest);
  try {
    ReadStaticScales(dir);
  } catch (const Error&) {
  }
  Resume(*session, dir);
}

}  // namespace onnx_fp8
