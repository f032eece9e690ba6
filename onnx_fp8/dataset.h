// SPDX-License-Identifier: Apache-2.0
//
// Batches of a run, from array or token files:
//
//   DataLayout layout = LayOutData(session->Inputs(), session->Loss());
//   Dataset data(MakeDatasetSpec({"train.npz"}, layout));
//   session->Step(data.Batch(0), lr);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/budgets.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

class ArrayFile;
class PassOrder;
class WeightedOrder;

// One array that the graph is fed with: an input or the label.
struct DatasetInput {
  std::string name;
  DType dtype = DType::kFloat;
  // The first axis is not the sample axis: the array is fed whole with every
  // batch.
  bool whole = false;
  // For an input of integers: an array of floats with two or more axes is fed
  // as float.
  bool or_floats = false;
  bool is_label = false;
  // The label of elements that the loss leaves out; none: it counts all.
  std::optional<int64_t> ignored = {};
  // As InputInfo's: elements lie in 0 … looked_up - 1.
  std::optional<int64_t> looked_up = {};

  // The dtype in which an array is fed.
  DType FedAs(const Tensor& array) const;
};

// Batches that a caller makes.
struct BatchSource {
  // Batch `index` (from 0) of the run, with arrays for these inputs. The caller
  // may ignore the index.
  std::function<TensorMap(int64_t index,
                          const std::vector<DatasetInput>& inputs)>
      batch;
  int64_t batches = 0;  // of an epoch; 0: not known
};

// Samples that a caller reads.
struct RowSource {
  // Arrays for these inputs, with these samples along the first axis.
  std::function<TensorMap(const std::vector<int64_t>& samples,
                          const std::vector<DatasetInput>& inputs)>
      rows;
  int64_t samples = 0;
};

struct DatasetSpec {
  // .npz, .npy and .safetensors, or .bin (token files), not both kinds. Arrays
  // of the same name are concatenated along the samples; files with different
  // names complete each other. A folder stands for its token files, a pattern
  // (* ? [) for the files that fit it (data/data_files.h).
  std::vector<std::string> files;
  // How often samples of each item of `files` are drawn
  // (data/weighted_order.h); none: each sample once in an epoch. An epoch then
  // has as many samples as all items together, and a sample may come twice in
  // it or not at all.
  std::vector<double> weights = {};
  // Arrays in memory, not copied, in place of files; the one name in `files`
  // then stands for them in messages.
  std::optional<TensorMap> arrays = {};
  // The same for whole batches, which have their own size and order. Samples
  // are not counted then.
  std::optional<BatchSource> source = {};
  // The same for samples that the caller reads: the data set chooses them.
  std::optional<RowSource> rows = {};
  std::vector<DatasetInput> inputs;
  int64_t batch_size = 8;
  uint64_t seed = 0;
  bool shuffle = true;
  // Samples that a shuffle keeps together, as neighbors in the files; 0: none.
  // Data beyond the memory are then read in long pieces.
  int64_t shuffle_block = 0;
  // Training drops samples that do not fill a batch; evaluation keeps them.
  bool drop_last = true;
  // For token files: the input named `label` gets the next tokens, the other
  // input gets the tokens.
  std::string label;
  DType token_dtype = DType::kUInt16;
  int64_t seq_len = 0;
  // For token files: the token that ends a document. A row then has several
  // documents or parts of them: the input `segments` gets their numbers,
  // position_ids the places of tokens in their document, and the label of an
  // end is `ignored`.
  std::optional<int64_t> eod = {};
  std::string segments = {};
  int64_t ignored = -100;
  Budgets budgets = {};  // `arrays`, for each file
  // Share `rank` of `ranks` of each batch. Shares differ by at most one sample.
  int64_t rank = 0;
  int64_t ranks = 1;
};

// Errors: files that can't be read, an input without an array, arrays that
// disagree on the number of samples, a dtype that can't become the input's
// without loss (float to integer), less than one batch, a batch with fewer
// samples than ranks.
class Dataset {
 public:
  explicit Dataset(const DatasetSpec& spec);

  const DatasetSpec& spec() const { return spec_; }
  int64_t size() const { return size_; }  // samples
  int64_t batches_per_epoch() const;      // 0: not known
  // Samples that each epoch leaves out.
  int64_t dropped() const;

  // Batch `index` (from 0) of the run, epoch after epoch. It depends only on
  // the files, the spec and `index`: the order of an epoch is a shuffle keyed
  // by seed and epoch (data/pass_order.h), or the order of the files. Shapes
  // are (batch_size, …); the last batch of an epoch may be smaller unless
  // drop_last. Errors: an integer that does not fit the input's dtype, an
  // element outside of the weight that it is looked up in.
  TensorMap Batch(int64_t index) const;

  // The samples of Batch(index), in its order. Empty: the caller makes the
  // batches.
  std::vector<int64_t> Samples(int64_t index) const;

  // Shape of one sample (for a whole array, of the array). REQUIRES: an input.
  Shape SampleShape(const std::string& name) const;

  // Notes for the user: conversions, arrays that nobody reads, samples left
  // out.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // Some samples of one array: rows of `data`, or windows of tokens.
  struct Part {
    Tensor data;
    std::string file;
    int64_t begin;  // index of the first sample
    int64_t count;
  };
  struct Column {
    DatasetInput input;
    std::vector<Part> parts;
    Shape sample;
  };

  void Open();
  void NoteSegments();
  // The files of each item of the spec.
  void OpenArrays(const std::vector<std::vector<std::string>>& files);
  void OpenFile(const std::string& file, ArrayFile arrays,
                std::vector<std::string>* unused);
  void AddWhole(const DatasetInput& input, const std::string& file,
                const Tensor& data);
  void AddRows(const DatasetInput& input, const std::string& file,
               const Tensor& data);
  // Errors: arrays of integers, none of which has rows of `seq_len`.
  void CheckLength() const;
  void CheckComplete(const std::vector<std::string>& unused);
  void OpenRows();
  TensorMap SourceBatch(int64_t index) const;
  TensorMap SourceRows(const std::vector<int64_t>& samples) const;
  // What a caller gave, in the dtypes of the inputs. Errors: an array that is
  // missing or can't be converted.
  TensorMap Taken(const TensorMap& given) const;
  void OpenTokens(const std::vector<std::vector<std::string>>& files);
  void AddTokens(const std::string& file);
  // Keeps how many samples an item has, all files until now considered. Errors:
  // arrays that do not have the same number.
  void EndArraysOf(const std::string& item);
  void SetOrder();
  Tensor Rows(const Column& column, const std::vector<int64_t>& samples) const;
  void AddTokenWindows(const std::vector<int64_t>& samples,
                       TensorMap* batch) const;
  // Errors: an element that is looked up in a weight without such a row. Row i
  // of the batch is `samples[i]`, or not known.
  void CheckLookedUp(const TensorMap& batch,
                     const std::vector<int64_t>& samples) const;
  // Errors: the element at `place` of this array is outside.
  void RefuseElement(const DatasetInput& input, const Tensor& array,
                     int64_t place, const std::vector<int64_t>& samples) const;
  std::string Files() const;

  DatasetSpec spec_;
  int64_t size_ = 0;
  std::vector<Column> columns_;
  TensorMap whole_;
  std::vector<Part> tokens_;
  TensorMap first_row_;  // of a RowSource
  std::vector<std::string> notes_;
  std::vector<int64_t> sizes_;  // samples of each item, with weights
  std::shared_ptr<PassOrder> order_;
  std::shared_ptr<WeightedOrder> weighted_;  // in its place
};

// The caller's choices for what the model leaves open.
struct DataOptions {
  std::vector<std::string> whole;  // names of inputs without a sample axis
  int64_t batch_size = 0;          // samples; 0: as exported, else 8
  int64_t seq_len = 0;  // tokens per sample of token files; 0: as exported
  DType token_dtype = DType::kUInt16;  // dtype of token files; or kUInt32
  std::optional<int64_t> eod = {};     // as DatasetSpec's
  std::string segments = {};           // the session's `segment_ids`
};

// How the arrays of a data set map to the inputs of a model.
struct DataLayout {
  std::vector<DatasetInput> inputs;  // the label included
  int64_t batch_size = 0;            // samples
  bool fixed_batch = false;          // the model takes no other batch size
  int64_t seq_len = 0;               // of token files; 0: not given, not fixed
  std::string label;
  DType token_dtype = DType::kUInt16;
  std::optional<int64_t> eod = {};  // as DatasetSpec's
  std::string segments = {};
  int64_t ignored = -100;
};

// The batch axis is the first axis of the first input that `whole` does not
// name. An input is fed whole if it is a scalar, or if its first axis has
// another name or another fixed size. The label is per sample unless `whole`
// names it. Errors: OptionError if `whole` names no input, batch_size or
// seq_len contradict the model, or `eod` comes without segments.
DataLayout LayOutData(const std::vector<InputInfo>& inputs,
                      const LossSpec& loss, const DataOptions& options = {});

// Batches in the files' order, the last one partial. Training sets shuffle,
// seed and drop_last.
DatasetSpec MakeDatasetSpec(const std::vector<std::string>& files,
                            const DataLayout& layout,
                            const Budgets& budgets = {});

}  // namespace onnx_fp8
