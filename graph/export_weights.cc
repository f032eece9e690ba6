// SPDX-License-Identifier: Apache-2.0
#include "graph/export_weights.h"

#include <set>

#include "graph/model_file_internal.h"
#include "graph/onnx_convert_internal.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {

void ExportWithWeights(const std::string& in, const std::string& out,
                       const std::map<std::string, Tensor>& weights) {
  ModelFile file = ReadModelFile(in);
  std::set<std::string> open;
  for (const auto& [name, tensor] : weights) open.insert(name);
  for (auto& proto : *file.model.mutable_graph()->mutable_initializer()) {
    auto it = weights.find(proto.name());
    if (it == weights.end()) continue;
    Shape shape(proto.dims().begin(), proto.dims().end());
    Check(it->second.shape() == shape, "[", in, "] expected ", proto.name(),
          " of shape ", ToString(shape), ", got ",
          ToString(it->second.shape()));
    DType dtype = static_cast<DType>(proto.data_type());
    proto.Clear();
    ToProto(ConvertTo(it->second, dtype), it->first, &proto);
    open.erase(it->first);
  }
  Check(open.empty(), "[", in, "] holds no initializer \"",
        open.empty() ? "" : *open.begin(), "\"");
  CopyExternalData(file, out);
  WriteModelFile(file.model, out);
}

}  // namespace onnx_fp8
