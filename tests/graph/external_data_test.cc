// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <filesystem>

#include "graph/onnx_io.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;
namespace onnx = ONNX_NAMESPACE;

// A folder with a model whose float[2] lies in `location` from `offset` on,
// beside model/w.data of 12 bytes and secret.data.
class ExternalData : public testing::Test {
 protected:
  ExternalData() {
    fs::create_directory(dir_ / "model");
    std::string bytes;
    for (float x : {1.0f, 2.0f, 3.0f}) {
      bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
    }
    WriteText(dir_ / "model/w.data", bytes);
    WriteText(dir_ / "secret.data", bytes);
    fs::create_symlink("../secret.data", dir_ / "model/link.data");
  }

  std::unique_ptr<Graph> Read(const std::string& location, size_t offset) {
    onnx::ModelProto model;
    model.set_ir_version(10);
    model.add_opset_import()->set_version(24);
    model.mutable_graph()->set_name("g");
    auto* w = model.mutable_graph()->add_initializer();
    w->set_name("w");
    w->add_dims(2);
    w->set_data_type(onnx::TensorProto::FLOAT);
    w->set_data_location(onnx::TensorProto::EXTERNAL);
    auto add = [&](const char* key, const std::string& value) {
      auto* entry = w->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", location);
    add("offset", std::to_string(offset));
    WriteText(dir_ / "model/m.onnx", model.SerializeAsString());
    return ReadModel(dir_ / "model/m.onnx");
  }

  TempDir dir_;
};

TEST_F(ExternalData, IsReadFromItsOffset) {
  auto graph = Read("w.data", 4);
  const float* w = graph->Find("w")->data.data<float>();
  EXPECT_EQ(w[0], 2.0f);
  EXPECT_EQ(w[1], 3.0f);
}

TEST_F(ExternalData, StaysInTheModelsFolder) {
  const std::string secret = fs::absolute(dir_ / "secret.data");
  for (const std::string& location :
       {std::string("../secret.data"), std::string("../model/w.data"), secret,
        std::string()}) {
    ExpectError([&] { Read(location, 0); }, "inside the model's folder");
  }
  ExpectError([&] { Read("link.data", 0); }, "got the link");
}

TEST_F(ExternalData, EndsWithItsFile) {
  ExpectError([&] { Read("w.data", 8); }, "which holds 12");
  ExpectError([&] { Read("w.data", 16); }, "which holds 12");
}

}  // namespace
}  // namespace onnx_fp8
