// SPDX-License-Identifier: Apache-2.0
#include "training/run/session_options.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/available_cpus.h"
#include "base/joined.h"
#include "base/number_text.h"
#include "base/parallel.h"
#include "data/arrays.h"
#include "graph/fp8/auto_filter.h"
#include "onnx_fp8/dump_spec.h"
#include "onnx_fp8/lora_spec.h"
#include "onnx_fp8/recipe_text.h"
#include "onnx_fp8/stats_spec.h"
#include "optimizers/optimizer.h"
#include "optimizers/own_optimizer.h"
#include "training/make_provider.h"
#include "training/step/given_weights.h"
#include "training/step/loss.h"
#include "training/step/static_scales.h"
#include "training/step/step_limit.h"

namespace onnx_fp8 {
namespace {

// A finite number.
std::optional<double> RealIn(std::string_view text) {
  double value = 0;
  if (ReadNumber(text, &value) && std::isfinite(value)) return value;
  return std::nullopt;
}

double ParseReal(const char* option, const std::string& text) {
  if (std::optional<double> value = RealIn(text)) return *value;
  throw OptionError(
      Concat(Reference(option), ": expected a number, got \"", text, "\""));
}

std::optional<double> Given(const OptionSet& options, const char* name) {
  if (!options.Has(name)) return std::nullopt;
  return options.Number(name);
}

std::optional<int64_t> GivenInt(const OptionSet& options, const char* name) {
  if (!options.Has(name)) return std::nullopt;
  return options.Int(name);
}

Recipe RecipeIn(const char* option, const std::string& text) {
  if (text.ends_with(".json")) return ParseRecipe(text);
  return Blame(option, [&] { return ParseRecipe(text); });
}

LayerRecipes LayerRecipesOf(const OptionSet& options) {
  const std::string text = options.Text("recipe");
  if (text.ends_with(".json")) return ParseLayerRecipes(text);
  return Blame("recipe", [&] { return ParseLayerRecipes(text); });
}

void CheckSpeeds(const SpeedTable& speeds, const Recipe& recipe) {
  try {
    CheckKnown(speeds, recipe);
  } catch (const Error& error) {
    throw OptionError(error.what());
  }
}

void CheckScales(const std::string& scales, const Recipe& recipe,
                 const GemmFilter& filter) {
  if (scales.empty() || UsesStatic(recipe, filter)) return;
  throw OptionError(
      "`scales`: expected a recipe with static scales, as static or "
      "tensorwise,i:sta_ten_e4m3, got " +
      RecipeText(recipe));
}

// "PATTERN=weight_decay:0,lr_scale:0.1".
ParameterGroup GroupIn(const std::string& text) {
  auto usage = [&] {
    return OptionError(
        "`group`: expected PATTERN=weight_decay:X,lr_scale:X, got \"" + text +
        "\"");
  };
  const size_t split = text.rfind('=');
  if (split == std::string::npos || split == 0) throw usage();
  ParameterGroup group;
  group.pattern = text.substr(0, split);
  if (split + 1 == text.size()) return group;
  for (const std::string& item : SplitWords(text.substr(split + 1), ',')) {
    const size_t colon = item.find(':');
    if (colon == std::string::npos) throw usage();
    const std::string key = item.substr(0, colon);
    const double value = ParseReal("group", item.substr(colon + 1));
    if (value < 0) {
      throw OptionError(
          Concat("`group`: expected values of at least 0, got ", value));
    }
    if (key != "weight_decay" && key != "lr_scale") throw usage();
    (key == "lr_scale" ? group.lr_scale : group.weight_decay) = value;
  }
  return group;
}

// "1" or "1:previous".
void ReadClipNorm(const std::string& text, OptimizerSpec* spec) {
  std::string_view number = text;
  constexpr std::string_view kPrevious = ":previous";
  spec->clip_previous = number.ends_with(kPrevious);
  if (spec->clip_previous) number.remove_suffix(kPrevious.size());
  const double norm = RealIn(number).value_or(-1);
  if (norm < 0 || (spec->clip_previous && norm == 0)) {
    throw OptionError(
        "`clip_norm`: expected a number of at least 0, or X:previous with an X "
        "above 0, got " +
        text);
  }
  spec->clip_norm = norm;
}

// "0.999" or "0.999,every=10".
void ReadEma(const std::string& text, OptimizerSpec* spec) {
  constexpr std::string_view kEvery = ",every=";
  const size_t split = text.find(kEvery);
  const double decay =
      RealIn(std::string_view(text).substr(0, split)).value_or(-1);
  int64_t every = 1;
  const bool reads = split == std::string::npos ||
                     ReadNumber(text.substr(split + kEvery.size()), &every);
  if (!(decay >= 0 && decay < 1) || !reads || every < 1) {
    throw OptionError(
        "`ema`: expected D or D,every=N with a decay D of at least 0 and below "
        "1 and N of at least 1, got " +
        text);
  }
  spec->ema = decay;
  spec->ema_every = every;
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

// "64", "64k", "64M", "64G"; -1 if the text is no such number, or beyond 64
// bits.
int64_t Amount(std::string text) {
  int64_t factor = 1;
  int i = 0;
  for (const char suffix : {'k', 'M', 'G'}) {
    ++i;
    if (!text.ends_with(suffix)) continue;
    factor = int64_t{1} << (10 * i);
    text.pop_back();
    break;
  }
  int64_t amount = 0;
  bool ok = ReadNumber(text, &amount) && amount >= 0 &&
            !__builtin_mul_overflow(amount, factor, &amount);
  return ok ? amount : -1;
}

ShardSpec ShardOf(const OptionSet& options) {
  const std::string shard = options.Text("shard");
  const std::string gather = options.Text("gather_dtype");
  return {.what = shard == "optimizer"    ? Sharding::kOptimizer
                  : shard == "gradients"  ? Sharding::kGradients
                  : shard == "parameters" ? Sharding::kParameters
                                          : Sharding::kNone,
          .gather = gather == "float32"    ? GatherAs::kFloat
                    : gather == "bfloat16" ? GatherAs::kBFloat16
                                           : GatherAs::kFloat8};
}

// Fills in the fields that rows of options name.
void FillFields(const OptionSet& options, SessionOptions* session) {
  for (const Option& option : options.options()) {
    if (!options.Has(option.name) && option.preset.empty()) continue;
    auto fill = [&]<typename T>(T SessionOptions::*field, auto get) {
      session->*field = (options.*get)(option.name);
    };
    const OptionField& field = option.more.field;
    if (const auto* at = std::get_if<1>(&field)) fill(*at, &OptionSet::On);
    if (const auto* at = std::get_if<2>(&field)) fill(*at, &OptionSet::Int);
    if (const auto* at = std::get_if<3>(&field)) fill(*at, &OptionSet::Text);
    if (const auto* at = std::get_if<4>(&field)) fill(*at, &OptionSet::List);
  }
}

void CheckTies(const std::vector<std::string>& ties) {
  for (const std::string& pair : ties) {
    const size_t cut = pair.find('=');
    if (cut != std::string::npos && cut > 0 && cut + 1 < pair.size()) continue;
    throw OptionError(
        "`tie`: expected A=B, as in wte.weight=lm_head.weight, got \"" + pair +
        "\"");
  }
}

}  // namespace

void ApplyMachine(const OptionSet& options) {
  const int64_t threads = options.Int("threads");
  SetNumThreads(threads > 0 ? static_cast<int>(threads) : AvailableCpus());
  try {
    Apply(CpuSettings{options.Text("isa"), options.Text("accumulate")});
  } catch (const Error& error) {
    throw OptionError(error.what());
  }
}

Recipe RecipeOf(const OptionSet& options) {
  return LayerRecipesOf(options).recipe;
}

DType PrecisionOf(const std::string& dtype) {
  return dtype == "float32" ? DType::kFloat : ParseDType(dtype);
}

GemmFilter FilterOf(const OptionSet& options) {
  GemmFilter filter = {options.List("filter_fqns"),
                       options.List("include"),
                       options.List("exclude"),
                       {},
                       nullptr};
  const LayerRecipes recipes = LayerRecipesOf(options);
  if (const std::string speeds = options.Text("auto_filter"); !speeds.empty()) {
    filter.speeds = std::make_shared<const SpeedTable>(LoadSpeedTable(speeds));
    CheckSpeeds(*filter.speeds, recipes.recipe);
  }
  for (const std::string& text : options.List("recipe_for")) {
    const size_t split = text.find('=');
    if (split == std::string::npos || split == 0) {
      throw OptionError(
          "`recipe_for`: expected PATTERN=RECIPE, as in layers.0.*=off, got "
          "\"" +
          text + "\"");
    }
    Recipe own = RecipeIn("recipe_for", text.substr(split + 1));
    if (filter.speeds) CheckSpeeds(*filter.speeds, own);
    filter.recipes.emplace_back(text.substr(0, split), own);
  }
  for (const auto& [glob, own] : recipes.layers) {
    if (filter.speeds) CheckSpeeds(*filter.speeds, own);
    filter.recipes.emplace_back(glob, own);
  }
  return filter;
}

Fp8Spec SpecOf(const OptionSet& options) {
  Fp8Spec spec = {RecipeOf(options), FilterOf(options)};
  const std::string scales = options.Text("scales");
  CheckScales(scales, spec.recipe, spec.filter);
  if (!scales.empty()) spec.scales = ReadStaticScales(scales);
  return spec;
}

bool UsesStatic(const Recipe& recipe, const GemmFilter& filter) {
  return Fp8Spec{recipe, filter}.Uses(Scaling::kStatic);
}

std::vector<float> ClassWeightsOf(const OptionSet& options) {
  const std::vector<std::string> words = options.List("class_weights");
  for (const char* extension : {".npy", ".npz", ".safetensors"}) {
    if (words.size() == 1 && words[0].ends_with(extension)) {
      return ReadWeights(words[0]);
    }
  }
  std::vector<float> weights;
  for (const std::string& word : words) {
    weights.push_back(static_cast<float>(ParseReal("class_weights", word)));
  }
  return weights;
}

LossSpec LossOf(const OptionSet& options) {
  LossSpec spec = {.kind = options.Text("loss"),
                   .label = options.Text("label"),
                   .logits = options.Text("logits"),
                   .class_axis = GivenInt(options, "class_axis"),
                   .ignore_index = GivenInt(options, "ignore_index"),
                   .label_smoothing = Given(options, "label_smoothing"),
                   .class_weights = ClassWeightsOf(options),
                   .delta = Given(options, "delta")};
  const std::string& kind = spec.kind;
  // A training step in a file decides its loss.
  if (kind.empty()) return spec;
  if (!FindLoss(kind) && OwnOutput(kind).value_or("").empty() &&
      !IsLossFile(kind)) {
    throw OptionError("`loss`: expected " + LossNames() + ", got " + kind);
  }
  CheckLossOptions(spec);
  return spec;
}

// Errors: a setting that the optimizer does not read. CheckOptimizer refuses
// the settings that an optimizer in a file does not read.
void CheckRead(const OptimizerSpec& spec) {
  if (IsOptimizerFile(spec.kind)) return;
  const OptimizerSpec usual;
  const bool sgd = spec.kind == "sgd";
  const auto refuse = [&](const char* name, const char* readers) {
    throw OptionError(Concat("`", name, "` needs ", readers,
                             ", got `optimizer=", spec.kind, "`"));
  };
  if (spec.momentum != 0 && !sgd && spec.kind != "muon") {
    refuse("momentum", "`optimizer=sgd` or muon");
  }
  if (spec.nesterov && !sgd) refuse("nesterov", "`optimizer=sgd`");
  if (sgd && (spec.beta1 != usual.beta1 || spec.beta2 != usual.beta2)) {
    refuse("betas", "an optimizer with two averages");
  }
}

void ReadMuon(const OptionSet& options, OptimizerSpec* spec) {
  MuonSettings& muon = spec->muon;
  if (spec->kind != "muon") {
    for (const char* name : {"muon_for", "no_nesterov", "adjust_lr_fn",
                             "ns_steps", "ns_coefficients"}) {
      if (!options.Has(name)) continue;
      throw OptionError(Concat(Reference(name), " needs `optimizer=muon`"));
    }
    return;
  }
  muon.momentum = Given(options, "momentum").value_or(muon.momentum);
  muon.nesterov = !options.On("no_nesterov");
  muon.only = options.List("muon_for");
  muon.adjust_lr = options.Text("adjust_lr_fn");
  muon.steps = options.Int("ns_steps");
  const std::vector<std::string> numbers = options.List("ns_coefficients");
  if (numbers.size() != muon.coefficients.size()) {
    throw OptionError(
        Concat("`ns_coefficients`: expected three numbers, as in "
               "3.4445,-4.775,2.0315, got ",
               numbers.size()));
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    muon.coefficients[i] = ParseReal("ns_coefficients", numbers[i]);
  }
}

OptimizerSpec OptimizerOf(const OptionSet& options) {
  OptimizerSpec spec = {.kind = options.Text("optimizer"),
                        .lr = options.Number("lr"),
                        .eps = options.Number("eps"),
                        .weight_decay = Given(options, "weight_decay"),
                        .decay = options.Text("decay"),
                        .momentum = Given(options, "momentum").value_or(0),
                        .nesterov = options.On("nesterov"),
                        .release_gradients = options.On("release_gradients"),
                        .moments = options.Text("moments"),
                        .master = options.Text("master")};
  ReadClipNorm(options.Text("clip_norm"), &spec);
  ReadEma(options.Text("ema"), &spec);
  const std::vector<std::string> betas = options.List("betas");
  if (betas.size() != 2) {
    throw OptionError(Concat(
        "`betas`: expected two numbers, as in 0.9,0.999, got ", betas.size()));
  }
  spec.beta1 = ParseReal("betas", betas[0]);
  spec.beta2 = ParseReal("betas", betas[1]);
  for (double beta : {spec.beta1, spec.beta2}) {
    if (beta >= 0 && beta < 1) continue;
    throw OptionError(Concat("`betas`: expected 0 <= beta < 1, got ", beta));
  }
  const std::vector<std::string> known = OptimizerNames();
  if (std::ranges::count(known, spec.kind) == 0 &&
      !IsOptimizerFile(spec.kind)) {
    throw OptionError(Concat("`optimizer`: expected ", Joined(known),
                             " or FILE.onnx, got ", spec.kind));
  }
  CheckRead(spec);
  ReadMuon(options, &spec);
  if (spec.nesterov && spec.momentum == 0) {
    throw OptionError("`nesterov` needs `momentum`");
  }
  for (const std::string& text : options.List("group")) {
    spec.groups.push_back(GroupIn(text));
  }
  return spec;
}

Budgets BudgetsOf(const OptionSet& options) {
  Budgets budgets;
  for (const std::string& word : options.List("budget")) {
    const size_t split = word.find('=');
    const std::string name = word.substr(0, split);
    const int64_t amount =
        split == std::string::npos ? -1 : Amount(word.substr(split + 1));
    std::string names;
    Budget budget = nullptr;
    for (const BudgetInfo& info : AllBudgets()) {
      names += Concat(names.empty() ? "" : ", ", info.name);
      if (name == info.name) budget = info.of;
    }
    if (!budget || amount < 0) {
      throw OptionError(
          Concat("`budget`: expected NAME=N[k|M|G] with a name of ", names,
                 " and N from 0 to 2^63 - 1, got \"", word, "\""));
    }
    budgets.*budget = amount;
  }
  return budgets;
}

ProviderOptions ProviderOptionsOf(const OptionSet& options) {
  return {.tune = options.On("tune"),
          .nondeterministic = options.On("nondeterministic")};
}

DataOptions DataOf(const OptionSet& options) {
  DataOptions data = {options.List("whole"), options.Int("batch_size"),
                      options.Int("seq_len"),
                      ParseDType(options.Text("token_dtype"))};
  data.eod = GivenInt(options, "eod");
  if (options.Find("segment_ids")) data.segments = options.Text("segment_ids");
  return data;
}

std::vector<double> DataWeightsOf(const OptionSet& options) {
  std::vector<double> weights;
  for (const std::string& word : options.List("data_weights")) {
    weights.push_back(ParseReal("data_weights", word));
    if (weights.back() > 0) continue;
    throw OptionError("`data_weights`: expected numbers above 0, got " + word);
  }
  const size_t items = options.List("data").size();
  if (!weights.empty() && weights.size() != items) {
    throw OptionError(
        Concat("`data_weights`: expected a number for each item of `data`, ",
               items, ", got ", weights.size()));
  }
  return weights;
}

Schedule ScheduleOf(const OptionSet& options) {
  return Blame("schedule",
               [&] { return ParseSchedule(options.Text("schedule")); });
}

EarlyStop EarlyStopOf(const OptionSet& options) {
  return Blame("early_stop",
               [&] { return ParseEarlyStop(options.Text("early_stop")); });
}

double SpikeOf(const OptionSet& options) {
  constexpr std::string_view kSpikeKey = "spike=";
  const std::string text = options.Text("watch");
  if (text.empty()) return 0;
  double factor = 0;
  if (!text.starts_with(kSpikeKey) ||
      !ReadNumber(std::string_view(text).substr(kSpikeKey.size()), &factor) ||
      !std::isfinite(factor) || factor <= 1) {
    throw OptionError(
        Concat("`watch`: expected spike=X with a number above 1, got ", text));
  }
  return factor;
}

Mesh MeshOf(const std::string& mesh) {
  if (mesh.empty()) return {};
  return Blame("mesh", [&] { return ParseMesh(mesh); });
}

void CheckRanks(const OptionSet& options) {
  const bool whole = options.Text("shard") == "none";
  if (!whole && MeshOf(options.Text("mesh")).dp == 1) {
    throw OptionError("`shard` needs `mesh` dp=N with N of 2 or more");
  }
  if (options.Has("gather_dtype") && whole) {
    throw OptionError("`gather_dtype` needs `shard`");
  }
}

bool DividesState(const OptionSet& options) {
  return options.Text("shard") != "none" || MeshOf(options.Text("mesh")).tp > 1;
}

SessionOptions SessionOptionsOf(const OptionSet& options,
                                const std::string& model) {
  SessionOptions session;
  FillFields(options, &session);
  if (!session.memory.empty() && session.memory != "auto") {
    ParseMemory(session.memory);
  }
  CheckWeightOptions(session);
  if (!session.lora.empty()) ParseLora(session.lora);
  ParseStats(session.stats);
  ParseDump(session.dump, session.at_steps, session.what);
  session.model = model;
  session.given = options.AllGiven();
  if (options.Find("loss")) session.loss = LossOf(options);
  session.recipe = RecipeOf(options);
  session.filter = FilterOf(options);
  session.scales = options.Text("scales");
  CheckScales(session.scales, session.recipe, session.filter);
  session.dtype = PrecisionOf(options.Text("dtype"));
  session.loss_scaling.init = options.Number("loss_scale");
  session.loss_scaling.interval = options.Int("loss_scale_interval");
  if (options.Find("batch_norm")) {
    const std::string norm = options.Text("batch_norm");
    session.batch_norm = norm == "train"  ? BatchNormMode::kTrain
                         : norm == "eval" ? BatchNormMode::kEval
                                          : BatchNormMode::kAsExported;
    session.tie_copies = !options.On("no_tie");
    CheckTies(session.ties);
  }
  if (options.Find("budget")) session.budgets = BudgetsOf(options);
  if (options.Find("optimizer")) session.optimizer = OptimizerOf(options);
  if (options.Find("shard")) session.shard = ShardOf(options);
  if (options.Find("tune")) {
    session.provider_options = ProviderOptionsOf(options);
    session.provider_options.timeline = !session.timeline.empty();
  }
  if (options.Find("no_overlap")) session.overlap = !options.On("no_overlap");
  if (options.Find("seed")) {
    session.seed = static_cast<uint64_t>(options.Int("seed"));
  }
  // The C library keeps memory that reading the file and building the graph
  // have freed, and an arena is too large to come from there.
  session.before_plan = [] { malloc_trim(0); };
  return session;
}

}  // namespace onnx_fp8
