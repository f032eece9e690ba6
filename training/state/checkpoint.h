// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of a run in a folder DIR:
//
//   DIR/latest                              "step_00000120": the one to resume
//   DIR/checkpoints/step_00000120/
//     state.safetensors                     every state tensor by name
//     state.00001.safetensors               parts of the second rank, if ranks
//                                           share state; …
//     manifest.json                         the rest, and a checksum of each
//   DIR/checkpoints/frozen_….safetensors    see training/state/frozen_file.h
//
// A checkpoint is written under a temporary name, synced, renamed, and then
// named in `latest`, which is replaced in one rename: a process killed at any
// moment leaves the old checkpoint or the new one, complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "collectives/communicator.h"
#include "data/arrays.h"
#include "onnx_fp8/tensor_source.h"
#include "training/ranks/sharded_state.h"
#include "training/state/frozen_file.h"

namespace onnx_fp8 {

// A tensor whose rows (of the first axis) lie in several files. If ranks divide
// a layer, these are rows of the parts of `ranks` ranks.
struct ShardedTensor {
  DType dtype = DType::kUndefined;
  Shape shape;  // of the whole tensor
  AxisSplit split = {};
  int64_t ranks = 1;
  // For each of the ranks: all rows of its part, in order.
  std::vector<std::vector<Tensor>> parts;

  // A copy of rows [begin, begin + rows). REQUIRES: ranks == 1; they exist.
  Tensor Rows(int64_t begin, int64_t rows) const;
  // A copy of the whole tensor.
  Tensor Whole() const;

 private:
  Tensor RowsOfPart(int64_t rank, int64_t begin, int64_t rows) const;
};

struct Checkpoint {
  TensorMap state;                              // whole tensors
  std::map<std::string, ShardedTensor> shards;  // of ranks that shared state
  SourceMap frozen;                             // tensors of frozen_file
  std::optional<FrozenFile> frozen_file;  // that was read, if there is one
  int64_t step = 0;                       // optimizer steps done
  uint64_t seed = 0;                      // of the run
  int64_t next_batch = 0;                 // Dataset::Batch's index
  std::string model;  // fingerprint: a checkpoint fits this model only
  std::map<std::string, std::string> notes;  // the caller's, UTF-8

  // Dtype and shape of the whole tensor, "float[2, 3]"; "none".
  std::string TypeOf(const std::string& name) const;
};

struct SaveOptions {
  // Checkpoints that stay, the new one included; older ones are removed.
  int64_t keep = 2;
  // Runs when all is on disk but before the checkpoint has its name. Files that
  // must not lag behind a checkpoint (metrics) are synced here.
  std::function<void()> before_rename;
  FileHook hook;
  // The ranks that save together; null: this process alone. All call
  // SaveCheckpoint with the same arguments, but `state` has the rank's own
  // parts of the tensors in `shards`. Each rank writes these; the first one
  // writes other tensors, and the manifest last. An error of one rank is an
  // error of all. The folder must be one for all ranks.
  Communicator* ranks = nullptr;
  std::map<std::string, Shard> shards = {};
  // Tensors of the file that checkpoints share. All ranks have the same.
  SourceMap frozen = {};
  // Tensors whose numbers must be finite.
  std::set<std::string> finite = {};
  // Not null: where their file lies, if they have been written before. The
  // first rank learns there where it lies now.
  std::optional<FrozenFile>* frozen_file = nullptr;
};

// Returns the new checkpoint's folder. `state` replaces checkpoint.state, and
// `options` its frozen tensors. A file of frozen weights that no checkpoint of
// the folder names any more is removed.
// Checkpoints that evidence needs (evidence.h) stay beside options.keep.
// Errors: the disk; a tensor of options.finite that has NaN or Inf. All files
// of the new checkpoint are then removed, and the
// folder `checkpoints` if that leaves it empty; the last checkpoint is
// unchanged and `latest` names it.
std::string SaveCheckpoint(const std::string& dir, const Checkpoint& checkpoint,
                           const SourceMap& state,
                           const SaveOptions& options = {});
inline std::string SaveCheckpoint(const std::string& dir,
                                  const Checkpoint& checkpoint,
                                  const SaveOptions& options = {}) {
  return SaveCheckpoint(dir, checkpoint, Sources(checkpoint.state), options);
}

// In place of a fingerprint: accepts a checkpoint of any model.
inline constexpr char kAnyModel[] = "*";

// The tensors of a checkpoint that are read, and therefore checked: these
// alone, without the file of frozen weights; nullopt: all of them. The sizes of
// all files of state are checked even if no tensor is read.
using TensorsToRead = std::optional<std::set<std::string>>;

// The name of the newest checkpoint, "step_00000120"; "": there is none.
std::string NewestCheckpoint(const std::string& dir);

// The newest checkpoint of less than `step` steps; "": there is none.
std::string CheckpointBefore(const std::string& dir, int64_t step);

// The checkpoint that `latest` names (without that file: the newest); nothing
// if there is no checkpoint. `dir` may also be the folder of one checkpoint.
// Its tensors are views of the mapped file. Errors: a checkpoint that is
// truncated, edited or of another format or model. The message names the file,
// the reason and, as a way out, the older checkpoint.
std::optional<Checkpoint> LoadLatestCheckpoint(const std::string& dir,
                                               const std::string& model,
                                               const TensorsToRead& only = {});

// One checkpoint by its folder. Errors: as above.
Checkpoint LoadCheckpoint(const std::string& folder, const std::string& model,
                          const TensorsToRead& only = {});

// Removes leftovers of killed saves: temporary files, and checkpoints newer
// than the one that `latest` names. Call it when a run starts, and only in the
// process that owns the folder. Returns the removed paths.
std::vector<std::string> CleanLeftovers(const std::string& dir);

// True if the folder holds a run: a checkpoint or metrics.
bool HoldsRun(const std::string& dir);

// A note that counts steps or others. Errors: another text; the message names
// the note and `folder`.
int64_t CountIn(const std::string& text, const std::string& note,
                const std::string& folder);

}  // namespace onnx_fp8
