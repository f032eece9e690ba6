// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8::cuda {

// A GPU that need not be here, as cuDNN writes it.
inline constexpr char kH100[] =
    R"({"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,)"
    R"("totalGlobalMem":85000000000,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"smCountOrigin":0,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,)"
    R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":2619000,"memoryBusWidth":5120,)"
    R"("l2CacheSize":52428800,"deviceName":"NVIDIA H100 80GB HBM3"})";

}  // namespace onnx_fp8::cuda
