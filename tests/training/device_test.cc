// SPDX-License-Identifier: Apache-2.0
// A session on a simulated device: code that takes its memory for the host's
// crashes, and code that does not wait for its work reads NaN.
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "tests/providers/device_provider.h"
#include "tests/support/corpus.h"
#include "tests/training/corpus_case.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

std::unique_ptr<TrainingSession> OnDevice(const SessionOptions& options) {
  return MakeSession(options, MakeDeviceProvider());
}

struct Trained {
  std::vector<float> losses, norms;
  TensorMap weights;
};

void Train(TrainingSession& session, const TensorMap& feeds, int64_t micro,
           int steps, Trained* trained) {
  for (int i = 0; i < steps; ++i) {
    StepResult result = session.Step(
        std::vector<TensorMap>(static_cast<size_t>(micro), feeds), 1e-3);
    EXPECT_FALSE(result.skipped) << result.cause;
    trained->losses.push_back(result.loss);
    trained->norms.push_back(result.grad_norm);
  }
}

struct Parameter {
  std::string file, recipe;
  int64_t micro;
};

void PrintTo(const Parameter& p, std::ostream* out) {
  *out << p.file << " " << p.recipe << " " << p.micro;
}

CorpusFile Fixture(const std::string& path) {
  for (const CorpusFile& file : CorpusFiles()) {
    if (file.fixture && file.name + "/" + file.variant == path) return file;
  }
  Fail("no fixture ", path);
}

class DeviceTest : public testing::TestWithParam<Parameter> {};

// Ten steps; a checkpoint is restored before the last five.
TEST_P(DeviceTest, TrainsWithTheCpusBits) {
  CorpusCase c(Fixture(GetParam().file));
  SessionOptions options = c.options;
  options.recipe = ParseRecipe(GetParam().recipe);
  options.grad_accum = GetParam().micro;
  options.optimizer.clip_norm = 1;
  TempDir dir;

  Trained cpu, device;
  {
    auto session = TrainingSession::Create(options);
    Train(*session, c.feeds, options.grad_accum, 10, &cpu);
    cpu.weights = Weights(*session, dir);
  }
  {
    auto session = OnDevice(options);
    Train(*session, c.feeds, options.grad_accum, 5, &device);
    session->Save(dir / "run");
  }
  auto session = OnDevice(options);
  session->Restore(dir / "run");
  Train(*session, c.feeds, options.grad_accum, 5, &device);
  device.weights = Weights(*session, dir);
  EXPECT_EQ(cpu.losses, device.losses);
  EXPECT_EQ(cpu.norms, device.norms);
  ExpectSame(cpu.weights, device.weights);

  // The other functions of a session.
  auto host = TrainingSession::Create(options);
  host->Restore(dir / "run");
  auto again = OnDevice(options);
  again->Restore(dir / "run");
  EXPECT_EQ(host->Eval(c.feeds).loss, again->Eval(c.feeds).loss);
  GradientResult a = host->Gradients(c.feeds, false);
  GradientResult b = again->Gradients(c.feeds, false);
  EXPECT_EQ(a.loss, b.loss);
  ExpectSame(a.gradients, b.gradients);
  ExpectSame(a.outputs, b.outputs);
  ASSERT_EQ(host->Scales().size(), again->Scales().size());
  for (size_t i = 0; i < host->Scales().size(); ++i) {
    EXPECT_EQ(host->Scales()[i].scale, again->Scales()[i].scale);
  }
  again->ExportOnnx(dir / "device.onnx");
  host->ExportOnnx(dir / "host.onnx");
  EXPECT_EQ(ReadText(dir / "device.onnx"), ReadText(dir / "host.onnx"));
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceTest,
    testing::Values(Parameter{"nanogpt/d18", "tensorwise", 1},
                    Parameter{"nanogpt/l17", "delayed", 1},
                    Parameter{"nanogpt/d18", "delayed", 3},
                    Parameter{"llama/d18", "mxfp8", 1},
                    Parameter{"llama/l17", "tensorwise", 2},
                    Parameter{"vit/d18", "off", 1},
                    Parameter{"vit/l17", "delayed", 1}));

// The graph of a session on a device has shapes of large weights, no numbers.
TEST(Device, LargeWeightsTrainWithTheCpusBits) {
  constexpr int64_t kWide = 512;
  TempDir dir;
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{4, kWide});
  for (const char* name : {"fc.weight", "out.weight"}) {
    x = b.Op("MatMul",
             {x, graph.AddInitializer(name, Random({kWide, kWide}, 1))});
  }
  graph.outputs = {x};
  WriteModel(graph, dir / "wide.onnx");
  const TensorMap feeds = {{"x", Random({4, kWide}, 2)},
                           {"labels", Tensor::Ints({3, 1, 4, 1})}};
  for (int64_t micro : {1, 2}) {
    SessionOptions options = Options(dir / "wide.onnx", "delayed");
    options.grad_accum = micro;
    options.freeze = {"out.weight"};
    auto host = TrainingSession::Create(options);
    auto device = OnDevice(options);
    Trained on_host, on_device;
    Train(*host, feeds, micro, 3, &on_host);
    Train(*device, feeds, micro, 3, &on_device);
    EXPECT_EQ(on_host.losses, on_device.losses);
    EXPECT_EQ(on_host.norms, on_device.norms);
    ExpectSame(Weights(*host, dir), Weights(*device, dir));
  }
}

// Reports are read later, in the order of the steps.
TEST(Device, StepsMayBeFinishedLater) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  auto host = TrainingSession::Create(options);
  auto device = OnDevice(options);
  for (uint64_t i = 0; i < 4; ++i) {
    device->Start({Batch(i)}, 1e-2);
    if (i == 0) continue;
    StepResult want = host->Step(Batch(i - 1), 1e-2);
    StepResult got = device->Finish();
    EXPECT_EQ(got.step, want.step);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.grad_norm, want.grad_norm);
  }
  EXPECT_EQ(device->Finish().step, 4);
  ExpectError([&] { device->Finish(); }, "expected a step that was started");
}

// The error of a kernel comes with the report. The state is then refused until
// it is restored.
TEST(Device, AnErrorThatComesLateIsNotLost) {
  TempDir dir;
  auto device = OnDevice(Options(WriteMlp(dir, false)));
  device->Step(Batch(1), 1e-2);
  device->Save(dir / "run");
  TensorMap bad = Batch(2);
  bad["labels"].data<int64_t>()[0] = 77;
  device->Start({bad}, 1e-2);
  ExpectError([&] { device->Finish(); }, "77");
  ExpectError([&] { device->Step(Batch(3), 1e-2); }, "half updated");
  ExpectError([&] { device->Save(dir / "other"); }, "half updated");
  device->Restore(dir / "run");
  EXPECT_FALSE(device->Step(Batch(3), 1e-2).skipped);
}

}  // namespace
}  // namespace onnx_fp8
