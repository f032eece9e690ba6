# SPDX-License-Identifier: Apache-2.0
"""`--stats`: the numbers beside NumPy's, and results that do not change."""
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from program import FIXTURES, losses, run, state_bytes, write_batch, write_random
from rank_jobs import need_mpi
from test_ranks import gpt_data, ranks

MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"
CE = ["--loss", "cross_entropy"]
RECIPES = ["tensorwise", "delayed", "rowwise", "rowwise_with_gw_hp", "mxfp8", "blockwise"]


def statistics(folder):
    return [json.loads(line) for line in (folder / "statistics.jsonl").read_text().splitlines()]


def key(line):
    return line["fqn"], line["gemm"], line["operand"], line["use"]


def weights_of(model):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}


@pytest.mark.parametrize("recipe", RECIPES)
def test_results_do_not_change(tmp_path, recipe):
    data = write_batch("nanogpt", tmp_path / "d.npz", repeat=3)
    flags = ["train", GPT, "--data", data, *CE, "--recipe", recipe, "--batch-size", 4, "--grad-accum", 2, "--steps", 6,
             "--dtype", "bfloat16"]
    run(*flags, "--out", tmp_path / "off")
    run(*flags, "--out", tmp_path / "on", "--stats", "every=2")
    assert losses(tmp_path / "off") == losses(tmp_path / "on")
    assert state_bytes(tmp_path / "off") == state_bytes(tmp_path / "on")
    assert not (tmp_path / "off" / "statistics.jsonl").exists()
    lines = statistics(tmp_path / "on")
    by_step = [sorted(key(line) for line in lines if line["step"] == step) for step in (2, 4, 6)]
    assert by_step[0] == by_step[1] == by_step[2] and len(set(by_step[0])) == len(by_step[0]) > 0
    assert {line["step"] for line in lines} == {2, 4, 6}
    assert {operand for _, _, operand, _ in by_step[0]} == {"input", "weight", "grad_output", "product"}


def test_weights_have_the_numbers_of_numpy(tmp_path):
    """Before the first update, the weights are the file's."""
    data = write_random(tmp_path / "d.npz", 32)
    run("train", MLP, "--data", data, *CE, "--recipe", "tensorwise", "--batch-size", 16, "--steps", 1, "--stats", "every=1",
        "--out", tmp_path / "run")
    weights = weights_of(MLP)
    seen = 0
    for line in statistics(tmp_path / "run"):
        if line["operand"] != "weight":
            continue
        w = next(v for name, v in weights.items() if name == line["fqn"])
        amax = np.abs(w).max()
        factor = np.float32(np.float64(448) / np.float64(amax))
        scale = np.float32(1) / factor
        code = (w * factor).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        real = (code * scale).astype(np.float64)
        noise = ((w.astype(np.float64) - real)**2).sum()
        assert line["amax"] == amax and line["scale"] == scale and line["format"] == "float8e4m3fn"
        assert line["flushed"] == ((w != 0) & (code == 0)).mean()
        assert line["zeros"] == (w == 0).mean() and line["saturated"] == 0
        assert line["sqnr"] == pytest.approx(10 * np.log10((w.astype(np.float64)**2).sum() / noise), rel=1e-12)
        assert line["range_bits"] == pytest.approx(np.log2(amax / np.abs(w[w != 0]).min()), rel=1e-6)
        assert 25 < line["sqnr"] < 35
        seen += 1
    assert seen > 1


def cast(x, q_max=448, to=ml_dtypes.float8_e4m3fn):
    """x after a cast with one scale, in double."""
    factor = np.float32(np.float64(q_max) / np.float64(np.abs(x).max()))
    return (x * factor).astype(np.float32).astype(to).astype(np.float64) * np.float64(np.float32(1) / factor)


def test_products_have_the_noise_of_their_casts(tmp_path):
    """One layer on 300 rows, of which 128 are measured."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(300, 48)).astype(np.float32), rng.normal(size=(48, 32)).astype(np.float32)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info("x", 1, ["batch", 48])],
                                   [info("y", 1, ["batch", 32])], [numpy_helper.from_array(w, "w")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    labels = rng.normal(size=(300, 32)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, labels=labels)
    done = run("grad", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--recipe", "tensorwise",
               "--batch-size", 300, "--stats", "every=1", "-o", tmp_path / "g.npz")
    rows = rows_of(done.stdout)
    y = np.load(tmp_path / "g.npz")["output.y"]
    gradient = (2 * (y - labels) / y.size).astype(np.float32)
    sample = np.arange(128) * 300 // 128
    exact = {"forward": (x @ w.astype(np.float64))[sample], "wgrad": x.T.astype(np.float64) @ gradient}
    real = {"forward": (cast(x) @ cast(w))[sample], "wgrad": cast(x).T @ cast(gradient, 57344, ml_dtypes.float8_e5m2)}
    for gemm, product in exact.items():
        sqnr = 10 * np.log10((product**2).sum() / ((product - real[gemm])**2).sum())
        assert float(rows["w", gemm, "product", 1][1]) == pytest.approx(sqnr, abs=0.06), gemm
        assert float(rows["w", gemm, "product", 1][8]) == pytest.approx(np.abs(product).max(), rel=1e-3)


def test_layers_are_chosen(tmp_path):
    data = write_batch("nanogpt", tmp_path / "d.npz", repeat=2)
    run("train", GPT, "--data", data, *CE, "--recipe", "rowwise", "--batch-size", 4, "--steps", 2, "--stats",
        "every=2,layers=*.fc.*,blocks.?.c_*", "--out", tmp_path / "run")
    names = {line["fqn"] for line in statistics(tmp_path / "run")}
    assert names == {f"blocks.{i}.{layer}.weight" for i in (0, 1) for layer in ("fc", "c_attn", "c_proj")}


def test_frozen_codes_are_not_cast(tmp_path):
    data = write_random(tmp_path / "d.npz", 32)
    flags = ["train", MLP, "--data", data, *CE, "--recipe", "rowwise", "--batch-size", 16, "--steps", 2, "--stats", "every=1",
             "--freeze", "*", "--train", "*bias*"]
    for frozen in ("fp8", "float32"):
        run(*flags, "--frozen", frozen, "--out", tmp_path / frozen)
    operands = {frozen: {line["operand"] for line in statistics(tmp_path / frozen)} for frozen in ("fp8", "float32")}
    assert operands == {"fp8": {"input", "grad_output"}, "float32": {"input", "weight", "grad_output", "product"}}


def test_a_validation_may_have_no_layer_in_fp8(tmp_path):
    """It has no wgrad, the only product that this recipe computes in FP8."""
    data = write_random(tmp_path / "d.npz", 32)
    run("train", MLP, "--data", data, "--val-data", data, *CE, "--recipe", "off,i_gw:dyn_ten_e4m3,go_gw:dyn_ten_e5m2",
        "--batch-size", 16, "--steps", 2, "--stats", "every=1", "--out", tmp_path / "run")
    assert {line["gemm"] for line in statistics(tmp_path / "run")} == {"wgrad"}


def test_a_resumed_run_has_the_lines_of_a_whole_one(tmp_path):
    data = write_random(tmp_path / "d.npz", 64)
    flags = ["train", MLP, "--data", data, *CE, "--recipe", "delayed", "--batch-size", 16, "--stats", "every=2",
             "--save-every", 3]
    run(*flags, "--steps", 8, "--out", tmp_path / "whole")
    run(*flags, "--steps", 5, "--out", tmp_path / "parts")
    # Lines of steps that no checkpoint has are written again.
    with open(tmp_path / "parts" / "statistics.jsonl", "a") as file:
        file.write('{"step": 6, "fqn": "torn"}\n{"step": 6, "fq')
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", 8)
    assert statistics(tmp_path / "parts") == statistics(tmp_path / "whole")


def test_ranks_have_the_numbers_of_one_process(tmp_path):
    need_mpi()
    flags = [GPT, "--data", gpt_data(tmp_path / "d.npz"), *CE, "--recipe", "rowwise", "--batch-size", 4, "--steps", 2,
             "--stats", "every=1"]
    run("train", *flags, "--out", tmp_path / "one")
    one = {(line["step"], *key(line)): line for line in statistics(tmp_path / "one")}
    for mesh in ("dp=2", "tp=2"):
        ranks(2, "train", *flags, "--out", tmp_path / mesh, mesh=mesh)
        many = {(line["step"], *key(line)): line for line in statistics(tmp_path / mesh)}
        assert many.keys() == one.keys(), mesh
        for at, line in one.items():
            if line["operand"] == "product":  # of the rank's samples, or a part of the sum
                assert many[at]["sqnr"] == pytest.approx(line["sqnr"], abs=3), (mesh, at)
                continue
            # 61 classes are 62 on two ranks: the zeros that pad them count.
            padded = mesh == "tp=2" and line["fqn"] == "lm_head.weight"
            for name in ("amax", "sqnr", "scale", *([] if padded else ["zeros", "flushed"])):
                assert many[at][name] == pytest.approx(line[name], rel=1e-3, abs=2e-4), (mesh, at, name)


def one_step(tmp_path, recipe):
    """A data set of one batch, and the casts of the first step on it, by key."""
    data = write_random(tmp_path / "d.npz", 16)
    run("train", MLP, "--data", data, *CE, "--recipe", recipe, "--batch-size", 16, "--steps", 1, "--stats", "every=1", "--out",
        tmp_path / "run")
    return data, {key(line): {k: v for k, v in line.items() if k != "step"} for line in statistics(tmp_path / "run")}


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "mxfp8"])
def test_an_evaluation_measures_the_casts_of_the_forward(tmp_path, recipe):
    data, step = one_step(tmp_path, recipe)
    flags = ["eval", MLP, "--data", data, *CE, "--recipe", recipe, "--batch-size", 16, "--json"]
    measured = json.loads(run(*flags, "--stats", "every=1").stdout)
    casts = {key(cast): cast for cast in measured.pop("casts")}
    assert measured == json.loads(run(*flags).stdout)
    assert casts.keys() == {at for at, line in step.items() if line["gemm"] == "forward"} and casts
    for at, cast in casts.items():
        # An evaluation may compute a sum in another order than a step.
        ratios = [[numbers.pop(name, np.inf) for name in ("sqnr", "line_sqnr")] for numbers in (cast, step[at])]
        assert cast == step[at] and ratios[0] == pytest.approx(ratios[1], rel=1e-9)


def test_batches_of_an_evaluation_are_joined(tmp_path):
    """The size of the batches changes no count. With every=2, the second batch alone is measured."""
    data = write_random(tmp_path / "d.npz", 64)
    flags = ["eval", MLP, "--data", data, *CE, "--recipe", "rowwise", "--json"]
    whole, parts, second = (
        {key(cast): cast for cast in json.loads(run(*flags, "--batch-size", size, "--stats", stats).stdout)["casts"]}
        for size, stats in ((64, "every=1"), (16, "every=1"), (32, "every=2")))
    arrays = np.load(data)
    np.savez(tmp_path / "half.npz", **{name: array[32:] for name, array in arrays.items()})
    flags[3] = tmp_path / "half.npz"
    half = {key(cast): cast
            for cast in json.loads(run(*flags, "--batch-size", 32, "--stats", "every=1").stdout)["casts"]}
    assert whole.keys() == parts.keys() and second == half != whole
    for at, cast in whole.items():
        assert parts[at]["amax"] == cast["amax"] and parts[at].get("scale") == cast.get("scale")
        assert parts[at]["zeros"] == cast["zeros"] and parts[at]["flushed"] == cast["flushed"]
        assert parts[at]["sqnr"] == pytest.approx(cast["sqnr"], rel=1e-12)


def rows_of(table):
    """{(layer, GEMM, operand, use): the cells behind them} of the lines of the table."""
    lines = table.split("the noisiest first:\n")[1].splitlines()
    assert lines[0].split()[:4] == ["layer", "GEMM", "operand", "use"]
    return {(*words[:3], int(words[3])): words[4:] for words in map(str.split, lines[1:])}


def test_gradients_measure_the_casts_of_a_step(tmp_path):
    data, step = one_step(tmp_path, "tensorwise")
    flags = ["grad", MLP, "--data", data, *CE, "--recipe", "tensorwise", "--batch-size", 16]
    run(*flags, "-o", tmp_path / "off.npz")
    rows = rows_of(run(*flags, "-o", tmp_path / "on.npz", "--stats", "every=1").stdout)
    off, on = np.load(tmp_path / "off.npz"), np.load(tmp_path / "on.npz")
    assert off.files == on.files and all((off[name] == on[name]).all() for name in off.files)
    assert rows.keys() == step.keys()
    for at, (kind, sqnr, *_) in rows.items():
        assert kind == step[at].get("format", "-") and float(sqnr) == pytest.approx(step[at]["sqnr"], abs=0.051)
    noise = [float(row[1]) for row in rows.values()]
    assert noise == sorted(noise)


def test_calibration_measures_its_casts(tmp_path):
    data = write_random(tmp_path / "d.npz", 64)
    flags = ["calibrate", MLP, "--data", data, *CE, "--batch-size", 16, "--steps", 4]
    run(*flags, "-o", tmp_path / "off.json")
    done = json.loads(run(*flags, "-o", tmp_path / "on.json", "--json", "--stats", "every=2").stdout)
    assert (tmp_path / "off.json").read_bytes() == (tmp_path / "on.json").read_bytes()
    assert {cast["operand"] for cast in done["casts"]} == {"input", "weight", "grad_output", "product"}
    text = run(*flags, "-o", tmp_path / "text.json", "--stats", "every=2").stdout
    assert rows_of(text).keys() == {key(cast) for cast in done["casts"]}


def test_a_run_that_has_measured_is_evaluated_without(tmp_path):
    data, _ = one_step(tmp_path, "rowwise")
    assert "casts" not in json.loads(run("eval", tmp_path / "run", "--data", data, "--json").stdout)
    assert "casts to FP8: no batch measured them" in run("eval", tmp_path / "run", "--data", data, "--stats", "every=9").stdout
    measured = json.loads(run("eval", tmp_path / "run", "--data", data, "--json", "--stats", "every=1").stdout)
    assert {cast["gemm"] for cast in measured["casts"]} == {"forward"}


@pytest.mark.parametrize("stats, message, code", [
    ("100", '--stats: expected every=N,layers=GLOB,GLOB, got "100"', 2),
    ("every=0", '--stats: expected every=N,layers=GLOB,GLOB, got "every=0"', 2),
    ("layers=*", '--stats: expected every=N,layers=GLOB,GLOB, got "layers=*"', 2),
    ("every=9,layers=*fc*,*no*", "[m.onnx] --stats: expected a layer in FP8 that *no* matches, got ", 1),
])
def test_refused(tmp_path, stats, message, code):
    """Before the first step, whenever the first one that measures comes."""
    data = write_random(tmp_path / "d.npz", 32)
    (tmp_path / "m.onnx").write_bytes(MLP.read_bytes())
    done = run("train", "m.onnx", "--data", data, *CE, "--recipe", "tensorwise", "--steps", 2, "--batch-size", 16, "--stats",
               stats, "--out", "run", cwd=tmp_path, code=code)
    assert message in done.stderr


def test_refused_without_fp8(tmp_path):
    data = write_random(tmp_path / "d.npz", 32)
    done = run("train", MLP, "--data", data, *CE, "--steps", 2, "--batch-size", 16, "--stats", "every=1", "--out",
               tmp_path / "run", code=1)
    assert "--stats: expected a layer in FP8, got none" in done.stderr
