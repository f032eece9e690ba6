// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "base/available_cpus.h"
#include "base/check.h"
#include "base/parallel.h"
#include "cli/feeds.h"
#include "data/arrays.h"
#include "graph/fp8/auto_filter.h"
#include "onnx_fp8/recipe_text.h"
#include "optimizers/optimizer.h"
#include "training/step/loss.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

constexpr double kMaxFloat = std::numeric_limits<float>::max();

double ParseNumber(const std::string& flag, const std::string& text) {
  double value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(value)) {
    throw UsageError(flag + ": expected a number, got \"" + text + "\"");
  }
  return value;
}

void RequireRange(bool ok, const std::string& flag, const char* range,
                  double value) {
  if (ok) return;
  throw UsageError(Concat(flag, ": expected ", range, ", got ", value));
}

// "PATTERN=weight_decay:0,lr_scale:0.1".
ParameterGroup ParseGroup(const std::string& text) {
  const std::string usage =
      "--group: expected PATTERN=weight_decay:X,lr_scale:X, got \"" + text +
      "\"";
  size_t split = text.rfind('=');
  if (split == std::string::npos || split == 0) throw UsageError(usage);
  ParameterGroup group;
  group.pattern = text.substr(0, split);
  std::string rest = text.substr(split + 1);
  while (!rest.empty()) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string item = rest.substr(0, comma);
    rest.erase(0, comma + 1);
    size_t colon = item.find(':');
    if (colon == std::string::npos) throw UsageError(usage);
    std::string key = item.substr(0, colon);
    double value = ParseNumber("--group", item.substr(colon + 1));
    RequireRange(value >= 0, "--group", "values of at least 0", value);
    if (key == "weight_decay") {
      group.weight_decay = value;
    } else if (key == "lr_scale") {
      group.lr_scale = value;
    } else {
      throw UsageError(usage);
    }
  }
  return group;
}

}  // namespace

void MachineFlags::AddTo(Flags& flags) {
  flags.Int(
      "--threads", &threads, 1,
      "threads (default: the CPUs that the affinity mask and cgroup quotas "
      "leave)");
  flags.Choice("--isa", &cpu.isa, CpuIsaNames(),
               "instruction set (default: auto, the best of this machine)");
  flags.Choice("--accumulate", &cpu.accumulate, {"float32", "hopper"},
               "sums of FP8 products: float32, or as a Hopper GPU rounds them, "
               "which is slow (default: float32)");
}

void MachineFlags::Apply() const {
  if (threads > 1024) {
    throw UsageError(Concat("--threads: expected at most 1024, got ", threads));
  }
  SetNumThreads(threads > 0 ? static_cast<int>(threads) : AvailableCpus());
  try {
    onnx_fp8::Apply(cpu);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

void RecipeFlags::AddTo(Flags& flags) {
  flags.Text(
      "--recipe", &recipe,
      "how linear layers run in FP8: " + RecipePresetNames() +
          ", with overrides as in rowwise,go:dyn_row_e5m2_p2, or a .json "
          "file (default: " +
          recipe + "); `onnx-fp8 recipes` explains");
  flags.Words("--recipe-for", &recipe_for,
              "PATTERN=RECIPE: another recipe for the layers that match; the "
              "first match counts");
  flags.List("--filter-fqns", &filter_fqns,
             "layers whose name contains one of these stay in fp32");
  flags.List("--include", &include,
             "only layers that match one of these globs run in FP8");
  flags.List("--exclude", &exclude,
             "layers that match one of these globs stay in fp32");
  flags.Text("--auto-filter", &auto_filter,
             "layers that FP8 makes slower stay in fp32: h100 (torchao's "
             "figures) or a file of `onnx-fp8 bench WHAT --save`");
  flags.File("--scales", &scales,
             "static: file of scales, made by `onnx-fp8 calibrate`, or folder "
             "of a run with delayed scaling");
  flags.Choice("--dtype", &dtype, {"float32", "bfloat16", "float16"},
               "precision of activations, of their gradients and of the copies "
               "of weights that products read (default: float32)");
  flags.Number("--loss-scale", &loss_scaling.init, 0,
               "float16: first factor of the loss (default: 65536)");
  flags.Int("--loss-scale-interval", &loss_scaling.interval, 1,
            "float16: finite steps before the factor doubles (default: 2000)");
}

namespace {

Recipe ParseRecipeFlag(const char* flag, const std::string& text) {
  if (text.ends_with(".json")) return ParseRecipe(text);
  try {
    return ParseRecipe(text);
  } catch (const Error& error) {
    throw UsageError(Concat(flag, ": ", error.what()));
  }
}

void RequireKnown(const SpeedTable& speeds, const Recipe& recipe) {
  try {
    CheckKnown(speeds, recipe);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::pair<std::string, std::string> SplitRecipeFor(const std::string& text) {
  size_t split = text.find('=');
  if (split == std::string::npos || split == 0) {
    throw UsageError(
        "--recipe-for: expected PATTERN=RECIPE, as in layers.0.*=off, got \"" +
        text + "\"");
  }
  return {text.substr(0, split), text.substr(split + 1)};
}

}  // namespace

Recipe RecipeFlags::Make() const { return ParseRecipeFlag("--recipe", recipe); }

DType RecipeFlags::MakeDType() const {
  return dtype == "float32" ? DType::kFloat : ParseDType(dtype);
}

GemmFilter RecipeFlags::MakeFilter() const {
  GemmFilter filter = {filter_fqns, include, exclude, {}, nullptr};
  if (!auto_filter.empty()) {
    filter.speeds =
        std::make_shared<const SpeedTable>(LoadSpeedTable(auto_filter));
    RequireKnown(*filter.speeds, Make());
  }
  for (const std::string& text : recipe_for) {
    auto [glob, name] = SplitRecipeFor(text);
    Recipe own = ParseRecipeFlag("--recipe-for", name);
    if (filter.speeds) RequireKnown(*filter.speeds, own);
    filter.recipes.emplace_back(glob, own);
  }
  return filter;
}

bool UsesStatic(const Recipe& recipe, const GemmFilter& filter) {
  return Fp8Spec{recipe, filter}.Uses(Scaling::kStatic);
}

void RecipeFlags::CheckScales(const Recipe& result,
                              const GemmFilter& filter) const {
  if (!scales.empty() && !UsesStatic(result, filter)) {
    throw UsageError(
        "--scales: expected a recipe with static scales, as static or "
        "tensorwise,i:sta_ten_e4m3, got " +
        RecipeText(result));
  }
}

void RecipeFlags::Fill(SessionOptions* options) const {
  options->recipe = Make();
  options->filter = MakeFilter();
  CheckScales(options->recipe, options->filter);
  options->scales = scales;
  options->dtype = MakeDType();
  options->loss_scaling = loss_scaling;
}

Fp8Spec RecipeFlags::MakeSpec() const {
  Fp8Spec spec = {Make(), MakeFilter()};
  CheckScales(spec.recipe, spec.filter);
  if (!scales.empty()) spec.scales = ReadStaticScales(scales);
  return spec;
}

void RecipeFlags::Resolve(FlagMap* saved) const {
  auto resolved = [](const std::string& text) {
    return text.ends_with(".json") ? RecipeText(ParseRecipe(text)) : text;
  };
  if (saved->contains("--recipe")) (*saved)["--recipe"] = {resolved(recipe)};
  if (!auto_filter.empty() && auto_filter != "h100") {
    (*saved)["--auto-filter"] = {
        std::filesystem::absolute(auto_filter).lexically_normal().string()};
  }
  if (recipe_for.empty()) return;
  std::vector<std::string>& words = (*saved)["--recipe-for"];
  words.clear();
  for (const std::string& text : recipe_for) {
    auto [glob, name] = SplitRecipeFor(text);
    words.push_back(glob + "=" + resolved(name));
  }
}

void LossFlags::AddTo(Flags& flags) {
  flags.Text(
      "--loss", &loss,
      LossNames() +
          "; means as PyTorch's, kl_div by batchmean; FILE.onnx: a model "
          "from outputs and labels, matched by name, to the loss");
  flags.Text("--label", &label, "name of the label array (default: labels)");
  flags.Text("--logits", &logits,
             "output that the loss reads (default: the first)");
  flags.Text("--class-axis", &class_axis,
             "cross_entropy, nll: axis of the logits along which the classes "
             "lie, where the labels' shape does not tell: 1 for (N,C,H,W), -1 "
             "for (N,T,C)");
  flags.Text("--ignore-index", &ignore_index,
             "cross_entropy, nll: the label that does not count (default: "
             "-100)");
  flags.List("--class-weights", &class_weights,
             "cross_entropy, nll: a number for each class, or a file with "
             "them: .npy, .npz or .safetensors");
  flags.Text("--label-smoothing", &label_smoothing,
             "cross_entropy: share of the labels that all classes get, 0 to 1 "
             "(default: 0)");
  flags.Text("--delta", &delta,
             "huber: distance at which squares become lines (default: 1)");
}

namespace {

std::optional<int64_t> ParseInteger(const char* flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    throw UsageError(Concat(flag, ": expected an integer, got ", text));
  }
  return value;
}

std::optional<double> ParseOptional(const char* flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  return ParseNumber(flag, text);
}

std::vector<float> ReadWeights(const std::string& file) {
  TensorMap arrays = ReadArrays(file);
  Check(arrays.size() == 1, "[", file,
        "] expected one array, the weights of the classes, got ",
        arrays.size());
  const auto& [name, array] = *arrays.begin();
  Check(array.rank() == 1 && array.size() > 0 &&
            (IsFloat(array.dtype()) || IsInteger(array.dtype())),
        "[", file, "] expected a vector of numbers, the weights of the ",
        "classes, got ", Name(array.dtype()), ToString(array.shape()), " \"",
        name, "\"");
  const Tensor floats = ConvertTo(array, DType::kFloat);
  return {floats.data<float>(), floats.data<float>() + floats.size()};
}

bool IsArrayFile(const std::string& word) {
  const auto extension = std::filesystem::path(word).extension();
  return extension == ".npy" || extension == ".npz" ||
         extension == ".safetensors";
}

std::vector<float> ParseWeights(const std::vector<std::string>& words) {
  if (words.size() == 1 && IsArrayFile(words[0])) return ReadWeights(words[0]);
  std::vector<float> weights;
  for (const std::string& word : words) {
    weights.push_back(static_cast<float>(ParseNumber("--class-weights", word)));
  }
  return weights;
}

}  // namespace

LossSpec LossFlags::Make() const {
  bool known = loss.empty() || FindLoss(loss) ||
               !OwnOutput(loss).value_or("").empty() || IsLossFile(loss);
  if (!known) {
    throw UsageError("--loss: expected " + LossNames() + ", got " + loss);
  }
  LossSpec spec = {
      .kind = loss,
      .label = label,
      .logits = logits,
      .class_axis = ParseInteger("--class-axis", class_axis),
      .ignore_index = ParseInteger("--ignore-index", ignore_index),
      .label_smoothing = ParseOptional("--label-smoothing", label_smoothing),
      .class_weights = ParseWeights(class_weights),
      .delta = ParseOptional("--delta", delta)};
  // A training step in a file decides its loss.
  if (!loss.empty()) CheckLossOptions(spec);
  return spec;
}

void LossFlags::Resolve(FlagMap* saved) const {
  auto words = saved->find("--class-weights");
  if (words == saved->end()) return;
  std::vector<std::string> numbers;
  for (float weight : ParseWeights(class_weights)) {
    char text[32];
    numbers.emplace_back(text,
                         std::to_chars(text, text + sizeof(text), weight).ptr);
  }
  words->second = numbers;
}

void ParameterFlags::AddTo(Flags& flags) {
  flags.List("--train", &train,
             "train these too (globs over parameter names); an error if one "
             "can't be trained");
  flags.List("--freeze", &freeze, "do not train these; --train wins");
  flags.Choice("--batch-norm", &batch_norm, {"train", "eval", "as-exported"},
               "BatchNormalization normalizes by the batch, by its running "
               "statistics, or as the file says (default: as-exported)");
  flags.Switch("--no-tie", &no_tie,
               "an embedding and a layer's weight that hold the same matrix, "
               "and tensors that the exporter wrote once, are two (default: "
               "one)");
  flags.Words("--tie", &ties, "A=B: these two hold the same and become one");
}

void ParameterFlags::Fill(SessionOptions* options) const {
  options->train = train;
  options->freeze = freeze;
  options->batch_norm = batch_norm == "train"  ? BatchNormMode::kTrain
                        : batch_norm == "eval" ? BatchNormMode::kEval
                                               : BatchNormMode::kAsExported;
  options->tie_copies = !no_tie;
  options->ties = ties;
  for (const std::string& pair : ties) {
    size_t cut = pair.find('=');
    if (cut == std::string::npos || cut == 0 || cut + 1 == pair.size()) {
      throw UsageError(
          "--tie: expected A=B, as in wte.weight=lm_head.weight, "
          "got \"" +
          pair + "\"");
    }
  }
}

void OptimizerFlags::AddTo(Flags& flags) {
  flags.Choice("--optimizer", &optimizer, OptimizerNames(),
               "default: " + optimizer);
  flags.Number("--lr", &lr, 0, "learning rate (default: 0.001)");
  flags.Number("--weight-decay", &weight_decay, 0,
               "default: 0.01 for adamw, else 0");
  flags.List("--betas", &betas, "of Adam and AdamW (default: 0.9,0.999)");
  flags.Number("--eps", &eps, 0, "of Adam and AdamW (default: 1e-8)");
  flags.Number("--momentum", &momentum, 0, "of SGD (default: 0)");
  flags.Switch("--nesterov", &nesterov, "SGD with Nesterov's momentum");
  flags.Number("--clip-norm", &clip_norm, 0,
               "clip gradients by their global norm (default: 0, off)");
  flags.Words(
      "--group", &groups,
      "PATTERN=weight_decay:X,lr_scale:X for some parameters; of several "
      "groups that fit one, the first counts");
}

OptimizerSpec OptimizerFlags::Make(const Flags& flags) const {
  OptimizerSpec spec;
  spec.kind = optimizer;
  spec.lr = lr;
  RequireRange(lr <= kMaxFloat, "--lr", "at most 3.4e38, a float", lr);
  if (betas.size() != 2) {
    throw UsageError(
        Concat("--betas: expected two numbers, as in 0.9,0.999, "
               "got ",
               betas.size()));
  }
  spec.beta1 = ParseNumber("--betas", betas[0]);
  spec.beta2 = ParseNumber("--betas", betas[1]);
  for (double beta : {spec.beta1, spec.beta2}) {
    RequireRange(beta >= 0 && beta < 1, "--betas", "0 <= beta < 1", beta);
  }
  spec.eps = eps;
  if (flags.Has("--weight-decay")) spec.weight_decay = weight_decay;
  spec.momentum = momentum;
  spec.nesterov = nesterov;
  if (nesterov && momentum == 0) {
    throw UsageError("--nesterov needs --momentum");
  }
  spec.clip_norm = clip_norm;
  for (const std::string& text : groups) {
    spec.groups.push_back(ParseGroup(text));
  }
  return spec;
}

void AddExternalData(Flags& flags, bool* external_data) {
  flags.Switch("--external-data", external_data,
               "write weights beside the model, to OUT.onnx.data, as is done "
               "anyway beyond 2 GiB");
}

void AddCheckpoint(Flags& flags, std::string* file) {
  flags.File("--checkpoint", file,
             "of artifacts: a checkpoint in place of the folder's");
}

void AddDumpPasses(Flags& flags, std::string* folder) {
  flags.File("--dump-passes", folder,
             "write each graph as text after each pass to this folder");
}

void AddProvider(Flags& flags, std::string* provider,
                 ProviderOptions* options) {
  std::vector<std::string> names = ProviderNames();
  flags.Choice("--provider", provider, names,
               "where the nodes run (default: " + names[0] + ")");
  flags.Switch("--tune", &options->tune,
               "cuda: time some algorithms of each product when it first runs, "
               "and keep the fastest for this and later runs with --tune");
  flags.Switch("--nondeterministic", &options->nondeterministic,
               "cuda: attention's gradients are sums in any order, which is "
               "faster");
}

void AddLossChunk(Flags& flags, int64_t* bytes) {
  flags.Int("--loss-chunk", bytes, 0,
            "bytes of logits that are in memory at a time: the last layer and "
            "the cross entropy run chunk by chunk (default: 16777216, on a GPU "
            "1073741824; 0: all at once)");
}

void AddEngineFlags(Flags& flags, SessionOptions* options) {
  AddProvider(flags, &options->provider, &options->provider_options);
  flags.File("--profile", &options->profile,
             "write a Chrome trace of all nodes");
  AddDumpPasses(flags, &options->dump_passes);
  flags.List("--expand", &options->expand,
             "run these ops by their bodies in standard ONNX ops");
  AddLossChunk(flags, &options->loss_chunk_bytes);
  flags.Int("--max-plans", &options->max_plans, 1,
            "plans kept, one per shape of the inputs (default: 8)");
}

void SessionFlags::AddTo(Flags& flags) {
  flags.Group("Loss and parameters");
  loss.AddTo(flags);
  parameters.AddTo(flags);
  flags.Group("Numbers");
  recipe.AddTo(flags);
  flags.Group("Engine");
  AddEngineFlags(flags, &engine);
  budgets.AddTo(flags);
}

SessionOptions SessionFlags::Make(const std::string& model) const {
  SessionOptions options = engine;
  options.model = model;
  options.loss = loss.Make();
  recipe.Fill(&options);
  parameters.Fill(&options);
  options.budgets = budgets.Make();
  // The C library keeps memory that reading the file and building the graph
  // have freed, and an arena is too large to come from there.
  options.before_plan = [] { malloc_trim(0); };
  return options;
}

std::map<std::string, int64_t> ParseShapeFlag(
    const std::vector<std::string>& words) {
  std::map<std::string, int64_t> axes;
  for (const std::string& word : words) {
    size_t split = word.rfind('=');
    int64_t size = 0;
    bool ok = split != std::string::npos && split > 0;
    if (ok) {
      const char* end = word.data() + word.size();
      auto [stop, error] = std::from_chars(word.data() + split + 1, end, size);
      ok = error == std::errc() && stop == end && size > 0;
    }
    if (!ok) {
      throw UsageError("--shape: expected AXIS=N with N >= 1, got \"" + word +
                       "\"");
    }
    axes[word.substr(0, split)] = size;
  }
  return axes;
}

std::string AxisName(const InputInfo& input, size_t i) {
  bool named = i < input.axis_names.size() && !input.axis_names[i].empty();
  return named ? input.axis_names[i] : Concat(input.name, ".", i);
}

std::map<std::string, Shape> ResolveShapes(
    const std::vector<InputInfo>& inputs,
    const std::map<std::string, int64_t>& axes) {
  std::map<std::string, Shape> shapes;
  std::set<std::string> known;
  for (const InputInfo& input : inputs) {
    Shape shape = input.shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] >= 0) continue;
      std::string axis = AxisName(input, i);
      known.insert(axis);
      auto it = axes.find(axis);
      if (it != axes.end()) shape[i] = it->second;
    }
    shapes[input.name] = shape;
  }
  for (const auto& [axis, size] : axes) {
    if (known.contains(axis)) continue;
    std::string names;
    for (const std::string& name : known) names += " " + name;
    throw UsageError("--shape: no input has an axis \"" + axis +
                     "\"; there are:" + (names.empty() ? " none" : names));
  }
  return shapes;
}

void AddValueFlag(Flags& flags, std::vector<std::string>* words) {
  flags.List("--value", words,
             "INPUT=N: values of inputs of one integer or bool, where they "
             "decide a branch or a size");
}

InputValues ParseValueFlag(const std::vector<std::string>& words) {
  InputValues values;
  for (const std::string& word : words) {
    size_t split = word.rfind('=');
    bool ok = split != std::string::npos && split > 0;
    std::string text = ok ? word.substr(split + 1) : "";
    if (text == "true") text = "1";
    if (text == "false") text = "0";
    int64_t value = 0;
    const char* end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, value);
    if (!ok || error != std::errc() || stop != end) {
      throw UsageError(
          "--value: expected INPUT=N with an integer, true or false, got \"" +
          word + "\"");
    }
    values[word.substr(0, split)] = value;
  }
  return values;
}

InputValues ResolveValues(const std::vector<InputInfo>& inputs,
                          const InputValues& values) {
  for (const auto& [name, value] : values) {
    auto input = std::ranges::find(inputs, name, &InputInfo::name);
    if (input == inputs.end()) {
      throw UsageError("--value: the model has no input \"" + name + "\"");
    }
    Shape shape = input->shape;
    for (int64_t& size : shape) size = size < 0 ? 1 : size;
    if (!MayBeKey(input->dtype, shape)) {
      throw UsageError(
          Concat("--value: expected an input of one integer or "
                 "bool, got \"",
                 name, "\" of ", Name(input->dtype), ToString(input->shape)));
    }
    FeedAs(Tensor::Scalar(value), input->dtype, "--value " + name);
  }
  return values;
}

}  // namespace onnx_fp8
