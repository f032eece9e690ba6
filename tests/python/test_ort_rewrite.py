# SPDX-License-Identifier: Apache-2.0
"""`rewrite --ort-training`: artifacts of onnxruntime-training with FP8 products, trained by onnxruntime-training 1.19.2
itself, without any library of ours."""
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from program import FIXTURES, leave_out, run
from safetensors.numpy import load_file
from test_ort_training import ARTIFACTS, CASES, STEPS, curve, feeds, flags

PYTHON = os.environ.get("ONNX_FP8_ORT_PYTHON")
DRIVER = pathlib.Path(__file__).with_name("ort_driver.py")
# forward, dgrad, wgrad, others: the products of attention, 4 of them in the forward.
PRODUCTS = {"mlp": (2, 1, 2, 0), "gpt2": (9, 9, 9, 12), "bert": (14, 14, 14, 12), "vit": (13, 13, 13, 12),
            "llama": (15, 15, 15, 12)}


def rewrite(case, folder, recipe, *more):
    return run("rewrite", "--ort-training", ARTIFACTS / case, "-o", folder, "--recipe", recipe, *more).stdout


def in_their_environment(script, *arguments, **kwargs):
    """The last line that a script prints there."""
    if not PYTHON:
        leave_out("onnxruntime-training, whose packages ./dev test installs")
        pytest.skip("needs onnxruntime-training")
    done = subprocess.run([PYTHON, script, *map(str, arguments)], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stderr[-3000:]
    return (done.stdout.splitlines() or [""])[-1]


def train(case, folder, steps=STEPS, **job):
    job = {"folder": str(folder), "feeds": str(ARTIFACTS / case / "feeds.npz"), "steps": steps} | job
    return json.loads(in_their_environment(DRIVER, input=json.dumps(job)))


def matrix():
    """The pairs of artifacts and recipes to train: all if ONNX_FP8_ORT_RECIPES says so."""
    if os.environ.get("ONNX_FP8_ORT_RECIPES") != "all":
        return [(case, recipe) for case in CASES for recipe in ("tensorwise", "delayed")]
    named = [r["name"] for r in json.loads(run("recipes", "--json").stdout)]
    return [(case, recipe) for case in [*CASES, "cnn", "mlp_mse", "mlp_bce"] for recipe in named if recipe != "off"]


@pytest.mark.parametrize("case, recipe", matrix())
def test_onnxruntime_training_trains_in_fp8(case, recipe, tmp_path):
    scales = []
    if recipe == "static":
        run(*flags(case, tmp_path / "delayed", "--steps", STEPS, "--recipe", "delayed"))
        scales = ["--scales", tmp_path / "delayed"]
    rewrite(case, tmp_path / "fp8", recipe, *scales)
    if case == "cnn":
        (tmp_path / "fp8" / "eval_model.onnx").unlink()  # onnxruntime refuses its BatchNormalization
    theirs = np.array(train(case, tmp_path / "fp8")["losses"])
    truth = np.load(ARTIFACTS / case / "losses.npy")
    assert 0 < np.abs(theirs - truth).max() < 0.05 * truth[0]
    # The same step, made by this program from the forward part.
    run(*flags(case, tmp_path / "run", "--steps", STEPS, "--recipe", recipe, *scales))
    np.testing.assert_allclose(theirs[0], curve(tmp_path / "run")[0], rtol=1e-3)
    np.testing.assert_allclose(theirs, curve(tmp_path / "run"), rtol=0, atol=0.02 * truth[0])


@pytest.mark.parametrize("case", CASES)
def test_products_are_found_by_their_operands(case, tmp_path):
    forward, dgrad, wgrad, others = PRODUCTS[case]
    text = rewrite(case, tmp_path / "fp8", "tensorwise")
    total = forward + dgrad + wgrad
    assert text.splitlines()[-1].endswith(
        f"{total} of {total + others} matrix products in FP8; {forward} forward, {dgrad} dgrad, {wgrad} wgrad, {others} "
        "without a weight")
    report = json.loads(rewrite(case, tmp_path / "json", "tensorwise", "--json"))
    roles = [g["role"] for g in report["gemms"] if g["fp8"]]
    assert len(report["gemms"]) == total + others
    assert [roles.count(role) for role in ("forward", "dgrad", "wgrad")] == [forward, dgrad, wgrad]
    nodes = onnx.load(tmp_path / "fp8" / "training_model.onnx").graph.node
    ops = [n for n in nodes if n.domain == "onnx_fp8"]
    roles = [a.s.decode() for n in ops for a in n.attribute if a.name == "role"]
    assert (roles.count("forward"), roles.count("dgrad"), roles.count("wgrad")) == (forward, dgrad, wgrad)
    # A value is quantized once, also where a wgrad reads its rows.
    quantized = [n.input[0] for n in ops if n.op_type.startswith("Quantize")]
    assert len(set(quantized)) == len(quantized)
    rows = {n.output[0]: n.input[0] for n in nodes if n.op_type == "Reshape"}
    assert not {rows.get(x) for x in quantized} & set(quantized)


def test_names_do_not_matter(tmp_path):
    """Nodes and inner values get other names; the interface of the training API keeps its own. Another constant, which
    only one gradient reads, is not taken for the loss's gradient."""
    copy = shutil.copytree(ARTIFACTS / "gpt2", tmp_path / "a")
    model = onnx.load(copy / "training_model.onnx")
    model.graph.initializer.insert(0, onnx.numpy_helper.from_array(np.float32(1), "another"))
    at, node = next((i, n) for i, n in enumerate(model.graph.node)
                    if n.op_type == "InPlaceAccumulatorV2" and n.input[0].startswith("ln_f.bias"))
    node.input[1:2] = ["same"]
    model.graph.node.insert(at, onnx.helper.make_node("Mul", ["ln_f.bias_grad", "another"], ["same"]))
    kept = {v.name for v in [*model.graph.input, *model.graph.output]}
    names = {}
    for node in model.graph.node:
        node.name = f"n{len(names)}"
        for values in (node.input, node.output):
            values[:] = [v if v in kept or not v else names.setdefault(v, f"v{len(names)}") for v in values]
    for item in [*model.graph.initializer, *model.graph.value_info]:
        item.name = names.get(item.name, item.name)
    onnx.save(model, copy / "training_model.onnx")
    text = run("rewrite", "--ort-training", copy, "-o", tmp_path / "fp8", "--recipe", "tensorwise").stdout
    assert "9 forward, 9 dgrad, 9 wgrad, 12 without a weight" in text


def test_operators_of_onnxruntime_stay(tmp_path):
    """MaxPoolGrad and SimplifiedLayerNormalization, which it has in the ONNX domain."""
    for case, op in (("cnn", "MaxPoolGrad"), ("llama", "SimplifiedLayerNormalization")):
        rewrite(case, tmp_path / case, "tensorwise")
        nodes = onnx.load(tmp_path / case / "training_model.onnx").graph.node
        domains = {n.domain for n in nodes if n.op_type == op}
        assert domains == {""}
    truth = np.load(ARTIFACTS / "cnn" / "losses.npy")
    (tmp_path / "cnn" / "eval_model.onnx").unlink()  # onnxruntime refuses its BatchNormalization
    theirs = np.array(train("cnn", tmp_path / "cnn")["losses"])
    assert 0 < np.abs(theirs - truth).max() < 0.05


def test_a_filter_keeps_a_layer(tmp_path):
    text = rewrite("gpt2", tmp_path / "fp8", "tensorwise", "--filter-fqns", "lm_head")
    assert "24 of 39 matrix products in FP8" in text
    truth = np.load(ARTIFACTS / "gpt2" / "losses.npy")
    theirs = np.array(train("gpt2", tmp_path / "fp8", 3)["losses"])
    assert 0 < np.abs(theirs - truth[:3]).max() < 0.02


def test_resume_is_exact(tmp_path):
    rewrite("bert", tmp_path / "fp8", "delayed")
    keys = ["onnx_fp8.recipe", "onnx_fp8.version"]
    whole = train("bert", tmp_path / "fp8", 8, properties=keys)
    half = train("bert", tmp_path / "fp8", 4, save=str(tmp_path / "c"))["losses"]
    rest = train("bert", tmp_path / "fp8", 4, load=str(tmp_path / "c"), properties=keys)
    assert half + rest["losses"] == whole["losses"]
    assert rest["onnx_fp8.recipe"] == whole["onnx_fp8.recipe"] == "i:del16_ten_e4m3,w:del16_ten_e4m3,go:del16_ten_e5m2"


def test_scales_are_kept_in_the_checkpoint(tmp_path):
    """Without the kept scales the fifth loss is another one."""
    rewrite("bert", tmp_path / "fp8", "delayed")
    train("bert", tmp_path / "fp8", 4, save=str(tmp_path / "c"))
    run("export", tmp_path / "fp8", "--checkpoint", tmp_path / "c", "-o", tmp_path / "t.onnx")
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "t.onnx").graph.initializer}
    scales = tensors["onnx_fp8.scales"]
    assert scales.shape[0] == 17 and (scales[0] > 0).all()
    # The amaxes of four steps, the newest last.
    assert (scales[-4:] > 0).all() and (scales[1:-4] == 0).all()


def test_evaluation_reads_the_same_parameters(tmp_path):
    rewrite("llama", tmp_path / "fp8", "delayed")
    result = train("llama", tmp_path / "fp8", 3, eval=True)
    assert abs(result["eval"] - result["losses"][0]) < 2e-3
    names = [[i.name for i in onnx.load(tmp_path / "fp8" / f"{kind}_model.onnx").graph.input]
             for kind in ("training", "eval")]
    own = [n for n in names[1] if n not in feeds("llama").files]
    assert own == names[0][2:2 + len(own)] and own[-1] == "onnx_fp8.scales"


@pytest.mark.parametrize("recipe", ["off", "delayed"])
def test_stock_onnxruntime_runs_the_export(recipe, tmp_path):
    folder = ARTIFACTS / "llama"
    if recipe != "off":
        rewrite("llama", tmp_path / "fp8", recipe)
        folder = tmp_path / "fp8"
    evaluated = train("llama", folder, 2, eval=True, save=str(tmp_path / "c"))
    run("export", folder, "-o", tmp_path / "start.onnx", tmp_path / "w.safetensors")
    run("export", folder, "--checkpoint", tmp_path / "c", "-o", tmp_path / "end.onnx")
    batch = dict(feeds("llama"))
    labels = batch.pop("labels").reshape(-1)
    values = []
    for name in ("start", "end"):
        scores, = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx").run(None, batch)
        exact = scores.reshape(32, 48).astype(np.float64)
        values.append((np.log(np.exp(exact).sum(-1)) - exact[np.arange(32), labels]).mean())
    assert abs(values[0] - evaluated["eval"]) < 1e-5
    assert values[1] < values[0]
    assert "onnx_fp8.scales" not in load_file(tmp_path / "w.safetensors")


@pytest.mark.parametrize("mode", [0, 1])
def test_the_optimizer_is_theirs(mode, tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    model = onnx.load(copy / "optimizer_model.onnx")
    changes = {"adam_mode": mode, "weight_decay": 0.5, "epsilon": 1e-2, "alpha": 0.8, "beta": 0.95}
    for attribute in model.graph.node[0].attribute:
        value = changes.get(attribute.name, onnx.helper.get_attribute_value(attribute))
        attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, value))
    onnx.save(model, copy / "optimizer_model.onnx")
    run(*flags("mlp", tmp_path / "run", "--steps", STEPS, folder=copy))
    np.testing.assert_allclose(curve(tmp_path / "run"), train("mlp", copy)["losses"], rtol=1e-5)


# ---- bad input


def refused(*arguments, code=1):
    return run("rewrite", *arguments, "--recipe", "tensorwise", code=code).stderr


def test_rewritten_artifacts_are_not_rewritten_again(tmp_path):
    rewrite("mlp", tmp_path / "fp8", "tensorwise")
    error = refused("--ort-training", tmp_path / "fp8", "-o", tmp_path / "twice")
    assert "is rewritten already" in error
    assert not (tmp_path / "twice").exists()


def test_an_existing_folder_is_kept(tmp_path):
    (tmp_path / "out").mkdir()
    assert "expected a new folder" in refused("--ort-training", ARTIFACTS / "mlp", "-o", tmp_path / "out")


def test_nothing_is_left_of_what_fails(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    data = (copy / "eval_model.onnx").read_bytes()
    (copy / "eval_model.onnx").write_bytes(data[:100])
    error = refused("--ort-training", copy, "-o", tmp_path / "out")
    assert "eval_model.onnx" in error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]


def test_a_recipe_of_a_newer_opset_is_named(tmp_path):
    error = run("rewrite", "--ort-training", ARTIFACTS / "mlp", "-o", tmp_path / "out", "--recipe", "mxfp8,scales:e8m0",
                code=1).stderr
    assert "float8e8m0" in error and "onnxruntime-training 1.19.2" in error


def test_a_pattern_that_matches_nothing_is_named(tmp_path):
    error = refused("--ort-training", ARTIFACTS / "mlp", "-o", tmp_path / "out", "--filter-fqns", "nothing")
    assert "nothing matches no matrix product" in error


def test_a_model_without_a_seed_is_named(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    model = onnx.load(copy / "training_model.onnx")
    for tensor in list(model.graph.initializer):
        if list(tensor.dims) == [] and tensor.data_type == 1:
            model.graph.initializer.remove(tensor)
            model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, 1, []))
    onnx.save(model, copy / "training_model.onnx")
    error = refused("--ort-training", copy, "-o", tmp_path / "out")
    assert "expected a constant gradient of the loss" in error


def test_flags_of_models_are_refused(tmp_path):
    error = refused("--ort-training", ARTIFACTS / "mlp", "-o", tmp_path / "out", "--loss", "mse", code=2)
    assert "--loss is not for --ort-training" in error
    error = refused(FIXTURES / "mlp" / "d18.onnx", "--ort-training", ARTIFACTS / "mlp", "-o", tmp_path / "out", code=2)
    assert "MODEL is not for --ort-training" in error
