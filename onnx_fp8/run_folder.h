// SPDX-License-Identifier: Apache-2.0
//
// The folder of a training run, DIR:
//
//   config.json     the settings of the run, and the path of its model
//   model/          a copy of the model file, with its external data
//   loss/, optimizer/   the same of a loss and of an optimizer in a file
//   metrics.jsonl   see training/run/metrics.h
//   statistics.jsonl   of `stats`, the same
//   evidence.json   of steps that went wrong, see training/state/evidence.h
//   dumps/          of `dump`, see training/run/dump_file.h
//   latest, checkpoints/   see training/state/checkpoint.h
//   best/           the same for the best checkpoint (TrainerSpec::save_best)
//
// It may come from somebody else: none of these may be a link, and whoever
// reads the settings must not let them name a file that is written.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onnx_fp8/external_copy.h"

namespace onnx_fp8 {

// The settings with which a run was started, by name. `onnx-fp8 train` keeps
// its flags there: {"--lr": ["0.1"]}.
using RunSettings = std::map<std::string, std::vector<std::string>>;
// Marks of the files that a setting names: {"--data": ["1234 1a2b3c4d"]}.
using FileMarks = std::map<std::string, std::vector<std::string>>;
// Paths of other models that a run keeps: its "loss" and its "optimizer".
using KeptModels = std::map<std::string, std::string>;

struct RunConfig {
  std::string file;   // config.json itself
  std::string model;  // path of the run's own copy
  std::string crc;    // of the model file
  KeptModels others;  // paths of the run's own copies
  RunSettings settings;
  FileMarks files;  // as they were when the config was written
};

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string statistics() const { return path_ + "/statistics.jsonl"; }
  std::string dumps() const { return path_ + "/dumps"; }
  // Whether Write has completed in this folder.
  bool HasConfig() const;
  bool HasCheckpoint() const;
  // Whether there is a checkpoint or metrics: a new run must not start here.
  bool HoldsRun() const;

  // Errors: no config.json, or one that is not ours or has changed; a model
  // that has changed; a link.
  RunConfig Load() const;

  // Makes the folder, unless it exists, and keeps other processes from training
  // in it as long as this object lives; removes leftovers of a killed Write.
  // Errors: another process trains in it; a link; the disk.
  void Lock();
  // Shares the lock among the processes of a job. Each calls it, the first one
  // after Lock and before the others. The folder is free when all have ended.
  // Errors: another job trains in it.
  void Share();
  // Removes leftovers of killed saves. REQUIRES: Lock.
  void Clean();
  // Copies the model file `model` (unless it is the run's copy already) with
  // its external data and writes the config. `may_miss`: data files that do not
  // exist are left out. The same for `others`.
  // `observer`, which may be empty, is told the progress of copies. After an
  // error, a folder that is new is removed. Errors: a model that can't be
  // copied, the disk.
  void Write(const std::string& model, const RunSettings& settings,
             const ExternalCopyObserver& observer = {},
             const FileMarks& files = {}, const KeptModels& others = {},
             bool may_miss = false);

 private:
  // As Write, which removes a new folder after an error.
  void WriteAll(const std::string& model, const RunSettings& settings,
                const ExternalCopyObserver& observer, const FileMarks& files,
                const KeptModels& others, bool may_miss);
  // The path of the run's copy of the file, in the run's folder `name`.
  std::string Copy(const std::string& file, const char* name,
                   const ExternalCopyObserver& observer, bool may_miss) const;
  // Errors: an entry of the run is something else than a file or folder.
  void CheckPlain() const;
  // Locks the folder, which it opens if it has not yet. Errors: as Lock.
  void LockAs(int operation);

  std::string path_;
  bool made_ = false;  // by Lock
  int fd_ = -1;
  std::shared_ptr<void> lock_;  // closes it
};

// The folder of the best checkpoint of the run in `folder`.
std::string BestFolder(const std::string& folder);

// CRC-32 of a file's content, as text. Errors: it can't be read.
std::string FileCrc(const std::string& path);

// The size of a file and the CRC-32 of its first and last 64 KiB: files of data
// may be long. "" if it can't be read.
std::string FileMark(const std::string& path);

}  // namespace onnx_fp8
