# SPDX-License-Identifier: Apache-2.0
"""Mutants of collectives/."""
from mutant import M, collectives, python, ranks

THREADS = collectives("CommunicatorTest.ManyRanks")
AGREEMENT = collectives("AgreementTest.*")
HEARTBEAT = collectives("Heartbeat.*")
LAUNCHER = collectives("LauncherTest.*")
WORLD = ranks("WorldTest.*")

MUTANTS = (
    M("reduce: the last rank does not count", "collectives/communicator.cc",
      "for (size_t r = 1; r < ranks; ++r) {\n    row",
      "for (size_t r = 1; r + 1 < ranks; ++r) {\n    row", THREADS),
    M("reduce: NaN is no maximum", "collectives/communicator.cc",
      "if (std::isnan(b)) return b;", "", THREADS),
    M("all-reduce: each message gives the first elements",
      "collectives/communicator.cc",
      "At(p.tensor->y, p.begin * element),\n                  received",
      "At(p.tensor->y, 0),\n                  received", THREADS),
    M("tensors of a call: all begin with the message",
      "collectives/communicator.cc", "from - begin, to - from", "0, to - from",
      THREADS),
    M("all-gather: pieces of ranks follow each other",
      "collectives/communicator.cc", "to + r * bytes + begin",
      "to + r * n + begin", THREADS),
    M("reduce-scatter: pieces come from the first block",
      "collectives/communicator.cc", "r * p.tensor->count + p.begin",
      "r * p.count + p.begin", THREADS),
    M("broadcast: the root receives, too", "collectives/communicator.cc",
      "if (rank() != root) wire", "wire", THREADS),
    M("wire bytes: an all-reduce sends once", "collectives/communicator.cc",
      "2 * (ranks - 1) * bytes", "(ranks - 1) * bytes", THREADS),
    M("agreement: the length is enough", "collectives/agreement.cc",
      "{text.size(), Hash(text)}", "{text.size(), 0}", AGREEMENT),
    M("texts: they stay padded", "collectives/gather_texts.cc",
      "all.substr(r * longest, sizes[r])",
      "all.substr(r * longest, longest)", AGREEMENT),
    M("heartbeat: a rank that ends is no fault", "collectives/heartbeat.cc",
      "if (!link.finished) {", "if (link.finished) {", HEARTBEAT),
    M("heartbeat: a fault goes no further", "collectives/heartbeat.cc",
      "  Send(Kind::kFault, rank, reason);\n", "", HEARTBEAT),
    M("heartbeat: the next rank is at fault", "collectives/heartbeat.cc",
      "Fault(static_cast<int>(header.rank), text);", "Fault(link.rank, text);",
      HEARTBEAT),
    M("heartbeat: silence is no fault", "collectives/heartbeat.cc",
      "++link.silent <= options_.silent_beats", "++link.silent > 0",
      python("dies_or_stops")),
    M("heartbeat: a beat does not end the silence",
      "collectives/heartbeat.cc", "link.silent = 0;", "", HEARTBEAT),
    M("launcher: a size without a rank is one", "collectives/launcher.cc",
      "if (!size || !rank) continue;",
      'if (!size) continue;\n    if (!rank) rank = "0";', LAUNCHER),
    M("MPI: ranks of another launcher train alone", "collectives/load_mpi.cc",
      "launcher->rank == module.world.rank", "true", WORLD),
    M("MPI: the mesh may have another size", "collectives/load_mpi.cc",
      "module.world.size == ranks, ", "module.world.size >= 1, ", WORLD),
    M("mesh: replicas are one group", "collectives/mesh.cc",
      "mesh.replicate, rank % inner", "mesh.replicate, 0",
      collectives("MeshRanks.*")),
)
