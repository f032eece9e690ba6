# SPDX-License-Identifier: Apache-2.0
"""Static scales: scales that `calibrate` can't find, and files and folders without scales for this model."""
import json

from bad_input.case import Cases, cut, good, good_run, train
from bad_input.flags import BEGUN

CASES = cases = Cases()
STATIC = ["--recipe", "static", "--scales"]
INPUT = "w/forward/input/float8e4m3fn#0"
SCALES = {INPUT: 0.01, "w/forward/weight/float8e4m3fn#0": 0.01, "w/dgrad/grad_output/float8e5m2#0": 0.0001}


def calibrate(folder, *flags, data="good.npz"):
    good(folder)
    return ["calibrate", "m.onnx", "--data", data, "--loss", "cross_entropy", "--batch-size", 2, "--steps", 2,
            "-o", "out.json", *flags]


def holding(**changes):
    return {"format": "onnx_fp8.scales", "version": 1, "scales": SCALES, **changes}


def given(folder, content):
    """The command that trains with scales.json, which holds `content`."""
    good(folder)
    (folder / "scales.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return train(*STATIC, "scales.json")


def edited(name, *words, content, leaves=BEGUN):
    def make(folder):
        return given(folder, content)

    make.__name__ = name
    cases(*words, leaves=leaves)(make)


# ---- calibrate


@cases("--steps: expected an integer of at least 1, got 0", code=2)
def calibrate_on_nothing(folder):
    command = calibrate(folder)
    command[command.index("--steps") + 1] = 0
    return command


@cases("--steps: expected at most 4096, got 4097", code=2)
def calibrate_on_too_much(folder):
    command = calibrate(folder)
    command[command.index("--steps") + 1] = 4097
    return command


for recipe in ("tensorwise", "delayed", "mxfp8"):
    def without_static(folder, recipe=recipe):
        return calibrate(folder, "--recipe", recipe)

    without_static.__name__ = f"calibrate_for_{recipe}"
    cases("--recipe: expected one with static scales, as static or tensorwise,i:sta_ten_e4m3", code=2)(without_static)


@cases("onnx-fp8 calibrate: --loss is missing", code=2)
def calibrate_without_a_loss(folder):
    command = calibrate(folder)
    at = command.index("--loss")
    return command[:at] + command[at + 2:]


@cases("onnx-fp8 calibrate: --out is missing", code=2)
def calibrate_to_nowhere(folder):
    return calibrate(folder)[:-2]


@cases("[no/out.json] can't be written: there is no folder DIR/no")
def calibrate_into_a_folder_that_is_missing(folder):
    return calibrate(folder)[:-1] + ["no/out.json"]


# ---- files


@cases("[m.onnx] expected --scales for static scaling, got none; `onnx-fp8 calibrate` makes a file of them", leaves=BEGUN)
def static_without_scales(folder):
    good(folder)
    return train("--recipe", "static")


@cases("[m.onnx] expected --scales for static scaling, got none")
def static_rewrite_without_scales(folder):
    good(folder)
    return ["rewrite", "m.onnx", "-o", "out.onnx", "--recipe", "static"]


for recipe in ("off", "delayed", "tensorwise,i:del_ten_e4m3"):
    def for_another_recipe(folder, recipe=recipe):
        given(folder, holding())
        return train("--recipe", recipe, "--scales", "scales.json")

    for_another_recipe.__name__ = f"scales_for_{recipe}"
    cases("--scales: expected a recipe with static scales, as static or tensorwise,i:sta_ten_e4m3, got", code=2)(
        for_another_recipe)

edited("scales_of_another_model", f"[scales.json] expected a scale for {INPUT} of m.onnx, got 1 others; is it of another model",
       content=holding(scales={"fc.weight/forward/input/float8e4m3fn#0": 0.5}))
edited("scales_of_another_format", f"[scales.json] expected a scale for {INPUT} of m.onnx, got 1 others",
       content=holding(scales={INPUT.replace("e4m3fn", "e5m2"): 0.5}))
edited("scales_for_no_backward", "[scales.json] expected a scale for w/dgrad/grad_output/float8e5m2#0",
       content=holding(scales={key: scale for key, scale in SCALES.items() if "grad" not in key}))
edited("scales_for_nothing", f"[scales.json] expected a scale for {INPUT}", content=holding(scales={}))
REFUSED = "[scales.json] expected scales written by `onnx-fp8 calibrate`"
for name, content in [
    ("truncated", json.dumps(holding())[:-20]), ("empty", ""), ("a_list", "[1, 2]"), ("binary", "\x00\x01\x02"),
    ("of_a_recipe", {"recipe": "static"}), ("of_another_program", holding(format="torchao")),
    ("in_a_list", holding(scales=[0.5])), ("without_scales", {"format": "onnx_fp8.scales", "version": 1}),
]:
    edited(f"scales_file_{name}", REFUSED + ", got something else", content=content, leaves=())
edited("scales_of_the_future", REFUSED + " of version 1, got another", content=holding(version=2), leaves=())
edited("scales_nested_deeply", "[scales.json] expected scales, got deep nesting",
       content='{"format": ' + "[" * 100_000 + "]" * 100_000 + "}", leaves=())
for name, scale in [("negative", "-0.5"), ("zero", "0"), ("text", '"0.5"'), ("null", "null"), ("list", "[0.5]"),
                    ("beyond_float", "1e+300"), ("subnormal", "1e-42"), ("below_float", "1e-60")]:
    edited(f"scale_{name}", f"[scales.json] expected a positive float, no subnormal one, as the scale of {INPUT}, got ",
           content=json.dumps(holding(scales={INPUT: 7})).replace("7", scale), leaves=())


@cases("[gone.json] can't be opened: No such file or directory")
def scales_that_are_missing(folder):
    good(folder)
    return train(*STATIC, "gone.json")


@cases("[gone.json] can't be opened: No such file or directory")
def inspect_with_scales_that_are_missing(folder):
    good(folder)
    return ["inspect", "m.onnx", "--shape", "batch=4", *STATIC, "gone.json"]


# ---- folders


@cases("[empty] holds no checkpoint")
def scales_of_an_empty_folder(folder):
    good(folder)
    (folder / "empty").mkdir()
    return train(*STATIC, "empty")


@cases("[run] holds no scales: expected a run with delayed scaling")
def scales_of_a_run_without_any(folder):
    good_run(folder)
    return train(*STATIC, "run", out="other")


@cases("[run/checkpoints/step_00000002/state.safetensors] expected", "bytes, got")
def scales_of_a_damaged_run(folder):
    cut(good_run(folder) / "state.safetensors", -1)
    return train(*STATIC, "run", out="other")
