# SPDX-License-Identifier: Apache-2.0
"""The command sensitivity: it finds planted outliers, its losses are those of eval, and `train` takes the file that it writes."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from program import FIXTURES, losses, run, write_random

SIZE, ROWS, LAYERS = 64, 256, ["l0.weight", "l1.weight", "l2.weight"]
LOUD = np.float32(1e8)


def tanh_layers(weights):
    """y = tanh(tanh(x l0) l1) l2"""
    nodes, value = [], "x"
    for i, name in enumerate(weights):
        out = "y" if i == len(weights) - 1 else f"h{i}"
        nodes.append(helper.make_node("MatMul", [value, name], [out], name=f"layer{i}"))
        if out != "y":
            nodes.append(helper.make_node("Tanh", [out], [f"t{i}"]))
            value = f"t{i}"
    tensors = [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", SIZE]) for name in "xy")
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors), opset_imports=[helper.make_opsetid("", 18)])


def measure(folder, plant=None, *flags):
    """The layers of a report, by name. `plant(x, weights)` changes the data and the weights."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    weights = {name: (rng.normal(size=(SIZE, SIZE)) / 8).astype(np.float32) for name in LAYERS}
    if plant:
        plant(x, weights)
    onnx.save(tanh_layers(weights), folder / "m.onnx")
    np.savez(folder / "d.npz", x=x, labels=rng.normal(size=(ROWS, SIZE)).astype(np.float32))
    done = run("sensitivity", folder / "m.onnx", "--data", folder / "d.npz", "--loss", "mse", "--batch-size", ROWS, "--batches", 1,
               "--sqnr", 18, "--recipes", "tensorwise,rowwise,blockwise,mxfp8", "-o", folder / "recipe.json", "--json", *flags)
    return {layer["fqn"]: layer for layer in json.loads(done.stdout)["layers"]}


def products(layer, recipe):
    [trial] = [trial for trial in layer["trials"] if trial["recipe"] == recipe]
    return {gemm: numbers["sqnr"] for gemm, numbers in trial["products"].items()}


def loss_change(layer, recipe):
    [trial] = [trial for trial in layer["trials"] if trial["recipe"] == recipe]
    return abs(trial["loss_change"])


def assert_quiet(layers, *names):
    for name in names:
        assert layers[name]["chosen"] == "tensorwise" and layers[name]["reason"] == "", layers[name]


def test_nothing_is_planted(tmp_path):
    layers = measure(tmp_path)
    assert list(layers) == LAYERS
    assert_quiet(layers, *LAYERS)
    assert set(products(layers["l0.weight"], "tensorwise")) == {"forward", "wgrad"}  # nobody asks for the data's gradient
    assert set(products(layers["l1.weight"], "tensorwise")) == {"forward", "dgrad", "wgrad"}


def test_a_token(tmp_path):
    """A row of the data: other rows lose all numbers if they share its scale. Tanh hides it from the other layers."""
    def plant(x, weights):
        x[3] *= LOUD

    layers = measure(tmp_path, plant)
    assert_quiet(layers, "l1.weight", "l2.weight")
    found = layers["l0.weight"]
    assert products(found, "tensorwise")["forward"] < 3 and products(found, "rowwise")["forward"] > 20
    assert loss_change(found, "tensorwise") > 10 * loss_change(found, "rowwise")
    # wgrad sums over rows, and Tanh has no gradient for the loud one: blocks of rows lose theirs.
    assert found["chosen"] == ("i:dyn_row_e4m3_p2,w:dyn_row_e4m3_p2,go:dyn_row_e4m3_p2,i_gw:hp,go_gw:hp")
    assert found["reason"].startswith("tensorwise: forward has 1.8 dB (input: 0.0 dB), wgrad has 0.0 dB (input: 0.0 dB); rowwise: wgrad has ")


def test_a_channel(tmp_path):
    """A column of the data is loud, and its weights are small: no scale along the sum holds it."""
    def plant(x, weights):
        x[:, 7] *= LOUD
        weights["l0.weight"][7] /= LOUD

    layers = measure(tmp_path, plant)
    assert_quiet(layers, "l1.weight", "l2.weight")
    found = layers["l0.weight"]
    assert products(found, "tensorwise")["forward"] < 3 and products(found, "rowwise")["forward"] < 3
    assert products(found, "mxfp8")["forward"] > products(found, "rowwise")["forward"] + 1  # half of the blocks are quiet
    assert loss_change(found, "tensorwise") > 100 * loss_change(layers["l1.weight"], "tensorwise")
    assert found["chosen"] == "off" and "mxfp8: forward has 2.9 dB" in found["reason"]


def test_a_block_of_a_weight(tmp_path):
    """Tanh saturates behind its columns: the others alone matter. dgrad sums over them: their blocks of 32 are quiet."""
    def plant(x, weights):
        weights["l1.weight"][:, 32:] *= LOUD

    layers = measure(tmp_path, plant)
    assert_quiet(layers, "l0.weight", "l2.weight")
    found = layers["l1.weight"]
    for recipe in ("tensorwise", "blockwise"):
        assert products(found, recipe)["forward"] < 8 and products(found, recipe)["dgrad"] < 3
    assert products(found, "rowwise")["forward"] > 25 and products(found, "rowwise")["dgrad"] < 3
    assert loss_change(found, "tensorwise") > 10 * loss_change(found, "rowwise")
    assert found["chosen"] == "mxfp8"


def test_a_layer(tmp_path):
    """Inputs come in pairs, and large weights cancel in each pair: no scale helps, since the noise of any FP8 number is a share
    of it."""
    def plant(x, weights):
        first, second = weights["l0.weight"], weights["l1.weight"]
        first[:, 1::2] = first[:, ::2]
        large = 300 * np.random.default_rng(6).normal(size=(SIZE // 2, SIZE)).astype(np.float32)
        second[::2] += large
        second[1::2] -= large

    layers = measure(tmp_path, plant)
    assert_quiet(layers, "l0.weight", "l2.weight")
    found = layers["l1.weight"]
    for recipe in ("tensorwise", "rowwise", "blockwise", "mxfp8"):
        assert products(found, recipe)["forward"] < 3
        assert loss_change(found, recipe) > 20 * loss_change(layers["l2.weight"], recipe)
    assert "i:hp,w:hp" in found["chosen"] or found["chosen"] == "off"


def test_losses_are_those_of_eval(tmp_path):
    layers = measure(tmp_path)
    data = ["--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", ROWS, "--json"]

    def loss(*flags):
        return json.loads(run("eval", tmp_path / "m.onnx", *data, *flags).stdout)["loss"]

    exact = loss()
    for name in LAYERS:
        for recipe in ("tensorwise", "rowwise", "blockwise", "mxfp8"):
            alone = loss("--recipe-for", f"{name}={recipe}", "--recipe", "off")
            [trial] = [trial for trial in layers[name]["trials"] if trial["recipe"] == recipe]
            assert trial["loss_change"] == pytest.approx(alone - exact, abs=2e-6)


def test_train_takes_the_recipes_of_layers(tmp_path):
    """The file is as good as flags, and a resumed run no longer needs it."""
    model, data = FIXTURES / "mlp" / "d18.onnx", write_random(tmp_path / "d.npz", 64)
    done = run("sensitivity", model, "--data", data, "--loss", "cross_entropy", "--batch-size", 32, "--sqnr", 29,
               "--recipes", "tensorwise,rowwise,go:dyn_row_e5m2_p2,rowwise", "-o", tmp_path / "r.json")
    assert "loss change" in done.stdout and "r.json: recipes of " in done.stdout
    chosen = json.loads((tmp_path / "r.json").read_text())["layers"]
    flags = ["train", model, "--data", data, "--loss", "cross_entropy", "--batch-size", 16, "--steps", 4]
    run(*flags, "--recipe", tmp_path / "r.json", "--out", tmp_path / "a")
    run(*flags, *(word for name, text in chosen.items() for word in ("--recipe-for", f"{name}={text}")), "--out", tmp_path / "b")
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    (tmp_path / "r.json").unlink()
    run("train", "--resume", "--out", tmp_path / "a", "--steps", 6)
    assert len(losses(tmp_path / "a")) == 6


def test_auto_does_the_same(tmp_path):
    """A run's first batches are all of its data here, so `sensitivity` sees the same numbers."""
    def plant(x, weights):
        x[3] *= LOUD

    layers = measure(tmp_path, plant)
    flags = ["train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", ROWS, "--steps", 2]
    done = run(*flags, "--recipe", "auto:sqnr=18", "--out", tmp_path / "auto")
    assert "recipe auto: " in done.stderr and f"l0.weight: {layers['l0.weight']['chosen']}, because tensorwise: " in done.stderr
    run(*flags, "--recipe", tmp_path / "recipe.json", "--out", tmp_path / "file")
    assert losses(tmp_path / "auto") == losses(tmp_path / "file")
    run("train", "--resume", "--out", tmp_path / "auto", "--steps", 3)
    again = run("train", "--resume", "--out", tmp_path / "auto", "--steps", 4, "--recipe", "auto", code=2)
    assert "auto measures in a new run of one process" in again.stderr
    wrong = run(*flags, "--recipe", "auto:sqnr=much", "--out", tmp_path / "wrong", code=2)
    assert "--recipe: expected auto or auto:sqnr=X with a number of dB, got \"auto:sqnr=much\"" in wrong.stderr


@pytest.mark.parametrize("flags, words", [
    (["--recipes", "delayed"], "[recipe delayed] expected FP8 with dynamic scales"),
    (["--recipes", "off"], "[recipe off] expected FP8 with dynamic scales"),
    (["--recipes", "fp4"], "--recipes: [recipe fp4] expected off, tensorwise"),
    (["--recipe", "tensorwise"], "--recipe does not go with --recipes"),
    (["--filter-fqns", "weight"], "--stats: expected a layer in FP8, got none"),
    (["-o", "r.txt"], "--out: expected the name of a .json file, got r.txt"),
])
def test_bad_input(tmp_path, flags, words):
    data = write_random(tmp_path / "d.npz", 64)
    done = run("sensitivity", FIXTURES / "mlp" / "d18.onnx", "--data", data, "--loss", "cross_entropy", *flags, code=None, cwd=tmp_path)
    assert done.returncode in (1, 2) and words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]


def test_training_with_the_chosen_recipes(tmp_path):
    """Whoever trains by them stays beside high precision; tensorwise for all layers does not."""
    def plant(x, weights):
        x[3] *= LOUD

    measure(tmp_path, plant)
    x, rng = np.load(tmp_path / "d.npz")["x"], np.random.default_rng(8)
    value = np.tanh(x @ rng.normal(size=(SIZE, SIZE)) / 8)
    np.savez(tmp_path / "d.npz", x=x, labels=value.astype(np.float32))

    def last_loss(name, recipe):
        run("train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", ROWS, "--steps", 60,
            "--lr", 3e-3, "--recipe", recipe, "--out", tmp_path / name)
        return losses(tmp_path / name)[60]

    exact = last_loss("off", "off")
    assert last_loss("chosen", tmp_path / "recipe.json") == pytest.approx(exact, rel=0.05)
    assert last_loss("tensorwise", "tensorwise") > 2 * exact
