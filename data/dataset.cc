// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/dataset.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "data/arrays.h"
#include "data/data_files.h"
#include "data/pass_order.h"
#include "data/token_file.h"
#include "data/weighted_order.h"

namespace onnx_fp8 {
namespace {

// Whether the token is in one of the windows of a file, of which a million
// tokens in all are looked at. `looked` grows by their number.
bool HasToken(int64_t token, const Tensor& data, int64_t windows,
              int64_t length, int64_t* looked) {
  constexpr int64_t kMost = 1'000'000;
  std::vector<int64_t> inputs(static_cast<size_t>(length)), labels = inputs;
  for (int64_t i = 0; i < windows && *looked < kMost; ++i) {
    CopyWindow(data, length, i, inputs.data(), labels.data());
    if (std::ranges::count(inputs, token) > 0) return true;
    *looked += length;
  }
  return false;
}

bool IsTokenFile(const std::string& file) {
  return std::filesystem::path(file).extension() == ".bin";
}

bool Converts(DType from, DType to) {
  bool whole = IsInteger(from) || from == DType::kBool;
  return from == to || (whole && (IsInteger(to) || to == DType::kBool)) ||
         (whole && IsFloat(to)) || (IsFloat(from) && IsFloat(to));
}

// REQUIRES: Converts(t.dtype(), to). Errors: an integer that does not fit.
Tensor Converted(const Tensor& t, DType to, const std::string& where) {
  if (t.dtype() == to) return t;
  Tensor out = ConvertTo(t, to);
  if (IsFloat(to)) return out;
  // A uint64 beyond int64 reads as negative.
  bool sign_differs = (t.dtype() == DType::kUInt64) != (to == DType::kUInt64);
  for (int64_t i = 0; i < t.size(); ++i) {
    int64_t x = IntAt(t, i);
    Check(IntAt(out, i) == x && !(sign_differs && x < 0), "[", where,
          "] expected values that fit ", Name(to), ", got ", DoubleAt(t, i));
  }
  return out;
}

// The input of positions, as Hugging Face's models name it.
constexpr char kPositions[] = "position_ids";

// REQUIRES: there is one.
const DatasetInput& FirstOfSamples(const std::vector<DatasetInput>& inputs) {
  return *std::ranges::find(inputs, false, &DatasetInput::whole);
}

// The part that holds `sample`.
template <typename Part>
const Part& Find(const std::vector<Part>& parts, int64_t sample) {
  auto after = std::ranges::upper_bound(parts, sample, {}, &Part::begin);
  return *std::prev(after);
}

}  // namespace

DType DatasetInput::FedAs(const Tensor& array) const {
  const bool table = IsFloat(array.dtype()) && array.rank() >= 2;
  return or_floats && table ? DType::kFloat : dtype;
}

Dataset::Dataset(const DatasetSpec& spec) : spec_(spec) {
  Check(!spec.files.empty(), "expected data files, got none");
  if (spec.source) {
    Check(spec.ranks == 1, "[", Files(),
          "] expected files or arrays, which several ranks share, got batches");
    return;
  }
  Check(spec.batch_size > 0 && spec.batch_size <= UINT32_MAX,
        "expected a batch size in 1…2^32 - 1, got ", spec.batch_size);
  Check(spec.shuffle_block >= 0, "expected `shuffle_block` of at least 0, got ",
        spec.shuffle_block);
  Open();
  Check(size_ > 0, "[", Files(), "] holds no samples");
  Check(size_ <= UINT32_MAX, "[", Files(),
        "] expected less than 2^32 samples, "
        "got ",
        size_);
  Check(!spec.drop_last || size_ >= spec.batch_size, "[", Files(),
        "] expected at least one batch of ", spec.batch_size, " samples, got ",
        size_);
  int64_t rest = spec.drop_last ? 0 : size_ % spec.batch_size;
  int64_t fewest = rest > 0 ? rest : spec.batch_size;
  Check(fewest >= spec.ranks, "[", Files(),
        "] expected a sample for each of the ", spec.ranks,
        " ranks, got a batch of ", fewest, " (`batch_size`)");
  SetOrder();
  if (dropped() > 0) {
    notes_.push_back(Concat(dropped(), " of ", size_,
                            " samples are left out of each epoch: they do not "
                            "fill a batch of ",
                            spec.batch_size));
  }
}

std::string Dataset::Files() const { return Joined(spec_.files); }

void Dataset::NoteSegments() {
  if (!spec_.eod) return;
  notes_.push_back(Concat("[", Files(),
                          "] arrays have segments of their own: `eod` is for "
                          "token files"));
}

void Dataset::Open() {
  if (spec_.rows) {
    NoteSegments();
    return OpenRows();
  }
  const bool fits =
      spec_.weights.empty() ||
      (!spec_.arrays && spec_.weights.size() == spec_.files.size());
  Check(fits, "`data_weights`: expected a weight for each item of `data`, ",
        spec_.files.size(), ", got ", spec_.weights.size());
  std::vector<std::vector<std::string>> files;
  int64_t count = 0, tokens = 0;
  for (const std::string& item : spec_.files) {
    if (spec_.arrays) continue;  // a name that stands for them
    files.push_back(DataFiles(item, spec_.token_dtype));
    count += std::ssize(files.back());
    tokens += std::ranges::count_if(files.back(), IsTokenFile);
  }
  if (tokens == 0) {
    NoteSegments();
    return OpenArrays(files);
  }
  Check(tokens == count, "[", Files(),
        "] expected token files (.bin) or arrays, got both");
  OpenTokens(files);
}

void Dataset::OpenArrays(const std::vector<std::vector<std::string>>& files) {
  std::vector<std::string> unused;
  if (spec_.arrays) OpenFile(Files(), ArrayFile(*spec_.arrays), &unused);
  for (size_t i = 0; i < files.size(); ++i) {
    for (const std::string& file : files[i]) {
      OpenFile(file, ArrayFile(file, spec_.budgets), &unused);
    }
    if (!spec_.weights.empty()) EndArraysOf(spec_.files[i]);
  }
  CheckComplete(unused);
}

void Dataset::OpenFile(const std::string& file, ArrayFile arrays,
                       std::vector<std::string>* unused) {
  for (const std::string& name : arrays.names()) {
    auto found = std::ranges::find(spec_.inputs, name, &DatasetInput::name);
    if (found == spec_.inputs.end()) {
      unused->push_back(name);
      continue;
    }
    Tensor data = arrays.Read(name);
    DatasetInput input = *found;
    input.dtype = input.FedAs(data);
    Check(Converts(data.dtype(), input.dtype), "[", file, "] expected array \"",
          name, "\" of ", Name(input.dtype), ", got ", Name(data.dtype()));
    if (data.dtype() != input.dtype) {
      notes_.push_back(Concat("[", file, "] array \"", name, "\" of ",
                              Name(data.dtype()), " is converted to ",
                              Name(input.dtype)));
    }
    input.whole ? AddWhole(input, file, data) : AddRows(input, file, data);
  }
}

void Dataset::AddWhole(const DatasetInput& input, const std::string& file,
                       const Tensor& data) {
  Tensor converted = Converted(data, input.dtype, file + ": " + input.name);
  auto [it, added] = whole_.emplace(input.name, converted);
  Check(added || Identical(it->second, converted), "[", file,
        "] expected the same array \"", input.name,
        "\" as in the files before, since it is fed whole");
}

void Dataset::AddRows(const DatasetInput& input, const std::string& file,
                      const Tensor& data) {
  Check(data.rank() > 0, "[", file, "] expected array \"", input.name,
        "\" with a sample axis, got a scalar; an array that is not per sample "
        "can be named with `whole`");
  Shape sample(data.shape().begin() + 1, data.shape().end());
  auto column = std::ranges::find(columns_, input.name,
                                  [](const Column& c) { return c.input.name; });
  if (column == columns_.end()) {
    columns_.push_back({input, {{data, file, 0, data.dim(0)}}, sample});
    return;
  }
  const Part& last = column->parts.back();
  Check(column->sample == sample && last.data.dtype() == data.dtype(), "[",
        file, "] expected array \"", input.name, "\" of ",
        Name(last.data.dtype()), ToString(column->sample), " per sample as in ",
        last.file, ", got ", Name(data.dtype()), ToString(sample));
  column->parts.push_back({data, file, last.begin + last.count, data.dim(0)});
}

void Dataset::CheckLength() const {
  if (spec_.seq_len == 0) return;
  const Column* other = nullptr;
  for (const Column& column : columns_) {
    if (!IsInteger(column.input.dtype) || column.sample.size() != 1) continue;
    if (column.sample[0] == spec_.seq_len) return;
    other = &column;
  }
  Check(!other, "[", other->parts.front().file, "] expected rows of ",
        spec_.seq_len, " elements (`seq_len`) in \"", other->input.name,
        "\", got rows of ", other->sample[0], "; only token files are cut");
}

void Dataset::CheckComplete(const std::vector<std::string>& unused) {
  std::vector<std::string> found = unused;
  for (const Column& column : columns_) found.push_back(column.input.name);
  for (const auto& [name, data] : whole_) found.push_back(name);
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  for (const DatasetInput& input : spec_.inputs) {
    Check(std::ranges::binary_search(found, input.name), "[", Files(),
          "] expected an array \"", input.name, "\", got ",
          found.empty() ? "none" : Joined(found),
          input.name == spec_.label ? "; `label` names another one" : "");
  }
  Check(!columns_.empty(), "[", Files(),
        "] expected an array with a sample axis, got whole arrays only");
  auto samples = [](const Column& column) {
    return column.parts.back().begin + column.parts.back().count;
  };
  const Column& first = columns_.front();
  for (const Column& column : columns_) {
    Check(samples(column) == samples(first), "[", column.parts.back().file,
          "] array \"", column.input.name, "\" has ", samples(column),
          " samples, \"", first.input.name, "\" has ", samples(first),
          "; an array that is not per sample can be named with `whole`");
  }
  size_ = samples(first);
  CheckLength();
  std::set<std::string> names(unused.begin(), unused.end());
  if (names.size() == 1) {
    notes_.push_back(Concat("[", Files(), "] array \"", *names.begin(),
                            "\" is no input of the model"));
  } else if (!names.empty()) {
    notes_.push_back(Concat("[", Files(), "] ", names.size(),
                            " arrays are no inputs of the model: ",
                            Joined({names.begin(), names.end()})));
  }
}

void Dataset::EndArraysOf(const std::string& item) {
  const int64_t before = std::reduce(sizes_.begin(), sizes_.end());
  for (const DatasetInput& input : spec_.inputs) {
    if (input.whole) continue;
    const auto column = std::ranges::find(
        columns_, input.name, [](const Column& c) { return c.input.name; });
    int64_t samples = -before;
    if (column != columns_.end()) {
      samples += column->parts.back().begin + column->parts.back().count;
    }
    if (&input == &FirstOfSamples(spec_.inputs)) sizes_.push_back(samples);
    Check(samples == sizes_.back(), "[", item, "] expected ", sizes_.back(),
          " samples of \"", input.name,
          "\", as of the other arrays of this "
          "item, got ",
          samples, " (`data_weights`)");
  }
}

void Dataset::SetOrder() {
  if (spec_.weights.empty()) {
    order_ = std::make_shared<PassOrder>(size_, spec_.seed, spec_.shuffle,
                                         spec_.shuffle_block);
    return;
  }
  for (size_t i = 0; i < sizes_.size(); ++i) {
    Check(sizes_[i] > 0, "[", spec_.files[i], "] holds no samples");
  }
  weighted_ = std::make_shared<WeightedOrder>(
      sizes_, spec_.weights, spec_.seed, spec_.shuffle, spec_.shuffle_block);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const double share = weighted_->Share(i);
    const double passes =
        share * static_cast<double>(size_) / static_cast<double>(sizes_[i]);
    notes_.push_back(Concat("[", spec_.files[i], "] gives ", share,
                            " of the samples, in an epoch of ", size_, " ",
                            passes, " passes over its ", sizes_[i]));
  }
}

void Dataset::OpenTokens(const std::vector<std::vector<std::string>>& files) {
  Check(spec_.seq_len > 0, "[", Files(),
        "] expected a sequence length (`seq_len`) for token files");
  const int64_t most =
      spec_.token_dtype == DType::kUInt16 ? UINT16_MAX : int64_t{UINT32_MAX};
  Check(spec_.eod.value_or(0) <= most, "[", Files(), "] expected an `eod` of ",
        "at most ", most, ", which tokens of ", Name(spec_.token_dtype),
        " can be, got ", spec_.eod.value_or(0));
  std::vector<std::string> names;
  for (const DatasetInput& input : spec_.inputs) {
    Check(IsInteger(input.dtype), "[", Files(), "] holds tokens, but input \"",
          input.name, "\" is of ", Name(input.dtype));
    const bool of_documents =
        spec_.eod && (input.name == spec_.segments || input.name == kPositions);
    const bool label = input.name == spec_.label;
    if (!of_documents && !label) names.push_back(input.name);
  }
  Check(names.size() == 1, "[", Files(),
        "] provides one input and the label \"", spec_.label, "\"",
        spec_.eod ? ", segments and positions" : "", ", expected ",
        names.empty() ? "none" : Joined(names),
        !spec_.eod && !spec_.segments.empty()
            ? "; `eod` tells where documents end"
            : "");
  for (const std::vector<std::string>& item : files) {
    const int64_t before = size_;
    for (const std::string& file : item) AddTokens(file);
    if (!spec_.weights.empty()) sizes_.push_back(size_ - before);
  }
  if (!spec_.eod) return;
  int64_t looked = 0;
  for (const Part& part : tokens_) {
    if (HasToken(*spec_.eod, part.data, part.count, spec_.seq_len, &looked)) {
      return;
    }
  }
  notes_.push_back(Concat("[", Files(), "] the first ", looked,
                          " tokens end no document: expected the token that "
                          "does as `eod`, got ",
                          *spec_.eod));
}

void Dataset::AddTokens(const std::string& file) {
  Tensor tokens = ReadTokens(file, spec_.token_dtype);
  int64_t windows = NumWindows(tokens, spec_.seq_len);
  Check(windows > 0, "[", file, "] expected at least ", spec_.seq_len,
        " + 1 tokens, got ", tokens.size());
  tokens_.push_back({tokens, file, size_, windows});
  size_ += windows;
}

void Dataset::OpenRows() {
  for (const DatasetInput& input : spec_.inputs) {
    Check(!input.whole, "[", Files(), "] expected inputs of samples, but \"",
          input.name, "\" is fed whole: rows hold samples only");
  }
  size_ = spec_.rows->samples;
  if (size_ > 0) first_row_ = SourceRows({0});
}

int64_t Dataset::batches_per_epoch() const {
  if (spec_.source) return spec_.source->batches;
  int64_t rest = spec_.drop_last ? 0 : spec_.batch_size - 1;
  return (size_ + rest) / spec_.batch_size;
}

int64_t Dataset::dropped() const {
  const bool drops = spec_.drop_last && !spec_.source && !weighted_;
  return drops ? size_ % spec_.batch_size : 0;
}

std::vector<int64_t> Dataset::Samples(int64_t index) const {
  if (spec_.source) return {};
  const int64_t epoch = index / batches_per_epoch();
  int64_t begin = index % batches_per_epoch() * spec_.batch_size;
  int64_t end = std::min(begin + spec_.batch_size, size_);
  int64_t n = end - begin;
  end = begin + n * (spec_.rank + 1) / spec_.ranks;
  begin += n * spec_.rank / spec_.ranks;
  std::vector<int64_t> samples;
  const int64_t drawn =
      epoch *
      (spec_.drop_last ? batches_per_epoch() * spec_.batch_size : size_);
  for (int64_t i = begin; i < end; ++i) {
    samples.push_back(weighted_ ? weighted_->At(drawn + i)
                                : order_->At(epoch, i));
  }
  return samples;
}

TensorMap Dataset::Batch(int64_t index) const {
  Check(index >= 0, "expected a batch from 0 on, got ", index);
  if (spec_.source) {
    TensorMap batch = SourceBatch(index);
    CheckLookedUp(batch, {});
    return batch;
  }
  const std::vector<int64_t> samples = Samples(index);
  TensorMap batch = spec_.rows ? SourceRows(samples) : whole_;
  for (const Column& column : columns_) {
    batch[column.input.name] = Rows(column, samples);
  }
  if (!tokens_.empty()) AddTokenWindows(samples, &batch);
  CheckLookedUp(batch, samples);
  return batch;
}

void Dataset::CheckLookedUp(const TensorMap& batch,
                            const std::vector<int64_t>& samples) const {
  for (const DatasetInput& input : spec_.inputs) {
    if (!input.looked_up) continue;
    const Tensor& array = batch.at(input.name);
    for (int64_t i = 0; i < array.size(); ++i) {
      const int64_t row = IntAt(array, i);
      if (row >= 0 && row < *input.looked_up) [[likely]]
        continue;
      RefuseElement(input, array, i, samples);
    }
  }
}

void Dataset::RefuseElement(const DatasetInput& input, const Tensor& array,
                            int64_t place,
                            const std::vector<int64_t>& samples) const {
  const int64_t element = IntAt(array, place);
  std::string file = Files(), where;
  if (!input.whole && array.rank() > 0) {
    const int64_t elements = array.size() / array.dim(0);
    int64_t sample = place / elements;
    place %= elements;
    if (!samples.empty()) {
      sample = samples[static_cast<size_t>(sample)];
      auto name = [](const Column& column) { return column.input.name; };
      auto column = std::ranges::find(columns_, input.name, name);
      const auto& parts = column != columns_.end() ? column->parts : tokens_;
      if (!parts.empty()) {  // else the caller reads the samples
        const Part& part = Find(parts, sample);
        file = part.file;
        sample -= part.begin;
      }
    }
    where =
        Concat("sample ", sample, samples.empty() ? " of the batch" : "", ", ");
  }
  Fail("[", file, "] expected \"", input.name, "\" in 0…", *input.looked_up - 1,
       ", the rows of a weight that it looks up, got ", element, " in ", where,
       "element ", place);
}

TensorMap Dataset::SourceBatch(int64_t index) const {
  return Taken(spec_.source->batch(index, spec_.inputs));
}

TensorMap Dataset::SourceRows(const std::vector<int64_t>& samples) const {
  TensorMap rows = Taken(spec_.rows->rows(samples, spec_.inputs));
  for (const auto& [name, array] : rows) {
    Check(array.rank() > 0 && array.dim(0) == std::ssize(samples), "[", Files(),
          "] expected ", samples.size(), " samples of \"", name, "\", got ",
          ToString(array.shape()));
  }
  return rows;
}

TensorMap Dataset::Taken(const TensorMap& given) const {
  TensorMap batch;
  for (const DatasetInput& input : spec_.inputs) {
    auto it = given.find(input.name);
    std::vector<std::string> names;
    for (const auto& [name, array] : given) names.push_back(name);
    Check(it != given.end(), "[", Files(), "] expected an array \"", input.name,
          "\" in a batch, got ", names.empty() ? "none" : Joined(names));
    const Tensor& array = it->second;
    const DType dtype = input.FedAs(array);
    Check(Converts(array.dtype(), dtype), "[", Files(), "] expected array \"",
          input.name, "\" of ", Name(dtype), ", got ", Name(array.dtype()));
    batch[input.name] = Converted(array, dtype, Files() + ": " + input.name);
  }
  return batch;
}

Tensor Dataset::Rows(const Column& column,
                     const std::vector<int64_t>& samples) const {
  Shape shape = column.sample;
  shape.insert(shape.begin(), std::ssize(samples));
  Tensor rows =
      Tensor::Allocate(column.parts.front().data.dtype(), std::move(shape));
  size_t row = rows.bytes() / samples.size();
  uint8_t* to = static_cast<uint8_t*>(rows.raw());
  for (int64_t sample : samples) {
    const Part& part = Find(column.parts, sample);
    const uint8_t* from = static_cast<const uint8_t*>(part.data.raw());
    if (row > 0) {
      std::memcpy(to, from + static_cast<size_t>(sample - part.begin) * row,
                  row);
    }
    to += row;
  }
  return Converted(rows, column.input.dtype,
                   Files() + ": " + column.input.name);
}

void Dataset::AddTokenWindows(const std::vector<int64_t>& samples,
                              TensorMap* batch) const {
  Shape shape = {std::ssize(samples), spec_.seq_len};
  Tensor inputs = Tensor::Allocate(DType::kInt64, shape);
  Tensor labels = Tensor::Allocate(DType::kInt64, shape);
  Tensor segments = Tensor::Allocate(DType::kInt64, shape);
  Tensor positions = Tensor::Allocate(DType::kInt64, shape);
  int64_t at = 0;
  for (int64_t sample : samples) {
    const Part& part = Find(tokens_, sample);
    CopyWindow(part.data, spec_.seq_len, sample - part.begin,
               inputs.data<int64_t>() + at, labels.data<int64_t>() + at);
    if (spec_.eod) {
      MarkDocuments(inputs.data<int64_t>() + at, spec_.seq_len, *spec_.eod,
                    spec_.ignored, segments.data<int64_t>() + at,
                    positions.data<int64_t>() + at,
                    labels.data<int64_t>() + at);
    }
    at += spec_.seq_len;
  }
  for (const DatasetInput& input : spec_.inputs) {
    const bool of_documents = spec_.eod.has_value();
    const Tensor& data = input.name == spec_.label ? labels
                         : of_documents && input.name == spec_.segments
                             ? segments
                         : of_documents && input.name == kPositions ? positions
                                                                    : inputs;
    (*batch)[input.name] =
        Converted(data, input.dtype, Files() + ": " + input.name);
  }
}

Shape Dataset::SampleShape(const std::string& name) const {
  if (!tokens_.empty()) return {spec_.seq_len};
  if (spec_.rows) {
    const Shape& shape = first_row_.at(name).shape();
    return {shape.begin() + 1, shape.end()};
  }
  for (const Column& column : columns_) {
    if (column.input.name == name) return column.sample;
  }
  return whole_.at(name).shape();
}

}  // namespace onnx_fp8
