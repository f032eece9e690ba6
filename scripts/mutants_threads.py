# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: who computes what, and how many do."""
from mutants import M, base

PARALLEL = base("Parallel.*")
CPUS = base("CgroupCpus.*:AvailableCpus.*")

MUTANTS = (
    M("parallel: nested calls enter the pool again", "onnx_fp8/parallel.cc",
      "    in_range = true;\n", "", PARALLEL),
    M("parallel: the last error is kept", "onnx_fp8/parallel.cc",
      "    if (i >= range_) return;\n", "", PARALLEL),
    M("parallel: a range per thread", "onnx_fp8/parallel.cc",
      "std::min(n, kMostRanges)", "std::min<int64_t>(n, NumThreads())",
      PARALLEL),
    M("parallel: ranges begin anywhere", "onnx_fp8/parallel.cc",
      "fn(begin * grain, std::min(end * grain, n));",
      "fn(n * begin / grains, n * end / grains);", PARALLEL),
    M("parallel: a child process keeps its parent's pool",
      "onnx_fp8/parallel.cc", "own_pool.store(nullptr);", "", PARALLEL),
    M("parallel: a host's pool is not asked", "onnx_fp8/parallel.cc",
      "host ? *host : OwnPool()",
      "host && ranges < 0 ? *host : OwnPool()", PARALLEL),
    M("threads: each does its own part only", "onnx_fp8/thread_pool.cc",
      "for (int i = 0; i < parts; ++i) {\n    int p",
      "for (int i = 0; i < 1; ++i) {\n    int p", PARALLEL),
    M("threads: tasks are taken for ever", "onnx_fp8/thread_pool.cc",
      "compare_exchange_weak(left, left - 1,",
      "compare_exchange_weak(left, left,", PARALLEL),
    M("threads: the caller waits for nobody", "onnx_fp8/thread_pool.cc",
      "  AwaitEnd(job);\n", "", PARALLEL),
    M("threads: the caller is not woken", "onnx_fp8/thread_pool.cc",
      "    Wake(job.pending, 1);\n", "", PARALLEL),
    M("threads: those beyond the number stay", "onnx_fp8/thread_pool.cc",
      "  if (threads_ <= threads) return;\n", "  return;\n", PARALLEL),
    M("threads: the system must have as many", "onnx_fp8/thread_pool.cc",
      "      refused_ = true;\n", "      throw;\n", PARALLEL),
    M("CPUs: a quota is rounded down", "onnx_fp8/available_cpus.cc",
      "std::ceil(*least)", "std::floor(*least)", CPUS),
    M("CPUs: quotas of outer groups do not count",
      "onnx_fp8/available_cpus.cc", "      if (path.empty()) break;\n",
      "      break;\n", CPUS),
    M("CPUs: the largest quota counts", "onnx_fp8/available_cpus.cc",
      "std::min(*cpus, least", "std::max(*cpus, least", CPUS),
    M("CPUs: the group's path is the host's", "onnx_fp8/available_cpus.cc",
      "    path.erase(0, h.root.size());\n", "", CPUS),
)
