# SPDX-License-Identifier: Apache-2.0
"""Mutants of data/."""
from mutant import M, data

DATASET_TEST = data("DatasetTest.*:Token*")
ORT_CHECKPOINT = data("OrtCheckpoint.*")
SAFETENSORS = data("Safetensors.*")

MUTANTS = (
    M("data: epochs have one order", "data/dataset.cc",
      "static_cast<uint64_t>(epoch));", "static_cast<uint64_t>(epoch * 0));",
      DATASET_TEST),
    M("data: each unread array is a note", "data/dataset.cc",
      "if (names.size() == 1) {", "for (const auto& name : names) {\n"
      "    notes_.push_back(name);\n  }\n  if (names.size() == 1) {", DATASET_TEST),
    M("data: the seed does not matter", "data/dataset.cc",
      "RandomBits(spec_.seed ^ kShuffleKey,", "RandomBits(kShuffleKey,",
      DATASET_TEST),
    M("data: the shuffle is biased", "data/dataset.cc",
      "RandomBelow(key, i, i + 1)", "RandomBelow(key, i, order_.size())",
      DATASET_TEST),
    M("data: evaluation loses the last batch", "data/dataset.cc",
      "spec_.drop_last ? 0 : spec_.batch_size - 1", "spec_.drop_last ? 0 : 0",
      DATASET_TEST),
    M("npz: inflating is free", "data/npy.cc", "if (!stored) {",
      "if (!stored && false) {", data("Npz.*")),
    M("npz: views cost too", "data/npy.cc", "if (!stored) {",
      "if (!stored || true) {", data("Npz.*")),
    M("safetensors: the header is not padded", "data/safetensors.cc",
      "text.append((8 - text.size() % 8) % 8, ' ');", "", SAFETENSORS),
    M("safetensors: small elements first", "data/safetensors.cc",
      "std::greater<>()", "std::less<>()", SAFETENSORS),
    M("safetensors: holes are taken", "data/safetensors.cc",
      "Check(entry.begin == at, ", "Check(entry.begin >= at, ", SAFETENSORS),
    M("tokens: windows do not share a token", "data/token_file.cc",
      "const auto* window = all + i * seq_len;",
      "const auto* window = all + i * (seq_len + 1);", DATASET_TEST),
    M("tokens: a window too many", "data/token_file.cc",
      "return (tokens.size() - 1) / seq_len;",
      "return tokens.size() / seq_len;", DATASET_TEST),
    M("npz: members may share bytes", "data/zip.cc",
      "  RequireApart(members_, directory, path_);\n",
      "  if (false) RequireApart(members_, directory, path_);\n",
      data("Npz.*")),
    M("npz: members may share bytes with the directory", "data/zip.cc",
      "last ? directory.offset", "last && false ? directory.offset",
      data("Npz.*")),
    M("checkpoint of onnxruntime: tables are trusted", "data/ort_checkpoint.cc",
      "Check(ort::VerifyCheckpointBuffer(verifier),", "Check(true,",
      ORT_CHECKPOINT),
    M("checkpoint of onnxruntime: any version", "data/ort_checkpoint.cc",
      "from->version() == kVersion", "from->version() > 0", ORT_CHECKPOINT),
    M("checkpoint of onnxruntime: tensors of any size",
      "data/ort_checkpoint.cc", "static_cast<uint64_t>(count) == bytes",
      "static_cast<uint64_t>(count) >= bytes", ORT_CHECKPOINT),
    M("checkpoint of onnxruntime: properties are lost",
      "data/ort_checkpoint.cc", "ReadProperties(bag->strings(),",
      "if (false) ReadProperties(bag->strings(),", ORT_CHECKPOINT),
)
