# SPDX-License-Identifier: Apache-2.0
"""`onnx-fp8 bench`: what it measures, prints and saves, with tiny sizes."""
import json
import os
import re
import signal

import pytest
from program import FIXTURES, run, start

GPT = FIXTURES / "nanogpt" / "d18.onnx"
WHATS = ["gemm", "linear", "norm-linear-sigmoid", "attention", "nodes"]


def report(*arguments, **kwargs):
    return json.loads(run("bench", *arguments, "--seconds", 0, "--json", **kwargs).stdout)


@pytest.mark.parametrize("what", WHATS)
def test_each_benchmark_has_a_help(what):
    done = run("bench", what, "--help")
    examples = re.findall(r"^  onnx-fp8 bench (\S+)", done.stdout, re.M)
    assert 1 <= len(examples) <= 3 and set(examples) == {what}
    assert f"Usage: onnx-fp8 bench {what} [options]" in done.stdout
    assert "--threads" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 80
    assert run("help", "bench", what).stdout == done.stdout
    assert f"{what}: " in " ".join(run("bench", "--help").stdout.split())


def test_gemm_names_shape_and_peak():
    arguments = ["bench", "gemm", "--seconds", "0", "--shape", "8,16,24,NT", "--shape", "7,5,3"]
    report = json.loads(run(*arguments, "--json").stdout)
    assert set(report["peak"]) == {"fp32", "fp8"} and min(report["peak"].values()) > 0
    products = [(p["dtype"], p["m"], p["k"], p["n"], p["layout"]) for p in report["products"]]
    assert products == [(d, *p) for d in ("fp32", "fp8") for p in [(8, 16, 24, "NT"), (7, 5, 3, "NN")]]
    for product in report["products"]:
        assert 0 < product["median_gflops"] <= product["gflops"]
    text = run(*arguments, "--dtype", "fp8").stdout
    assert "24 NT" in text and "fp32" not in text


def test_gemm_of_bfloat16():
    flags = ["--shape", "8,16,24", "--dtype", "bf16,fp8"]
    result = report("gemm", *flags)
    # The same kernels.
    assert set(result["peak"]) == {"bf16", "fp8"} and result["peak"]["bf16"] == result["peak"]["fp8"]
    assert [p["dtype"] for p in result["products"]] == ["bf16", "fp8"]
    assert result["products"][0]["gflops"] > 0


def test_flags_may_come_before_the_benchmark():
    done = run("bench", "--dtype", "fp32", "gemm", "--shape", "8,8,8", "--seconds", "0")
    assert re.findall(r"^\w+:", done.stdout, re.M) == ["fp32:"]


def test_linear_compares_a_recipe_with_high_precision():
    result = report("linear", "--shape", "8,16,24", "--shape", "4,32,16", "--recipe", "rowwise", "--dtype", "bfloat16",
                    "--threads", 1)
    assert result["benchmark"] == "linear" and result["threads"] == 1
    assert (result["dtype"], result["recipe"], result["provider"]) == ("bfloat16", "rowwise", "cpu")
    assert [(x["m"], x["k"], x["n"]) for x in result["layers"]] == [(8, 16, 24), (4, 32, 16)]
    for layer in result["layers"]:
        assert layer["runs"] == 3 and layer["speedup"] > 0
        for times in (layer["high_precision_ms"], layer["recipe_ms"]):
            assert 0 < times["best"] <= times["median"]
        operations = 6 * layer["m"] * layer["k"] * layer["n"]
        assert layer["gflops"] == pytest.approx(operations / layer["recipe_ms"]["median"] / 1e6)
    text = run("bench", "linear", "--shape", "8,16,24", "--seconds", 0).stdout
    assert "float32 and tensorwise" in text
    assert re.search(r"^ *M +K +N +high-precision ms +recipe ms +speed-up +GF/s\n +8 +16 +24 ", text, re.M)


@pytest.mark.parametrize("recipe", ["off", "delayed", "blockwise", "mxfp8", "rowwise_with_gw_hp"])
def test_linear_knows_the_recipes(recipe):
    assert report("linear", "--shape", "8,32,64", "--recipe", recipe)["recipe"] == recipe


def test_layers_can_be_filtered():
    flags = ["linear", "--shape", "8,32,64"]
    assert report(*flags, "--recipe", "off", "--recipe-for", "linear=mxfp8")
    assert report(*flags, "--exclude", "linear")
    done = run("bench", *flags, "--exclude", "other", code=1)
    assert "--exclude other matches no matrix product" in done.stderr


def test_linear_has_the_layers_of_llama():
    layers = report("linear", "--rows", 1)["layers"]
    assert [(x["layer"], x["m"], x["k"], x["n"]) for x in layers] == [
        ("attn.wqkv", 1, 8192, 1280), ("attn.w0", 1, 1024, 8192), ("ffn.w13", 1, 8192, 7168), ("ffn.w2", 1, 3584, 8192)]


def test_norm_linear_sigmoid_measures_a_grid():
    result = report("norm-linear-sigmoid", "--sizes", "16,8")
    assert result["benchmark"] == "norm-linear-sigmoid"
    assert [(x["m"], x["k"], x["n"]) for x in result["layers"]] == [
        (m, k, n) for m in (8, 16) for k in (8, 16) for n in (8, 16)]


def test_nodes_of_a_step(tmp_path):
    result = report("nodes", "--quick", "--only", "casts,norms", "--dtype", "float32", "--save", tmp_path / "nodes.json")
    assert {**result, "dtype": "float32", "failed": 0, "quick": True, "provider": "cpu"} == result
    assert json.loads((tmp_path / "nodes.json").read_text()) == result
    assert {node["group"] for node in result["nodes"]} == {"casts", "norms"}
    missing = [node["op"] for node in result["nodes"] if "note" in node]
    assert missing == [*2 * ["QuantizeTensorTranspose"], "QuantizeWithTranspose", *4 * ["QuantizeColumns"], *3 * ["QuantizeBlockTranspose"]]
    for node in result["nodes"]:
        if node["op"] in missing:
            assert node["note"] == "there is no kernel" and "us" not in node
            continue
        assert node["us"] > 0 and node["runs"] >= 3 and node["difference"] == 0
        assert node["gbytes"] == pytest.approx(node["bytes"] / node["us"] / 1e3)
        least = max(node["bytes"] / result["peaks"]["gbytes"], node["flops"] / result["peaks"]["fp32_gflops"]) / 1e3
        assert node["share"] == pytest.approx(least / node["us"]) and node["bound"] == "memory"
        assert node["moved_bytes"] >= node["bytes"]
        rate = node["moved_bytes"] / node["us"] / 1e3
        assert node["copy_share"] == pytest.approx(rate / node["copy_gbytes"])
    text = run("bench", "nodes", "--quick", "--seconds", 0, "--only", "casts").stdout
    assert re.search(r"^ +casts:\n +QuantizeTensor, dynamic scale +\[128,128\] +[\d.]+ ", text, re.M)
    assert "0 of 17 nodes failed or are wrong" in text and "both orientations [128,128]: there is no kernel" in text
    done = run("bench", "nodes", "--only", "casts,cats", code=2)
    assert "--only: expected some of products, casts, norms," in done.stderr and 'got "cats"' in done.stderr


@pytest.mark.parametrize("what", ["linear", "norm-linear-sigmoid"])
def test_saved_speedups_decide_on_layers(what, tmp_path):
    def decisions():
        report = json.loads(run("inspect", GPT, "--json", "--shape", "batch=4,seq=16", "--recipe", "tensorwise",
                                "--auto-filter", path).stdout)
        return [(g["fp8"], g["reason"], g.get("speedup")) for g in report["gemms"] if g["role"] != "none"]

    path = tmp_path / "speedups.json"
    flags = ["--sizes", "8,4", "--recipe", "rowwise", "--dtype", "bfloat16"]
    result = report(what, *flags, "--save", path)
    table = json.loads(path.read_text())
    assert table["format"] == "onnx_fp8 layer speedups 1"
    assert (table["benchmark"], table["recipe"], table["dtype"]) == (what, "rowwise", "bfloat16")
    assert table["machine"].startswith(result["isa"])
    assert table["m"] == table["k"] == table["n"] == [4, 8]
    assert table["speedup"] == [layer["speedup"] for layer in result["layers"]]
    for fp8, reason, speedup in decisions():
        assert fp8 == (speedup >= 1) and (reason == "linear") == fp8
        assert speedup == pytest.approx(table["speedup"][-1])
    for speedup in (0.5, 1, 2):
        path.write_text(json.dumps(table | {"speedup": [speedup] * 8}))
        reason = "measured: 0.50x" if speedup < 1 else "linear"
        assert set(decisions()) == {(speedup >= 1, reason, speedup)}
    assert f"{path}: speed-ups of 8 layers" in run("bench", what, *flags, "--seconds", 0, "--save", path).stdout


def test_the_folder_of_save_is_looked_for_first(tmp_path):
    for what in ("gemm", "linear"):
        done = run("bench", what, "--sizes", 4096, "--save", tmp_path / "none" / "s.json", code=1)
        assert "there is no folder" in done.stderr


def test_models_of_layers_are_removed(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    report("linear", "--shape", "64,64,64", env=environment)
    run("bench", "linear", "--shape", "64,64,64", "--exclude", "other", code=1, env=environment)
    assert list(tmp_path.iterdir()) == []
    done = run("bench", "linear", "--shape", "8,8,8", code=1, env=environment | {"TMPDIR": str(tmp_path / "none")})
    assert "expected TMPDIR to name a folder" in done.stderr


def test_an_interrupt_ends_it(tmp_path):
    process = start("bench", "linear", "--shape", "8,8,8", "--shape", "8,8,8", "--seconds", 10000,
                    env=os.environ | {"TMPDIR": str(tmp_path)})
    assert process.stderr.readline() == "1/2  linear M 8, K 8, N 8\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130 and out == ""
    assert "onnx-fp8: interrupted in measurement 1 of 2\n" in err
    assert list(tmp_path.iterdir()) == []


def test_attention_compares_with_the_gemm():
    result = report("attention", "--sequence", "512,2048", "--head-size", 8, "--heads", 2)
    assert result["benchmark"] == "attention"
    assert [(c["dtype"], c["head_size"], c["sequence"], c["batch"], c["heads"]) for c in result["cases"]] == [
        (dtype, 8, *shape, 2) for dtype in ("fp32", "bf16") for shape in ((512, 4), (2048, 1))]
    for case in result["cases"]:
        for direction in ("forward", "backward"):
            share = case[f"{direction}_gflops"] / case["gemm_gflops"]
            assert share > 0 and case[f"{direction}_share"] == pytest.approx(share)
    text = run("bench", "attention", "--sequence", 16, "--head-size", 8, "--dtype", "bf16", "--seconds", 0).stdout
    assert re.search(r"^ *bf16 +8 +16 +128 ", text, re.M) and "fp32" not in text


def test_attention_in_slices():
    result = report("attention", "--sequence", 16, "--head-size", 8, "--dtype", "bf16,fp32", "--batch", 6, "--slices", "3,1,4")
    assert (result["provider"], result["failed"], result["nondeterministic"]) == ("cpu", 0, False)
    assert [(c["dtype"], c["batch"], c["slices"]) for c in result["cases"]] == [
        (dtype, 6, slices) for dtype in ("bf16", "fp32") for slices in (1, 3, 4)]
    for case in result["cases"]:
        if case["slices"] == 4:
            assert case["note"] == "a batch of 6 has no 4 equal slices" and "forward_ms" not in case
            continue
        operations = 4 * 6 * 4 * 8 * 16 * 16 / 2
        assert case["forward_gflops"] == pytest.approx(operations / case["forward_ms"] / 1e6)
        assert case["backward_gflops"] == pytest.approx(2.5 * operations / case["backward_ms"] / 1e6)
        assert case["forward_share"] > 0 and case["backward_share"] > 0
    text = run("bench", "attention", "--sequence", 16, "--head-size", 8, "--dtype", "bf16", "--slices", "1,3",
               "--seconds", 0).stdout
    assert re.search(r"^ *bf16 +8 +16 +4 +128 +1 +[\d.]+ ", text, re.M)
    assert re.search(r"^ *bf16 +8 +16 +4 +128 +3 +none ", text, re.M) and "T 16: a batch of 128 has no 3 equal slices" in text
