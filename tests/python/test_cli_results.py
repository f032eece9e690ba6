# SPDX-License-Identifier: Apache-2.0
"""`grad`, `eval`, `export`, `run`, `inspect` and `rewrite`: their results."""
import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from program import FIXTURES, reference, run, write_batch, write_random
from safetensors.numpy import load_file
from stock import stock_session

CASES = [(case, variant) for case in ("mlp", "nanogpt", "llama", "vit") for variant in ("d18", "l17")]
MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"
CE = ["--loss", "cross_entropy"]


def stock(path, **feeds):
    session = stock_session(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds)))


@pytest.mark.parametrize("case,variant", CASES)
def test_grad_is_pytorchs(case, variant, tmp_path):
    truth = reference(case)
    data = write_batch(case, tmp_path / "d.npz", repeat=2)
    batch = len(truth["label.labels"])
    run("grad", FIXTURES / case / f"{variant}.onnx", "--data", data, *CE, "--batch-size", batch,
        "-o", tmp_path / "g.safetensors", "--input-grads")
    ours = load_file(tmp_path / "g.safetensors")
    held = json.loads((FIXTURES / case / f"{variant}.params.json").read_text())
    assert ours["loss"].shape == () and ours["loss"] == pytest.approx(truth["loss"].item(), rel=1e-4)
    scale = np.abs(truth["output.logits"]).max()
    np.testing.assert_allclose(ours["output.logits"], truth["output.logits"], atol=1e-4 * scale)
    expected = {("grad." + info["name"] if f"grad.{fqn}" not in ours else f"grad.{fqn}"): truth[f"grad.{fqn}"]
                for fqn, info in held.items() if f"grad.{fqn}" in truth}
    assert {k for k in ours if k.startswith("grad.")} == expected.keys()
    largest = max(np.linalg.norm(g) for g in expected.values())
    for name, gradient in expected.items():
        bound = 2e-4 * max(np.linalg.norm(gradient), 1e-3 * largest)
        assert np.linalg.norm(ours[name] - gradient) <= bound, name
    floats = {k for k, v in np.load(data).items() if v.dtype == np.float32}
    assert {k for k in ours if k.startswith("input_grad.")} == {f"input_grad.{k}" for k in floats}


def test_grad_takes_the_first_samples(tmp_path):
    data = write_random(tmp_path / "d.npz", 12)
    arrays = dict(np.load(data))
    np.savez(tmp_path / "first.npz", **{k: v[:5] for k, v in arrays.items()})
    for name, extra in [("d", ["--batch-size", 5]), ("first", [])]:
        run("grad", MLP, "--data", tmp_path / f"{name}.npz", *CE, *extra, "-o", tmp_path / f"{name}.out.npz")
    a, b = (dict(np.load(tmp_path / f"{name}.out.npz")) for name in ("d", "first"))
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_eval_is_the_mean_over_all_samples(tmp_path):
    data = write_random(tmp_path / "d.npz", 21)
    arrays = dict(np.load(data))
    logits = stock(MLP, x=arrays["x"])["logits"].astype(np.float64)
    log_sum = np.log(np.exp(logits).sum(axis=1))
    each = log_sum - logits[np.arange(21), arrays["labels"]]
    right = np.mean(logits.argmax(axis=1) == arrays["labels"])
    for batch in (4, 8, 21, 64):
        result = json.loads(run("eval", MLP, "--data", data, *CE, "--batch-size", batch, "--json").stdout)
        assert result["samples"] == 21
        assert result["loss"] == pytest.approx(each.mean(), rel=1e-5)
        assert result["accuracy"] == pytest.approx(right)
    arrays["labels"][:13] = -100
    np.savez(tmp_path / "ignored.npz", **arrays)
    result = json.loads(run("eval", MLP, "--data", tmp_path / "ignored.npz", *CE, "--json").stdout)
    assert result["loss"] == pytest.approx(each[13:].mean(), rel=1e-5)
    right = np.mean((logits.argmax(axis=1) == dict(np.load(data))["labels"])[13:])
    assert result["accuracy"] == pytest.approx(right)
    both = json.loads(run("eval", MLP, "--data", tmp_path / "ignored.npz", *CE, "--metrics", "accuracy,perplexity", "--json").stdout)
    assert both["accuracy"] == result["accuracy"]
    assert both["perplexity"] == pytest.approx(np.exp(each[13:].mean()), rel=1e-5)


def test_metrics_of_tokens_leave_ignored_labels_out(tmp_path):
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 61, (10, 12))
    logits = stock(GPT, input_ids=ids)["logits"].astype(np.float64)
    labels = logits.argmax(axis=2)  # right, but for some
    labels[rng.random(labels.shape) < 0.4] = 7
    labels[rng.random(labels.shape) < 0.3] = -100
    counts = labels != -100
    each = np.log(np.exp(logits).sum(axis=2)) - np.take_along_axis(logits, np.maximum(labels, 0)[..., None], 2)[..., 0]
    np.savez(tmp_path / "d.npz", input_ids=ids, labels=labels)
    data = ["--data", tmp_path / "d.npz", *CE, "--json"]
    # The last batch is smaller and has other numbers of labels.
    plain = json.loads(run("eval", GPT, *data, "--batch-size", 4).stdout)
    assert "accuracy" not in plain and plain["tokens"] == counts.sum()
    assert plain["perplexity"] == pytest.approx(np.exp(each[counts].mean()), rel=1e-4)
    both = json.loads(run("eval", GPT, *data, "--batch-size", 4, "--metrics", "accuracy,perplexity").stdout)
    assert both["perplexity"] == plain["perplexity"]
    assert both["accuracy"] == pytest.approx((labels == logits.argmax(axis=2))[counts].mean())
    alone = json.loads(run("eval", GPT, *data, "--metrics", "accuracy").stdout)
    assert "perplexity" not in alone and alone["accuracy"] == pytest.approx(both["accuracy"])
    # A validation has the same numbers, and may choose the best checkpoint by them.
    out = tmp_path / "run"
    run("train", GPT, *data, "--val-data", tmp_path / "d.npz", "--batch-size", 4, "--steps", 1, "--lr", 0, "--weight-decay", 0,
        "--metrics", "accuracy,perplexity", "--save-best", "accuracy", "--out", out)
    val = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines() if "val_loss" in line][-1]
    assert val["val_accuracy"] == pytest.approx(both["accuracy"])
    assert val["val_perplexity"] == pytest.approx(both["perplexity"], rel=1e-6)
    assert json.loads(run("eval", out, "--best", "--data", tmp_path / "d.npz", "--json").stdout)["accuracy"] == val["val_accuracy"]


def fixed_batch_model(path, loss=False):
    """y = x w for batches of 4; with `loss`, the mean of y² too."""
    w = helper.make_tensor("w", TensorProto.FLOAT, [3, 2], np.arange(6, dtype=np.float32) / 6)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2])]
    if loss:
        nodes += [helper.make_node("Mul", ["y", "y"], ["yy"]), helper.make_node("ReduceMean", ["yy"], ["loss"], keepdims=0)]
        outputs.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])], outputs, [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return np.arange(6, dtype=np.float32).reshape(3, 2) / 6


@pytest.mark.parametrize("kind", ["cross_entropy", "mse", "bce_with_logits"])
def test_eval_keeps_the_last_samples_of_a_fixed_batch(tmp_path, kind):
    w = fixed_batch_model(tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 3)).astype(np.float32)
    y = x @ w
    if kind == "cross_entropy":
        labels = rng.integers(0, 2, 10)
        expected = np.mean(np.log(np.exp(y).sum(axis=1)) - y[np.arange(10), labels])
    else:
        labels = rng.integers(0, 2, (10, 2)).astype(np.float32)
        errors = (y - labels) ** 2 if kind == "mse" else np.log1p(np.exp(y)) - y * labels
        expected = np.mean(errors)
    np.savez(tmp_path / "d.npz", x=x, labels=labels)
    result = json.loads(run("eval", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", kind, "--json").stdout)
    assert result["samples"] == 10
    assert result["loss"] == pytest.approx(expected, rel=1e-5)


def test_eval_of_a_loss_in_the_graph(tmp_path):
    w = fixed_batch_model(tmp_path / "m.onnx", loss=True)
    x = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x)
    flags = [tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "output:loss"]
    done = run("eval", *flags, "--json")
    result = json.loads(done.stdout)
    assert result["samples"] == 8 and "the last 2 samples are left out" in done.stderr
    assert result["loss"] == pytest.approx(np.mean((x[:8] @ w) ** 2), rel=1e-5)
    assert "--batch-size" in run("eval", *flags, "--batch-size", 2, code=2).stderr


def test_eval_of_a_run_uses_its_recipe(tmp_path):
    data = write_random(tmp_path / "d.npz", 32)
    out = tmp_path / "run"
    run("train", MLP, "--data", data, *CE, "--batch-size", 8, "--steps", 6, "--recipe", "delayed", "--val-data", data,
        "--out", out)
    val = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines() if "val_loss" in line][-1]
    evaluated = [json.loads(run("eval", out, "--data", data, "--json", *extra).stdout)["loss"]
                 for extra in ([], ["--recipe", "off"], ["--recipe", "tensorwise"])]
    assert evaluated[0] == val["val_loss"]
    assert evaluated[1] != val["val_loss"] and evaluated[1] == pytest.approx(val["val_loss"], rel=0.1)
    run("export", out, "-o", tmp_path / "t.onnx")
    exported = json.loads(run("eval", tmp_path / "t.onnx", "--data", data, *CE, "--json").stdout)["loss"]
    assert exported == evaluated[1]


def test_export(tmp_path):
    data = write_batch("nanogpt", tmp_path / "d.npz")
    out = tmp_path / "run"
    run("train", GPT, "--data", data, *CE, "--batch-size", 4, "--steps", 5, "--out", out)
    run("export", out, "-o", tmp_path / "t.onnx", tmp_path / "w.safetensors")
    exported = onnx.load(tmp_path / "t.onnx")
    onnx.checker.check_model(exported)
    original = onnx.load(GPT)
    assert [n.name for n in exported.graph.node] == [n.name for n in original.graph.node]
    weights = load_file(tmp_path / "w.safetensors")
    for tensor in exported.graph.initializer:
        if tensor.name in weights:
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weights[tensor.name])
    changed = [t.name for t, old in zip(exported.graph.initializer, original.graph.initializer)
               if t.SerializeToString() != old.SerializeToString()]
    assert set(changed) == weights.keys()
    arrays = dict(np.load(data))
    logits = stock(tmp_path / "t.onnx", input_ids=arrays["input_ids"])["logits"]
    run("run", tmp_path / "t.onnx", "--data", data, "-o", tmp_path / "o.npz")
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["logits"], logits, atol=1e-4 * np.abs(logits).max())
    assert "no folder of a training run" in run("export", tmp_path, "-o", tmp_path / "x.onnx", code=1).stderr


@pytest.mark.parametrize("case,variant", CASES)
def test_run_is_stock_onnxruntime(case, variant, tmp_path):
    data = write_batch(case, tmp_path / "d.npz")
    model = FIXTURES / case / f"{variant}.onnx"
    done = run("run", model, "--data", data, "-o", tmp_path / "o.safetensors")
    assert "the model has no input labels" in done.stderr
    feeds = {k: v for k, v in np.load(data).items() if k != "labels"}
    expected = stock(model, **feeds)
    ours = load_file(tmp_path / "o.safetensors")
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-4 * np.abs(value).max())


def test_run_names_what_is_missing(tmp_path):
    np.savez(tmp_path / "d.npz", y=np.zeros(3))
    done = run("run", MLP, "--data", tmp_path / "d.npz", "-o", tmp_path / "o.npz", code=1)
    assert 'the input "x", got y' in done.stderr


def test_inspect(tmp_path):
    report = json.loads(run("inspect", GPT, "--json", "--shape", "batch=4,seq=16", "--recipe", "tensorwise",
                            "--filter-fqns", "lm_head", *CE).stdout)
    assert report["inputs"] == [{"name": "input_ids", "dtype": "int64", "shape": ["batch", "seq"]}]
    held = json.loads((FIXTURES / "nanogpt" / "d18.params.json").read_text())
    trained = {row["name"] for row in report["initializers"] if row["role"] == "trained"}
    assert trained == {info["name"] for info in held.values()}
    gemms = report["gemms"]
    roles = {role: sorted(g["fqn"] for g in gemms if g["role"] == role) for role in ("forward", "dgrad", "wgrad")}
    assert roles["forward"] == roles["dgrad"] == roles["wgrad"] and len(roles["forward"]) == 9
    fc = {g["role"]: (g["m"], g["k"], g["n"]) for g in gemms if g["fqn"] == "blocks.0.fc.weight"}
    assert fc == {"forward": (64, 32, 128), "dgrad": (64, 128, 32), "wgrad": (128, 64, 32)}
    assert {(g["fp8"], g["reason"]) for g in gemms if g["fqn"] == "lm_head.weight"} == {(False, "filtered")}
    assert {(g["fp8"], g["reason"]) for g in gemms if g["role"] == "none"} == {(False, "attention")}
    assert report["specialize"]["folded"] > 0
    numbers = sum(np.prod(row["shape"]) for row in report["initializers"] if row["role"] == "trained")
    memory = report["memory"]
    assert memory["parameters"] == memory["gradients"] == 4 * numbers and memory["moments"] == 8 * numbers
    assert 0 < memory["fp8_copies"] and 0 < memory["saved_activations"] <= memory["arena_peak"] < memory["arena_naive"]
    text = run("inspect", GPT, "--shape", "batch=4,seq=16", "--recipe", "tensorwise").stdout
    assert "blocks.0.fc.weight" in text and "saved activations" in text and "would need padding on a GPU" in text
    report = json.loads(run("inspect", GPT, "--json", "--shape", "batch=1,seq=24", "--recipe", "tensorwise").stdout)
    fc = {g["role"]: g["padding"] for g in report["gemms"] if g["fqn"] == "blocks.0.fc.weight"}
    assert fc == {"forward": [], "dgrad": [], "wgrad": ["k"]}


def test_inspect_counts_fp8_weights_between_steps():
    flags = ["inspect", GPT, "--json", "--shape", "batch=4,seq=16", "--recipe", "tensorwise", *CE]
    plain, kept = (json.loads(run(*flags, *more).stdout) for more in ([], ["--primary-weights", "fp8"]))
    weights = {g["fqn"]: g["k"] * g["n"] for g in kept["gemms"] if g["role"] == "forward" and g["fp8"]}
    memory = kept["memory"]
    assert plain["memory"]["fp8_weights"] == 0
    # A scale and an amax, in four bytes each.
    assert memory["fp8_weights"] == sum(weights.values()) + 8 * len(weights)
    assert memory["total"] == sum(memory[kind] for kind in ("parameters", "moments", "scaling", "fp8_weights", "arena_peak"))
    assert all(memory[kind] == plain["memory"][kind] for kind in ("parameters", "moments", "scaling"))
    said = f"--primary-weights fp8: {len(weights)} weights live from step to step"
    assert any(note.startswith(said) for note in kept["notes"])
    assert "FP8 copies of weights" in run(*[f for f in flags if f != "--json"], "--primary-weights", "fp8").stdout


def test_inspect_counts_codes_of_frozen_weights():
    flags = ["inspect", GPT, "--json", "--shape", "batch=4,seq=16", "--recipe", "tensorwise", "--freeze", "blocks.0.*", *CE]
    plain, kept = (json.loads(run(*flags, *more).stdout) for more in ([], ["--frozen", "fp8"]))
    weights = {g["fqn"]: g["k"] * g["n"] for g in kept["gemms"] if g["role"] == "forward" and g["fp8"] and g["fqn"].startswith("blocks.0.")}
    assert weights
    # A scale and an amax, in four bytes each.
    bytes_of_codes = sum(weights.values()) + 8 * len(weights)
    assert kept["memory"]["fp8_weights"] == bytes_of_codes
    assert plain["memory"]["parameters"] - kept["memory"]["parameters"] == 4 * sum(weights.values())
    said = f"--frozen fp8: frozen weights as FP8 codes and scales: {len(weights)} ({bytes_of_codes} bytes)"
    assert any(note.startswith(said) for note in kept["notes"])
    assert not any("wgrad" == g["role"] for g in kept["gemms"] if g["fqn"] in weights)


def test_inspect_says_what_a_gpu_copies():
    flags = ["inspect", GPT, "--shape", "batch=1,seq=24", "--recipe", "tensorwise"]
    cpu = json.loads(run(*flags, "--json").stdout)
    assert {g["copies"] for g in cpu["gemms"]} == {""}
    if "cuda" not in json.loads(run("version", "--json").stdout)["providers"]:
        return
    gpu = json.loads(run(*flags, "--json", "--provider", "cuda").stdout)
    fc = {g["role"]: g["copies"] for g in gpu["gemms"] if g["fqn"] == "blocks.0.fc.weight"}
    assert fc["forward"] == "m 24 to 32 by the quantizers" and fc["wgrad"] == "k 24 to 32 by the quantizers"
    by_rows = json.loads(run(*flags[:-1], "rowwise", "--json", "--provider", "cuda").stdout)
    fc = {g["role"]: g["copies"] for g in by_rows["gemms"] if g["fqn"] == "blocks.0.fc.weight"}
    assert fc["forward"] == "m 24 to 32"
    assert "copied on the GPU" in run(*flags, "--provider", "cuda").stdout


def test_inspect_tells_recipes_apart():
    flags = [GPT, "--shape", "batch=4,seq=16", "--recipe", "tensorwise,w_gi:dyn_ten_e5m2"]
    report = json.loads(run("inspect", *flags, "--json", "--exclude", "lm_head", "--recipe-for", "blocks.0.*=delayed",
                            "--recipe-for", "blocks.1.fc=off").stdout)
    recipes = {g["fqn"]: (g["recipe"], g["reason"]) for g in report["gemms"] if g["role"] == "forward"}
    ours = "i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2,w_gi:dyn_ten_e5m2"
    assert recipes["lm_head.weight"] == ("", "excluded by lm_head")
    assert recipes["blocks.1.fc.weight"] == ("", "off for blocks.1.fc")
    assert recipes["blocks.1.proj.weight"] == (ours, "linear")
    assert recipes["blocks.0.fc.weight"] == ("i:del16_ten_e4m3,w:del16_ten_e4m3,go:del16_ten_e5m2", "linear")
    assert f"the recipe {ours}: dgrad: CUDA has no product of e5m2 and e5m2" in report["notes"]
    text = run("inspect", *flags, "--recipe-for", "blocks.0.*=delayed").stdout
    assert "Recipe 1: delayed = i:del16_ten_e4m3," in text and f"Recipe 2: {ours}\n" in text
    text = run("inspect", *flags[:3], "--recipe", "tensorwise").stdout
    assert "Recipe: tensorwise = i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2\n" in text


@pytest.mark.parametrize("recipe", ["off", "tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed", "static",
                                    "blockwise", "mxfp8"])
def test_inspect_names_every_recipe(tmp_path, recipe):
    """Each product with its decision, reason and label, which parses back."""
    listed = {entry["name"]: entry["label"] for entry in json.loads(run("recipes", "--json").stdout)}
    label = listed[recipe]
    flags = [GPT, "--shape", "batch=4,seq=16", *CE, "--filter-fqns", "lm_head"]
    if recipe == "static":
        run("calibrate", GPT, "--data", write_batch("nanogpt", tmp_path / "d.npz"), *CE, "--batch-size", 4,
            "--steps", 1, "-o", tmp_path / "scales.json")
        flags += ["--scales", tmp_path / "scales.json"]
    report = json.loads(run("inspect", *flags, "--recipe", recipe, "--json").stdout)
    assert json.loads(run("inspect", *flags, "--recipe", label, "--json").stdout)["gemms"] == report["gemms"]
    for gemm in report["gemms"]:
        linear = True
        if gemm["role"] == "none":
            linear, reason = False, "attention"
        elif recipe == "off":
            linear, reason = False, "recipe off"
        elif gemm["fqn"] == "lm_head.weight":
            linear, reason = False, "filtered"
        elif recipe == "rowwise_with_gw_hp" and gemm["role"] == "wgrad":
            linear, reason = False, "wgrad in high precision"
        if linear:
            reason = "linear"
        assert (gemm["fp8"], gemm["reason"], gemm["recipe"]) == (linear, reason, label if linear else ""), gemm
    text = run("inspect", *flags, "--recipe", recipe).stdout
    in_fp8 = sum(gemm["fp8"] for gemm in report["gemms"])
    assert f"Matrix products: {in_fp8} of {len(report['gemms'])} in FP8" in text
    assert in_fp8 == {"off": 0, "rowwise_with_gw_hp": 16}.get(recipe, 24)
    assert (f"\nRecipe: {recipe} = {label}\n" in text) == (in_fp8 > 0)
    table = text[text.index("Matrix products"):text.index("\nSpecialized")].splitlines()
    found = [" ".join(line.split()) for line in table if "blocks.0.fc.weight" in line]
    assert len(found) == 3 and found == [
        " ".join(map(str, [g["fqn"], g["role"], g["m"], g["k"], g["n"], "FP8" if g["fp8"] else "fp32", g["reason"],
                           "".join(g["padding"])])).strip()
        for g in report["gemms"] if g["fqn"] == "blocks.0.fc.weight"]


def test_auto_filter(tmp_path):
    def decisions(table):
        report = json.loads(run("inspect", GPT, "--json", "--shape", "batch=4,seq=16", "--recipe", "tensorwise",
                                "--auto-filter", table).stdout)
        return [(g["fp8"], g["reason"], g.get("speedup")) for g in report["gemms"] if g["role"] != "none"]

    path = tmp_path / "speeds.json"
    run("bench", "gemm", "--save", path, "--sizes", "8,4", "--seconds", 0)
    table = json.loads(path.read_text())
    assert table["m"] == table["k"] == table["n"] == [4, 8]
    assert len(table["gflops"]["fp32"]) == len(table["gflops"]["fp8"]) == 8
    for fp8, reason, speedup in decisions(path):
        assert fp8 == (speedup >= 1) and (reason == "linear") == fp8
    table["quantize_gigaelements"] = 1e9
    for factor in (0.5, 2):
        table["gflops"] = {"fp32": [1] * 8, "fp8": [factor] * 8}
        path.write_text(json.dumps(table))
        reason = "linear" if factor > 1 else "measured: 0.50x"
        assert {(fp8, why) for fp8, why, _ in decisions(path)} == {(factor > 1, reason)}
        assert all(speedup == pytest.approx(factor, rel=1e-6) for _, _, speedup in decisions(path))
    h100 = {reason for fp8, reason, speedup in decisions("h100") if not fp8 and speedup is None}
    assert h100 == {"h100: K <= 4096, N <= 1024", "h100: N is no multiple of 16"}  # the latter is lm_head
    text = run("inspect", GPT, "--shape", "batch=4,seq=16", "--recipe", "tensorwise", "--auto-filter", path).stdout
    assert "speed-up" in text


def test_recipes():
    listed = {recipe["name"]: recipe for recipe in json.loads(run("recipes", "--json").stdout)}
    assert list(listed) == ["off", "tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed", "static", "blockwise",
                            "mxfp8"]
    assert listed["delayed"]["label"] == "i:del16_ten_e4m3,w:del16_ten_e4m3,go:del16_ten_e5m2"
    assert listed["mxfp8"]["recipe"]["input_for_wgrad"] == "dyn_blk32_e4m3_p2"
    text = run("recipes").stdout
    assert all(recipe["label"] in text and recipe["summary"] in text for recipe in listed.values())


def test_inspect_reports_the_memory_that_train_will_need(tmp_path):
    flags = [GPT, *CE, "--recipe", "tensorwise", "--memory-report", "--json"]
    report = json.loads(run("inspect", *flags, "--shape", "batch=4,seq=16").stdout)["memory_report"]
    assert "peak_bytes" not in report and report["kinds"]["fp8_copies"] > 0
    data = write_batch("nanogpt", tmp_path / "d.npz")
    trained = json.loads(run("train", *flags, "--data", data, "--batch-size", 4, "--steps", 1, "--out",
                             tmp_path / "run").stdout)["memory"]
    assert {k: trained[k] for k in report} == report
    assert "memory_report" not in json.loads(run("inspect", *flags).stdout)  # open axes
    text = run("inspect", *flags[:-1], "--shape", "batch=4,seq=16").stdout
    assert "Largest values there" in text and "peak of the process" not in text


def test_inspect_prints_the_least_time_on_a_gpu():
    flags = [GPT, *CE, "--recipe", "tensorwise", "--dtype", "bfloat16", "--shape", "batch=4,seq=16"]
    h100, h200, b200 = (json.loads(run("inspect", *flags, "--gpu", gpu, "--json").stdout)["roofline"]
                        for gpu in ("h100", "h200", "b200"))
    assert h200["ms"] == pytest.approx(sum(node["ms"] for node in h200["nodes"]))
    assert h200["ms"] == pytest.approx(sum(role["ms"] for role in h200["roles"]))
    for node in h200["nodes"]:
        least = node["bytes"] / 4.8e12 * 1e3
        assert node["ms"] >= least and (node["bound"] == "memory") == (node["ms"] == pytest.approx(least, rel=1e-12))
    # Tiny sizes wait for memory, of which an H100 has the slower one.
    assert h100["ms"] == pytest.approx(h200["ms"] * 4.8 / 3.35)
    assert b200["ms"] == pytest.approx(h200["ms"] * 4.8 / 8)
    assert {role["role"] for role in h200["roles"]} == {
        "forward", "dgrad", "wgrad", "quantize", "norm", "attention", "optimizer", "other"}
    assert {"ScaledMatMul", "QuantizeTensor"} & {op["op"].split(".")[-1] for op in h200["ops"]}
    text = run("inspect", *flags, "--gpu", "h200").stdout
    assert "Least time of a step on h200: " in text and "Longest nodes" in text
    left = int(re.search(r"and (\d+) shorter ones \(--all-nodes lists them\)", text)[1])
    every = run("inspect", *flags, "--gpu", "h200", "--all-nodes").stdout
    assert "shorter ones" not in every and len(every.splitlines()) == len(text.splitlines()) - 1 + left
    assert len(h200["nodes"]) == left + 20
    assert "--all-nodes needs --gpu" in run("inspect", *flags, "--all-nodes", code=2).stderr
    assert "roofline" not in json.loads(run("inspect", *flags[:-2], "--gpu", "h200", "--json").stdout)  # open axes


def test_inspect_with_open_axes():
    report = json.loads(run("inspect", GPT, "--json").stdout)
    assert report["open_axes"] == ["batch", "seq"] and "memory" not in report
    fc = [g for g in report["gemms"] if g["fqn"] == "blocks.0.fc.weight" and g["role"] == "forward"][0]
    assert (fc["m"], fc["k"], fc["n"]) == ("batch·seq", 32, 128)
    assert "--shape batch=N,seq=N" in run("inspect", GPT).stdout
    note = "--memory compares nothing: the size of a step depends on batch, seq, so it needs --shape"
    assert note in json.loads(run("inspect", GPT, "--memory", "1GiB", "--json").stdout)["notes"]
    assert note not in report["notes"]


def test_axes_without_a_name_go_by_their_input(tmp_path):
    """--shape accepts the text that inspect prints for it."""
    model, path = onnx.load(MLP), tmp_path / "m.onnx"
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].Clear()
    del model.graph.value_info[:]
    onnx.save(model, path)
    axis = f"{model.graph.input[0].name}.0"
    assert f"--shape {axis}=N\n" in run("inspect", path).stdout
    assert "memory" in json.loads(run("inspect", path, "--json", "--shape", f"{axis}=16").stdout)
    step = ["rewrite", path, "-o", tmp_path / "step.onnx", *CE]
    assert f'needs the size of the axis "{axis}" of the input' in run(*step, code=2).stderr
    run(*step, "--shape", f"{axis}=16")


def test_inspect_frozen_weights_have_no_wgrad():
    report = json.loads(run("inspect", GPT, "--json", "--shape", "batch=4,seq=16", "--recipe", "tensorwise",
                            "--freeze", "blocks.0.fc.weight").stdout)
    fc = {g["role"]: g["reason"] for g in report["gemms"] if g["fqn"] == "blocks.0.fc.weight"}
    assert fc == {"forward": "frozen: no wgrad", "dgrad": "frozen: no wgrad"}


def test_rewrite_forward(tmp_path):
    done = run("rewrite", GPT, "-o", tmp_path / "q.onnx", "--recipe", "tensorwise", "--filter-fqns", "lm_head")
    assert "8 of 13 matrix products in FP8" in done.stdout
    report = json.loads(run("rewrite", GPT, "-o", tmp_path / "j.onnx", "--recipe", "tensorwise", "--filter-fqns",
                            "lm_head", "--json").stdout)
    assert (tmp_path / "j.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    assert report["out"] == str(tmp_path / "j.onnx") and report["opset_after"] >= report["opset_before"] == 18
    assert [g["reason"] for g in report["gemms"] if not g["fp8"]].count("filtered") == 1
    assert len(report["gemms"]) == 13 and sum(g["fp8"] for g in report["gemms"]) == 8
    assert "rewritten already" in run("rewrite", tmp_path / "q.onnx", "-o", tmp_path / "r.onnx", "--recipe",
                                      "tensorwise", code=1).stderr
    run("rewrite", GPT, "-o", tmp_path / "off.onnx", "--recipe", "off")
    assert (tmp_path / "off.onnx").read_bytes() == GPT.read_bytes()
    data = write_batch("nanogpt", tmp_path / "d.npz")
    run("run", tmp_path / "q.onnx", "--data", data, "-o", tmp_path / "o.npz")
    expected = stock(tmp_path / "q.onnx", input_ids=np.load(data)["input_ids"])["logits"]
    error = np.linalg.norm(np.load(tmp_path / "o.npz")["logits"] - expected) / np.linalg.norm(expected)
    assert error < 1e-2


@pytest.mark.parametrize("recipe", ["off", "tensorwise", "delayed"])
def test_rewrite_whole_step(tmp_path, recipe):
    """The written step, fed back in stock onnxruntime, gives train's losses."""
    data = write_batch("mlp", tmp_path / "d.npz")
    flags = ["--recipe", recipe, *CE, "--lr", 0.01]
    run("rewrite", MLP, "-o", tmp_path / "step.onnx", *flags, "--shape", "batch=16")
    run("train", MLP, "--data", data, *flags, "--batch-size", 16, "--steps", 5, "--no-shuffle", "--out",
        tmp_path / "run")
    model = onnx.load(tmp_path / "step.onnx")
    onnx.checker.check_model(model)
    bindings = {b.key: b.value for b in model.training_info[0].update_binding}
    feeds = dict(np.load(data))
    ours = [json.loads(line)["loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    session = stock_session(tmp_path / "step.onnx")
    names = [output.name for output in session.get_outputs()]
    for step in range(5):
        outputs = dict(zip(names, session.run(None, feeds)))
        tolerance = 1e-4 if step == 0 or recipe == "off" else 3e-2
        assert outputs["loss"] == pytest.approx(ours[step], rel=tolerance)
        feeds.update({state: outputs[new] for state, new in bindings.items()})


def optimized_model(path):
    """As torch writes folded models: the weight transposed, its name lost."""
    rng = np.random.default_rng(0)
    tensors = [onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
               for name, shape in [("onnx::MatMul_12", (3, 4)), ("fc.bias", (4,))]]
    nodes = [helper.make_node("MatMul", ["x", "onnx::MatMul_12"], ["xw"], name="/fc/MatMul"),
             helper.make_node("Add", ["xw", "fc.bias"], ["logits"], name="/fc/Add")]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["batch", 3])],
                              [info("logits", TensorProto.FLOAT, ["batch", 4])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    np.savez(path.with_suffix(".npz"), x=rng.normal(size=(8, 3)).astype(np.float32), labels=rng.integers(0, 4, 8))
    return path, path.with_suffix(".npz")


def test_lost_names_come_back_in_weights(tmp_path):
    model, data = optimized_model(tmp_path / "m.onnx")
    run("grad", model, "--data", data, *CE, "-o", tmp_path / "g.safetensors")
    gradients = load_file(tmp_path / "g.safetensors")
    # Gradients belong to the tensor in the file, under its name.
    assert gradients["grad.onnx::MatMul_12"].shape == (3, 4) and "grad.fc.bias" in gradients
    run("train", model, "--data", data, *CE, "--steps", 2, "--out", tmp_path / "run")
    done = run("export", tmp_path / "run", "-o", tmp_path / "t.onnx", tmp_path / "w.safetensors")
    assert "onnx::MatMul_12" in done.stderr
    held = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "t.onnx").graph.initializer}
    weights = load_file(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(weights["fc.weight"], held["onnx::MatMul_12"].T)
    np.testing.assert_array_equal(weights["fc.bias"], held["fc.bias"])
    # And back: with a rate of 0 the weights of --init stay.
    run("train", model, "--data", data, *CE, "--steps", 1, "--lr", 0, "--init", tmp_path / "w.safetensors",
        "--out", tmp_path / "again")
    run("export", tmp_path / "again", "-o", tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    for name, value in weights.items():
        np.testing.assert_array_equal(again[name], value, name)


def graph_model(path):
    """Rows of x are samples; edges and table are not."""
    info = helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("MatMul", ["table", "ones"], ["t"]),
             helper.make_node("ReduceSum", ["t"], ["sum"], keepdims=0), helper.make_node("Cast", ["edges"], ["e"], to=1),
             helper.make_node("ReduceSum", ["e"], ["edge_sum"], keepdims=0), helper.make_node("Add", ["xw", "sum"], ["a"]),
             helper.make_node("Add", ["a", "edge_sum"], ["y"])]
    ones = onnx.numpy_helper.from_array(np.ones((4, 1), np.float32), "ones")
    inputs = [info("x", TensorProto.FLOAT, ["nodes", 2]), info("edges", TensorProto.INT64, [2, "edges"]),
              info("table", TensorProto.FLOAT, ["nodes", 4])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, ["nodes", 3])], [weight, ones])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def test_whole_arrays(tmp_path):
    graph_model(tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    x, table = (rng.normal(size=s).astype(np.float32) for s in ((10, 2), (5, 4)))
    edges = rng.integers(0, 3, (2, 7))
    labels = rng.normal(size=(10, 3)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, table=table, edges=edges, labels=labels)
    flags = ["eval", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--json"]
    # A rule finds the edges; the table's first axis has the name of the batch axis.
    done = run(*flags, code=1)
    assert '"table" has 5 samples' in done.stderr and "--whole" in done.stderr
    result = json.loads(run(*flags, "--whole", "table", "--batch-size", 4).stdout)
    y = x @ np.ones((2, 3)) + table.sum() + edges.sum()
    assert result["loss"] == pytest.approx(np.mean((y - labels) ** 2), rel=1e-4)


def test_external_data(tmp_path):
    """A run's folder holds the whole model, and so do exported models."""
    (tmp_path / "model").mkdir()
    model = tmp_path / "model" / "m.onnx"
    onnx.save(onnx.load(GPT), model, save_as_external_data=True, location="m.data", size_threshold=0,
              convert_attribute=True)
    data = write_batch("nanogpt", tmp_path / "d.npz")
    run("train", model, "--data", data, *CE, "--batch-size", 4, "--steps", 2, "--out", tmp_path / "run")
    run("train", GPT, "--data", data, *CE, "--batch-size", 4, "--steps", 2, "--out", tmp_path / "inline")
    for file in (tmp_path / "model").iterdir():
        file.unlink()
    losses = [json.loads(run("eval", tmp_path / name, "--data", data, "--json").stdout) for name in ("run", "inline")]
    assert losses[0] == losses[1]
    (tmp_path / "out").mkdir()
    run("export", tmp_path / "run", "-o", tmp_path / "out" / "t.onnx")
    exported = json.loads(run("eval", tmp_path / "out" / "t.onnx", "--data", data, *CE, "--json").stdout)
    assert exported["loss"] == losses[0]["loss"]
