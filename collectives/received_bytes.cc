// SPDX-License-Identifier: Apache-2.0
#include "collectives/received_bytes.h"

namespace onnx_fp8 {

int64_t ReceivedBytes(std::string_view op, int64_t count, int64_t element,
                      int64_t ranks) {
  if (ranks == 1) return 0;
  const int64_t others = (ranks - 1) * element;
  if (op == "AllReduce") return 2 * others * ((count + ranks - 1) / ranks);
  if (op == "AllGather") return others * count;
  if (op == "ReduceScatter") return others * (count / ranks);
  return element * count;  // Broadcast
}

}  // namespace onnx_fp8
