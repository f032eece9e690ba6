# SPDX-License-Identifier: Apache-2.0
"""Flags that make no sense by themselves (exit code 2) or with this model (1)."""
import numpy as np

from bad_input.case import CLASSES, Cases, arrays, good, good_run, grad, model, save, train
from onnx import TensorProto, helper

CASES = cases = Cases()


def wrong(*words):
    return cases(*words, code=2)


def training(*flags, **changes):
    """A case's function: the good model trained with these flags."""
    def make(folder):
        good(folder)
        return train(*flags, **changes)

    return make


# For errors that only a step shows: the folder is already written then.
BEGUN = ("run/config.json", "run/model/m.onnx")


def case(name, *words, make, **options):
    make.__name__ = name
    cases(*words, **options)(make)


for name, words, flags in [
    ("learning_rate_nan", "--lr: expected a number of at least 0, got nan", ["--lr", "nan"]),
    ("learning_rate_infinite", "--lr: expected a number of at least 0, got inf", ["--lr", "inf"]),
    ("learning_rate_negative", "--lr: expected a number of at least 0, got -1e-3", ["--lr=-1e-3"]),
    ("learning_rate_no_number", "--lr: expected a number of at least 0, got 1e-3x", ["--lr", "1e-3x"]),
    ("learning_rate_beyond_float", "--lr: expected at most 3.40282e+38, got 1e+300", ["--lr", "1e300"]),
    ("clip_norm_negative", "--clip-norm: expected a number of at least 0, or X:previous with an X above 0, got -1",
     ["--clip-norm=-1"]),
    ("clip_norm_of_an_unknown_step", "or X:previous with an X above 0, got 1:previus", ["--clip-norm", "1:previus"]),
    ("clip_norm_without_a_number", "or X:previous with an X above 0, got :previous", ["--clip-norm", ":previous"]),
    ("batch_zero", "--batch-size: expected an integer of at least 1, got 0", ["--batch-size", "0"]),
    ("batch_of_a_half", "--batch-size: expected an integer of at least 1, got 0.5", ["--batch-size", "0.5"]),
    ("accumulation_huge", "--grad-accum: expected at most 65536, got 1000000000000", ["--grad-accum", "1000000000000"]),
    ("end_of_documents_negative", "--eod: expected an integer of at least 0, got -1", ["--eod=-1"]),
    ("accumulation_zero", "--grad-accum: expected an integer of at least 1, got 0", ["--grad-accum", "0"]),
    ("accumulation_by_what_is_none", "--grad-accum-by: expected batches or tokens, got samples", ["--grad-accum-by", "samples"]),
    ("budget_unknown", "--budget: expected NAME=N[k|M|G] with a name of constants, nodes, visits, work, arrays and N",
     ["--budget", "seconds=5"]),
    ("budget_without_a_number", "--budget: expected NAME=N[k|M|G] with a name of constants,", ["--budget", "nodes=many"]),
    ("seed_negative", "--seed: expected an integer of at least 0, got -1", ["--seed=-1"]),
    ("threads_no_number", "--threads: expected an integer of at least 1, got many", ["--threads", "many"]),
    ("recipe_unknown",
     "--recipe: [recipe fp4] expected off, tensorwise, rowwise, rowwise_with_gw_hp, delayed, static, blockwise, mxfp8, "
     "a .json file or items as in i:dyn_ten_e4m3, got \"fp4\"", ["--recipe", "fp4"]),
    ("recipe_with_an_unknown_item", "--recipe: [recipe rowwise,x:1] expected one of i, w, go, i_gw,",
     ["--recipe", "rowwise,x:1"]),
    ("recipe_of_delayed_rows",
     "--recipe: [recipe delayed,i:del16_row_e4m3] i: expected dynamic scaling with row scales, got delayed",
     ["--recipe", "delayed,i:del16_row_e4m3"]),
    ("recipe_that_mixes_precisions",
     "--recipe: [recipe tensorwise,w:hp] forward: weight (w) is in high precision, input (i) is not",
     ["--recipe", "tensorwise,w:hp"]),
    ("scale_dtype_for_scales_that_are_no_powers_of_two",
     "scales: e8m0 holds powers of two: expected _p2 or _floor at i",
     ["--recipe", "tensorwise,scales:e8m0"]),
    ("auto_filter_of_blocks",
     "--auto-filter h100: expected a recipe of tensors or rows, got i:dyn_blk32_e4m3_p2,",
     ["--recipe", "mxfp8", "--auto-filter", "h100"]),
    ("recipe_for_without_a_recipe", "--recipe-for: expected PATTERN=RECIPE, as in layers.0.*=off, got \"layers.0\"",
     ["--recipe-for", "layers.0"]),
    ("recipe_for_an_unknown_one", "--recipe-for: [recipe fp4] expected off, tensorwise", ["--recipe-for", "*=fp4"]),
    ("master_unknown", "--master: expected float32, split8, bfloat16 or split, got fp8", ["--master", "fp8"]),
    ("moments_unknown", "--moments: expected float32, bfloat16 or fp8, got fp4", ["--moments", "fp4"]),
    ("optimizer_unknown", "--optimizer: expected adamw, adam, adamw_hf, muon, sgd or FILE.onnx, got lion", ["--optimizer", "lion"]),
    ("muon_for_another", "--muon-for needs --optimizer muon", ["--muon-for", "*"]),
    ("muon_coefficients", "--ns-coefficients: expected three numbers, as in 3.4445,-4.775,2.0315, got 2",
     ["--optimizer", "muon", "--ns-coefficients", "1,2"]),
    ("schedule_unknown",
     "--schedule: [schedule staircase] expected constant, linear, cosine or wsd, then :warmup=STEPS",
     ["--schedule", "staircase"]),
    ("schedule_with_a_bad_number",
     "--schedule: [schedule cosine:warmup=-3] expected a number in 0…9007199254740992, got \"-3\"",
     ["--schedule", "cosine:warmup=-3"]),
    ("schedule_with_an_unknown_key", "--schedule: [schedule cosine:floor=3] expected warmup or min, got \"floor\"",
     ["--schedule", "cosine:floor=3"]),
    ("schedule_without_its_decay", "--schedule: [schedule wsd:warmup=3] expected decay=STEPS, as in wsd:decay=200, got none",
     ["--schedule", "wsd:warmup=3"]),
    ("schedule_with_the_decay_of_another", "--schedule: [schedule cosine:decay=3] expected warmup or min, got \"decay\"",
     ["--schedule", "cosine:decay=3"]),
    ("schedule_longer_than_the_run", "--schedule: expected warm-up and decay of at most 2 steps, as many as the run has, got 2 and 1",
     ["--schedule", "wsd:warmup=2,decay=1"]),
    ("dump_without_steps", "--dump needs --at-steps", ["--dump", "*"]),
    ("steps_without_a_dump", "--at-steps needs --dump", ["--at-steps", "1"]),
    ("what_without_a_dump", "--what needs --dump", ["--what", "input"]),
    ("dump_at_no_number", "--at-steps: expected whole numbers from 1, got \"0\"", ["--dump", "*", "--at-steps", "1,0"]),
    ("dump_of_an_unknown_word", "--what: expected words of input, weight, grad_output, output, got \"inputs\"",
     ["--dump", "*", "--at-steps", "1", "--what", "weight,inputs"]),
    ("dump_beyond_the_run", "--at-steps: expected steps of the run, which has 2, got 3", ["--dump", "*", "--at-steps", "2,3"]),
    ("metrics_unknown", "--metrics: expected accuracy or perplexity, got \"f1\"", ["--metrics", "f1"]),
    ("perplexity_of_smoothed_labels",
     "--metrics: expected numbers of the loss, got perplexity, which is not known of cross_entropy with --class-weights or "
     "--label-smoothing", ["--metrics", "perplexity", "--label-smoothing", 0.1]),
    ("ema_of_one", "--ema: expected D or D,every=N with a decay D of at least 0 and below 1 and N of at least 1, got 1",
     ["--ema", 1]),
    ("ema_at_no_update", "--ema: expected D or D,every=N with a decay D of at least 0 and below 1 and N of at least 1, got 0.9,every=0",
     ["--ema", "0.9,every=0"]),
    ("ema_without_a_number", "--ema: expected D or D,every=N with a decay D of at least 0 and below 1 and N of at least 1, got 0.9,",
     ["--ema", "0.9,"]),
    ("averages_of_a_run_without", "--eval-with ema: expected a run with --ema, got one that keeps no averages of weights",
     ["--eval-with", "ema"]),
    ("decay_of_what_is_none", "--decay: expected all, layers or matrices, got norms", ["--decay", "norms"]),
    ("betas_one_number", "--betas: expected two numbers, as in 0.9,0.999, got 1", ["--betas", "0.9"]),
    ("betas_of_one", "--betas: expected 0 <= beta < 1, got 1", ["--betas", "0.9,1"]),
    ("betas_no_numbers", "--betas: expected a number, got \"a\"", ["--betas", "a,b"]),
    ("momentum_of_adamw", "--momentum needs --optimizer sgd or muon, got --optimizer adamw", ["--momentum", 0.9]),
    ("nesterov_of_adamw", "--nesterov needs --optimizer sgd, got --optimizer adamw", ["--nesterov"]),
    ("betas_of_sgd", "--betas needs an optimizer with two averages, got --optimizer sgd",
     ["--optimizer", "sgd", "--betas", "0.9,0.99"]),
    ("group_without_values", "--group: expected PATTERN=weight_decay:X,lr_scale:X, got \"w\"", ["--group", "w"]),
    ("group_with_an_unknown_key", "--group: expected PATTERN=weight_decay:X,lr_scale:X, got \"w=lr:1\"",
     ["--group", "w=lr:1"]),
    ("group_with_a_value_below_zero", "--group: expected values of at least 0, got -1", ["--group", "w=lr_scale:-1"]),
    ("tie_of_one", "--tie: expected A=B, as in wte.weight=lm_head.weight, got \"w\"", ["--tie", "w"]),
    ("tie_with_nothing", "--tie: expected A=B, as in wte.weight=lm_head.weight, got \"w=\"", ["--tie", "w="]),
    ("batch_norm_unknown", "--batch-norm: expected train, eval or as-exported, got frozen", ["--batch-norm", "frozen"]),
    ("amax_history_zero", "history: expected 1 to 4096 steps, got 0", ["--recipe", "delayed,history:0"]),
    ("amax_history_that_fits_no_memory", "history: expected 1 to 4096 steps, got 9000000000000000000",
     ["--recipe", "delayed,history:9000000000000000000"]),
    ("margin_beyond_floats", "margin: expected -100 to 100, got 9999", ["--recipe", "delayed,margin:9999"]),
    ("whole_of_nothing", "--whole: the model has no input positions, only x, labels", ["--whole", "positions"]),
    ("offload_of_what_is_none", "--offload: expected none or optimizer, got parameters", ["--offload", "parameters"]),
    ("tune_on_the_cpu", "--tune: expected the provider cuda, got cpu", ["--tune"]),
    ("nondeterministic_on_the_cpu", "--nondeterministic: expected the provider cuda, got cpu", ["--nondeterministic"]),
    ("smoothing_below_zero", "--label-smoothing: expected 0 to 1, got -0.1", ["--label-smoothing=-0.1"]),
    ("smoothing_above_one", "--label-smoothing: expected 0 to 1, got 1.5", ["--label-smoothing", "1.5"]),
    ("smoothing_no_number", "--label-smoothing: expected a number, got much", ["--label-smoothing", "much"]),
    ("delta_of_another_loss", "--delta is an option of the loss huber, got cross_entropy", ["--delta", "1"]),
    ("class_axis_no_number", "--class-axis: expected an integer, got last", ["--class-axis", "last"]),
    ("ignore_index_no_number", "--ignore-index: expected an integer, got none", ["--ignore-index", "none"]),
    ("class_weights_below_zero", "--class-weights: expected numbers of at least 0, got -1", ["--class-weights=1,-1,1"]),
    ("class_weights_no_numbers", "--class-weights: expected a number, got \"a\"", ["--class-weights", "a,b,c"]),
    ("flag_twice", "--lr: expected once, got 2 times", ["--lr", "1", "--lr", "2"]),
    ("flag_without_its_value", "--lr: expected a value, got none", ["--lr"]),
    ("flag_misspelt", "there is no option --optimiser; did you mean --optimizer?", ["--optimiser", "sgd"]),
    ("flag_of_another_trainer", "there is no option --learning-rate; did you mean --lr?", ["--learning-rate", "0.1"]),
    ("switch_of_another_trainer", "there is no option --bf16; did you mean --dtype bfloat16?", ["--bf16"]),
    ("no_checkpoint_stays", "--keep-last: expected an integer of at least 1, got 0", ["--keep-last", "0"]),
    ("checkpoints_of_another_trainer", "there is no option --save-total-limit; did you mean --keep-last?",
     ["--save-total-limit", "2"]),
    ("batches_of_no_validation", "--val-batch-size needs --val-data", ["--val-batch-size", "3"]),
    ("validation_batch_of_another_trainer", "there is no option --per-device-eval-batch-size; did you mean --val-batch-size?",
     ["--per-device-eval-batch-size", "3"]),
    ("patience_of_nothing", "--early-stop needs --val-data", ["--early-stop", "3"]),
    ("patience_of_another_trainer", "there is no option --early-stopping-patience; did you mean --early-stop?",
     ["--early-stopping-patience", "3"]),
    ("best_of_nothing", "--save-best needs --val-data", ["--save-best", "loss"]),
    ("best_by_what_is_unknown", "--save-best: expected loss or accuracy, got f1", ["--save-best", "f1"]),
]:
    case(name, words, code=2, make=training(*flags))

case("steps_negative", "--steps: expected an integer of at least 1, got -5", code=2, make=training(steps="-5"))
case("steps_beyond_64_bits", "--steps: expected an integer of at least 1, got 99999999999999999999", code=2,
     make=training(steps="99999999999999999999"))


@wrong("--primary-weights fp8: expected --shard none, optimizer or gradients, because each rank keeps whole codes from step to step, "
       "got parameters; --shard optimizer divides all but the codes")
def whole_codes_of_parts(folder):
    good(folder)
    return ["plan", "m.onnx", "--loss", "cross_entropy", "--gpu", "h100", "--mesh", "dp=2", "--batch-size", "4", "--shard", "parameters",
            "--primary-weights", "fp8"]


@wrong("--frozen fp8: expected ranks that keep whole frozen weights (tp=1), got tp=2")
def frozen_weights_in_parts(folder):
    good(folder)
    return ["plan", "m.onnx", "--loss", "cross_entropy", "--gpu", "h100", "--mesh", "tp=2", "--batch-size", "4", "--frozen", "fp8"]


@wrong("--release-gradients: expected --dtype float32 or bfloat16, because the loss scale of float16 follows all gradients, got float16")
def gradients_that_no_step_releases(folder):
    good(folder)
    return ["inspect", "m.onnx", "--dtype", "float16", "--release-gradients"]


@wrong("--val-batch-size: the model was exported for batches of 2, got 3")
def validation_batch_of_a_fixed_model(folder):
    good(folder)
    save(model(inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])]), folder / "m.onnx")
    return train("--val-batch-size", "3", "--val-data", "good.npz")


@wrong("--early-stop: expected N or N:MIN_DELTA with an integer N of at least 1 and a number of at least 0, as in 3:0.001, "
       "got \"soon\"")
def patience_no_number(folder):
    good(folder)
    return train("--early-stop", "soon", "--val-data", "good.npz")


@wrong("--save-best: expected loss, got accuracy, which is not known of mse")
def best_accuracy_of_numbers(folder):
    good(folder)
    data = arrays()
    np.savez(folder / "good.npz", x=data["x"], labels=np.zeros((len(data["x"]), CLASSES), np.float32))
    return train("--save-best", "accuracy", "--val-data", "good.npz", loss="mse")


@cases("[run] holds no best checkpoint: `onnx-fp8 train` with --save-best keeps one")
def best_of_a_run_without(folder):
    good_run(folder)
    return ["eval", "run", "--data", "good.npz", "--best"]


@wrong("--best is for the folder of a run")
def best_of_a_model(folder):
    good(folder)
    return ["eval", "m.onnx", "--data", "good.npz", "--loss", "cross_entropy", "--best"]


for kind in ("hinge", "output:"):
    case(f"loss_{kind.strip(':')}", f"--loss: expected cross_entropy, nll, mse, l1, huber, kl_div, bce, bce_with_logits, output:NAME or "
         f"FILE.onnx, got {kind}",
         code=2, make=training(loss=kind))


for name, words, flags in [
    ("filter_that_matches_nothing",
     "[m.onnx] --filter-fqns headd matches no matrix product; `onnx-fp8 inspect` lists them",
     ["--filter-fqns", "headd", "--recipe", "tensorwise"]),
    ("recompute_that_matches_nothing",
     "[m.onnx] --recompute head.* matches no module; the file names none",
     ["--recompute", "head.*"]),
    ("memory_that_is_too_small",
     "expected a step that fits into 1 bytes (--memory), got one that needs ", ["--memory", "1"]),
    ("state_dir_that_does_not_exist",
     "--state-dir: [none] expected a folder for new files: No such file or directory", ["--state-dir", "none"]),
    ("state_dir_that_is_a_file",
     "--state-dir: [m.onnx] expected a folder for new files: Not a directory", ["--state-dir", "m.onnx"]),
    ("include_that_matches_nothing",
     "[m.onnx] --include head.* matches no matrix product; `onnx-fp8 inspect` lists them",
     ["--include", "w,head.*", "--recipe", "tensorwise"]),
    ("exclude_that_matches_nothing",
     "[m.onnx] --exclude z matches no matrix product; `onnx-fp8 inspect` lists them",
     ["--exclude", "z", "--recipe", "tensorwise"]),
    ("recipe_for_what_matches_nothing",
     "[m.onnx] --recipe-for z* matches no matrix product; `onnx-fp8 inspect` lists them",
     ["--recipe-for", "z*=off", "--recipe", "tensorwise"]),
    ("recipes_with_two_histories",
     "expected history, algo, margin and update as those of the main recipe",
     ["--recipe-for", "w=delayed,history:4", "--recipe", "delayed"]),
    ("train_that_matches_nothing", "[m.onnx] --train lora* matches no float initializer; `onnx-fp8 inspect` lists them",
     ["--train", "lora*"]),
    ("freeze_that_matches_nothing", "[m.onnx] --freeze z matches no float initializer; `onnx-fp8 inspect` lists them",
     ["--freeze", "z"]),
    ("tie_to_what_is_not_there", "[m.onnx] --tie z is no float initializer; `onnx-fp8 inspect` lists them",
     ["--tie", "w=z"]),
    ("tie_of_what_differs",
     "[m.onnx] --tie w=b: expected the same numbers in both, as they are or transposed", ["--tie", "w=b"]),
    ("group_that_matches_nothing",
     "[m.onnx] expected trained parameters that match \"zzz\", got none; `onnx-fp8 inspect` lists them", ["--group", "zzz=lr_scale:0"]),
    ("everything_frozen",
     "[m.onnx] expected parameters to train, got none; `onnx-fp8 inspect` tells why", ["--freeze", "*"]),
    ("expand_of_an_unknown_op",
     "--expand: expected an op with a body in ONNX ops, got Frobnicate", ["--expand", "Frobnicate"]),
    ("dump_that_matches_nothing", "[m.onnx] --dump: expected a linear layer that v* matches, got w",
     ["--dump", "w,v*", "--at-steps", "2"]),
    ("logits_that_are_no_output", "[m.onnx] expected an output named z, got y", ["--logits", "z"]),
]:
    case(name, words, code=1, make=training(*flags), leaves=BEGUN)

for name, words, flags in [
    ("class_axis_of_the_batch", "--class-axis: expected 1 to 1 for \"y\" of shape [2,3], got 0", ["--class-axis", "0"]),
    ("class_axis_beyond_the_rank", "--class-axis: expected 1 to 1 for \"y\" of shape [2,3], got 2", ["--class-axis", "2"]),
    ("offload_on_the_cpu", "--offload: expected a step on a GPU, got one on the provider cpu, for which --state-dir ",
     ["--offload", "optimizer"]),
    ("muon_for_a_vector", "--muon-for: expected matrices, got b of shape [3]", ["--optimizer", "muon", "--muon-for", "b"]),
    ("muon_for_nothing", "--muon-for: expected trained parameters that match \"z.*\", got none; `onnx-fp8 inspect` lists them",
     ["--optimizer", "muon", "--muon-for", "z.*"]),
    ("class_weights_of_another_number", "--class-weights: expected 3 numbers, one for each class, got 2",
     ["--class-weights", "1,2"]),
]:
    case(name, words, code=2, make=training(*flags), leaves=BEGUN)

case("memory_that_is_no_size",
     '--memory: expected auto or a size, as in 74GiB, 80GB, 512MiB or a number of bytes, got "lots"', code=2,
     make=training("--memory", "lots"))
case("delta_of_zero", "--delta: expected a number above 0, got 0", code=2, make=training("--delta", "0", loss="huber"))


@cases("[w.npy] expected a vector of numbers, the weights of the classes, got float[1,3] \"w\"")
def class_weights_that_are_no_vector(folder):
    import numpy as np
    np.save(folder / "w.npy", np.ones((1, 3), np.float32))
    good(folder)
    return train("--class-weights", "w.npy")


@cases("[w.npz] expected one array, the weights of the classes, got 2")
def class_weights_in_two_arrays(folder):
    import numpy as np
    np.savez(folder / "w.npz", a=np.ones(3), b=np.ones(3))
    good(folder)
    return train("--class-weights", "w.npz")


@cases("[w.npy] can't be opened: No such file or directory")
def class_weights_that_are_missing(folder):
    good(folder)
    return train("--class-weights", "w.npy")


case("loss_that_is_no_output", "[m.onnx] expected an output named nothing, got y", code=1,
     make=training(loss="output:nothing"))
case("loss_that_is_no_scalar", "[m.onnx] expected a loss of one element, got \"y\" of shape [2,3]; outputs: y",
     code=1, leaves=BEGUN, make=training(loss="output:y"))


@cases("[speeds.json] expected what `onnx-fp8 bench` saves: expected the format \"onnx_fp8 gemm speeds 1\" or \"onnx_fp8 layer speedups 1\"")
def speeds_that_are_none(folder):
    good(folder)
    (folder / "speeds.json").write_text('{"format": 1}')
    return train("--recipe", "tensorwise", "--auto-filter", "speeds.json")


@cases("[speeds.json] expected what `onnx-fp8 bench` saves: expected 2 speed-ups, got 1")
def speedups_of_too_few_layers(folder):
    good(folder)
    (folder / "speeds.json").write_text('{"format": "onnx_fp8 layer speedups 1", "m": [8, 64], "k": [8], "n": [8], '
                                        '"speedup": [1.5]}')
    return train("--recipe", "tensorwise", "--auto-filter", "speeds.json")


@cases("[speeds.json] expected what `onnx-fp8 bench` saves: expected speed-ups above 0, got 0")
def speedups_of_nothing(folder):
    good(folder)
    (folder / "speeds.json").write_text('{"format": "onnx_fp8 layer speedups 1", "m": [8], "k": [8], "n": [8], '
                                        '"speedup": [0]}')
    return train("--recipe", "tensorwise", "--auto-filter", "speeds.json")


@cases("[speeds.json] expected what `onnx-fp8 bench` saves, got deep nesting")
def speeds_nested_deeply(folder):
    good(folder)
    (folder / "speeds.json").write_text('{"format": ' + "[" * 100_000 + "]" * 100_000 + "}")
    return train("--recipe", "tensorwise", "--auto-filter", "speeds.json")


@cases("[mine.json] expected a recipe as JSON, got another text")
def recipe_file_that_is_no_json(folder):
    good(folder)
    (folder / "mine.json").write_text("rowwise")
    return train("--recipe", "mine.json")


@cases("[mine.json] input: expected a string or an integer, got null")
def recipe_file_with_null(folder):
    good(folder)
    (folder / "mine.json").write_text('{"recipe": "rowwise", "input": null}')
    return train("--recipe", "mine.json")


@cases("[mine.json] expected a recipe, got deep nesting")
def recipe_file_nested_deeply(folder):
    good(folder)
    (folder / "mine.json").write_text('{"input": ' + "[" * 100_000 + "]" * 100_000 + "}")
    return train("--recipe", "mine.json")


@cases("[mine.json] can't be opened: No such file or directory")
def recipe_file_that_is_missing(folder):
    good(folder)
    return train("--recipe", "mine.json")


@cases("--epochs: expected less than 2^63 batches in all, got 9000000000000000000 times 2")
def epochs_that_overflow(folder):
    good(folder)
    command = train(steps="9000000000000000000")
    return ["--epochs" if word == "--steps" else word for word in command]


# ---- other commands

@wrong("--shape: no input has an axis \"btach\"; there are: batch")
def shape_of_an_unknown_axis(folder):
    good(folder)
    return ["inspect", "m.onnx", "--shape", "btach=4"]


@wrong("--shape: expected AXIS=N with N >= 1, got \"batch=0\"")
def shape_of_zero(folder):
    good(folder)
    return ["inspect", "m.onnx", "--shape", "batch=0"]


@wrong("--shape: expected AXIS=N with N >= 1, got \"batch\"")
def shape_without_a_size(folder):
    good(folder)
    return ["inspect", "m.onnx", "--shape", "batch"]


@wrong("--shape: expected AXIS=N with N >= 1, got \"batch=99999999999999999999\"")
def shape_beyond_64_bits(folder):
    good(folder)
    return ["inspect", "m.onnx", "--shape", "batch=99999999999999999999"]


for name, words, value in [
    ("value_of_nothing", "--value: expected INPUT=N with an integer, true or false, got \"5\"", "5"),
    ("value_without_a_number", "--value: expected INPUT=N with an integer, true or false, got \"sr=\"", "sr="),
    ("value_of_a_half", "--value: expected INPUT=N with an integer, true or false, got \"sr=0.5\"", "sr=0.5"),
    ("value_beyond_64_bits", "--value: expected INPUT=N with an integer, true or false, got \"sr=9223372036854775808\"",
     "sr=9223372036854775808"),
    ("value_of_an_unknown_input", "--value: the model has no input \"sr\"", "sr=1"),
    ("value_of_a_tensor", "--value: expected an input of one integer or bool, got \"x\" of float[?,5]", "x=1"),
]:
    def with_value(folder, value=value):
        good(folder)
        return ["inspect", "m.onnx", "--shape", "batch=4", "--value", value]

    with_value.__name__ = name
    wrong(words)(with_value)


@cases("[--value flag] expected numbers that fit bool, got int64 beyond it")
def value_that_is_no_bool(folder):
    from bad_input.case import helper, linear_nodes, model, save, TensorProto
    make = helper.make_tensor_value_info
    inputs = [make("x", TensorProto.FLOAT, ["batch", 5]), make("flag", TensorProto.BOOL, [])]
    save(model(linear_nodes(), inputs=inputs), folder / "m.onnx")
    return ["inspect", "m.onnx", "--shape", "batch=4", "--value", "flag=2"]


@wrong("--shape: a whole training step needs the size of the axis \"batch\" of the input x")
def step_without_a_shape(folder):
    good(folder)
    return ["rewrite", "m.onnx", "-o", "out.onnx", "--loss", "cross_entropy"]


@wrong("--out: expected a name that ends in .onnx, got out.pt")
def rewrite_to_another_format(folder):
    good(folder)
    return ["rewrite", "m.onnx", "-o", "out.pt", "--recipe", "tensorwise"]


@wrong("--out: expected a name that ends in .npz or .safetensors, got out.csv")
def gradients_to_another_format(folder):
    good(folder)
    return ["grad", "m.onnx", "--data", "good.npz", "--loss", "cross_entropy", "-o", "out.csv"]


@wrong("nothing expects the argument \"more.onnx\"")
def argument_too_many(folder):
    good(folder)
    return grad(folder, "--json", "more.onnx")[:1] + ["m.onnx", "-o", "out.npz", "more.onnx"]


@cases("[m.onnx] expected an array for the input \"x\", got labels")
def run_without_an_input(folder):
    import numpy as np
    good(folder)
    np.savez(folder / "d.npz", labels=np.zeros(4, np.int64))
    return ["run", "m.onnx", "--data", "d.npz", "-o", "out.npz"]
