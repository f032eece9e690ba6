// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <filesystem>

#include "graph/onnx/onnx_io.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;
namespace onnx = ONNX_NAMESPACE;

// A folder with a model whose floats lie at `offset` in `location`; beside
// it are model/w.data of 12 bytes and secret.data.
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

  std::unique_ptr<Graph> Read(const std::string& location, size_t offset,
                              int64_t size = 2) {
    onnx::ModelProto model;
    model.set_ir_version(10);
    model.add_opset_import()->set_version(24);
    model.mutable_graph()->set_name("g");
    auto* w = model.mutable_graph()->add_initializer();
    w->set_name("w");
    w->add_dims(size);
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
}

// A link, at the end of a path or on the way, may lead anywhere.
TEST_F(ExternalData, LiesBehindNoLink) {
  fs::create_directory_symlink("..", dir_ / "model/up");
  ExpectError([&] { Read("link.data", 0); },
              "link.data] is a link, which may lead anywhere: copy the folder "
              "with what its links name (cp -rL FOLDER COPY)");
  ExpectError([&] { Read("up/secret.data", 0); }, "/up] is a link");
}

// The model's own path may be a link: its folder is then the link's.
TEST_F(ExternalData, OfALinkLiesBesideTheLink) {
  Read("w.data", 4);
  fs::create_directory(dir_ / "other");
  fs::create_symlink("../model/m.onnx", dir_ / "other/m.onnx");
  ExpectError([&] { ReadModel(dir_ / "other/m.onnx"); },
              "w.data] can't be opened: No such file or directory; the model "
              "is a link, and its data are expected beside the link: give " +
                  (dir_ / "other/../model/m.onnx") + " instead");
  fs::copy(dir_ / "model/w.data", dir_ / "other/w.data");
  EXPECT_EQ(ReadModel(dir_ / "other/m.onnx")->Find("w")->data.size(), 2);
}

TEST_F(ExternalData, EndsWithItsFile) {
  ExpectError([&] { Read("w.data", 8); }, "which holds 12");
  ExpectError([&] { Read("w.data", 16); }, "which holds 12");
}

// A large tensor is mapped, if its offset allows it.
TEST_F(ExternalData, MayBeLargeAtAnyOffset) {
  const int64_t size = (1 << 18) + 5;
  std::string bytes(4 * size + 8, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i % 251);
  }
  WriteText(dir_ / "model/w.data", bytes);
  for (size_t offset : {0, 2, 4, 8}) {
    const auto graph = Read("w.data", offset, size);
    const Tensor& w = graph->Find("w")->data;
    ASSERT_EQ(w.shape(), Shape{size});
    EXPECT_EQ(std::memcmp(w.raw(), bytes.data() + offset, w.bytes()), 0);
  }
  ExpectError([&] { Read("w.data", 12, size); }, "which holds ");
}

}  // namespace
}  // namespace onnx_fp8
