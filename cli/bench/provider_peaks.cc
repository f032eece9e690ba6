// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/provider_peaks.h"

#include "cli/report/text.h"

namespace onnx_fp8 {

GpuPeaks PeaksOf(ExecutionProvider& provider) {
  if (const GpuPeaks* gpu = FindGpu(provider.Describe().isa)) return *gpu;
  MachinePeaks peaks = provider.MeasurePeaks();
  if (peaks.bytes == 0) return {};
  // The CPU multiplies 8-bit floats as 16-bit floats.
  return {"this machine", peaks.eight_bit_flops, peaks.eight_bit_flops,
          peaks.flops, peaks.bytes};
}

std::string TextOf(const GpuPeaks& peaks) {
  return std::string(peaks.name) + ", " + Number(peaks.fp8 / 1e12, 4) +
         " TF/s in FP8, " + Number(peaks.narrow / 1e12, 4) + " in 16 bits, " +
         Number(peaks.fp32 / 1e12, 4) + " in fp32; " +
         Number(peaks.bytes / 1e12, 4) + " TB/s";
}

}  // namespace onnx_fp8
