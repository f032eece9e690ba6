// SPDX-License-Identifier: Apache-2.0
//
// The folder of a training run, DIR:
//
//   config.json     the flags of the run, and which model it trains
//   model/          a copy of the model file, with its external data
//   metrics.jsonl   see training/metrics.h
//   latest, checkpoints/   see training/checkpoint.h
//
// It may come from somebody else: none of these may be a link, and the config's
// flags name no file that is written.
#pragma once

#include <memory>
#include <string>

#include "cli/flags.h"
#include "graph/external_copy.h"

namespace onnx_fp8 {

struct RunConfig {
  std::string file;   // config.json itself
  std::string model;  // path of the run's own copy
  std::string crc;    // of the model file
  FlagMap flags;      // of `train`, except those for one start
};

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  // A folder made by `train`.
  bool HasConfig() const;
  bool HasCheckpoint() const;

  // Errors: no config.json, or one that is not ours; a model that has changed;
  // a link.
  RunConfig Load() const;

  // Makes the folder and keeps other processes from training in it as long as
  // this object lives; removes leftovers of a killed Write. Errors: another
  // process trains in it; a link; the disk.
  void Lock();
  // Copies `model` (unless it is the run's copy already) and writes the config.
  // After an error, a folder that is new is removed. Errors: a model that can't
  // be copied, the disk.
  void Write(const std::string& model, const FlagMap& flags,
             const ExternalCopyObserver& observer);

 private:
  // Errors: an entry of the run is something else than a file or folder.
  void CheckPlain() const;

  std::string path_;
  bool made_ = false;  // by Lock
  std::shared_ptr<void> lock_;
};

// CRC-32 of a file's content, as text. Errors: it can't be read.
std::string FileCrc(const std::string& path);

}  // namespace onnx_fp8
