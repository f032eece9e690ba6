# SPDX-License-Identifier: Apache-2.0
"""`plan`: a step of many ranks, predicted without running it."""
import json
import math
import pathlib
import sys

import pytest
from program import FIXTURES, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from bench import graphs  # noqa: E402
from bench import plan as bench_plan  # noqa: E402

MLP = FIXTURES / "mlp" / "d18.onnx"
# Rows and columns of the parameters of tests/fixtures/models.py's MLP.
SHAPES = [(40, 24), (40, 1), (32, 40), (32, 1), (10, 32), (10, 1)]


def plan(model, *flags, loss="cross_entropy"):
    return json.loads(run("plan", model, "--loss", loss, *flags, "--json").stdout)


def received(forecast):
    """Bytes by kind of collective."""
    total = {}
    for row in forecast["collectives"]:
        total[row["op"]] = total.get(row["op"], 0) + row["node_bytes"] + row["net_bytes"]
    return total


def test_divided_state_of_an_mlp_by_hand():
    ranks = 7  # divides no number of rows
    part = sum(-(-rows // ranks) * columns for rows, columns in SHAPES)
    forecast = plan(MLP, "--mesh", f"dp={ranks}", "--shard", "parameters", "--batch-size", 70)
    assert forecast["trained_numbers"] == sum(rows * columns for rows, columns in SHAPES)
    assert forecast["samples"] == 10
    memory = forecast["memory"]
    assert memory["parameters"] == 4 * part
    # Two moments of each number, and the counter of steps.
    assert 8 * part <= memory["optimizer"] <= 8 * part + 64
    assert received(forecast)["ReduceScatter"] == 4 * (ranks - 1) * part


def test_offloaded_moments_by_hand():
    """Two moments of each number lie on the host, and cross PCIe in a step."""
    moments = 8 * sum(rows * columns for rows, columns in SHAPES)
    here, away = (plan(MLP, "--batch-size", 8, "--offload", offload) for offload in ("none", "optimizer"))
    assert (here["memory"]["outside"], here["host_bytes"]) == (0, 0)
    assert (away["memory"]["outside"], away["host_bytes"]) == (moments, moments)
    assert here["memory"]["total"] - away["memory"]["total"] == moments
    update = {row["kind"]: row["ms"] for row in away["work"]}["optimizer"]
    assert update >= 1e3 * moments / (0.80 * 64e9)
    ms = away["ms"]
    assert ms["step"] == pytest.approx(ms["compute"] + ms["exposed"] + ms["exposed_updates"])
    assert here["ms"]["updates"] == here["ms"]["exposed_updates"] == 0 <= ms["exposed_updates"] <= ms["updates"]
    text = run("plan", MLP, "--loss", "cross_entropy", "--batch-size", 8, "--offload", "optimizer").stdout
    assert "moments, in the host's memory" in text
    assert "in each direction, at 64 GB/s\nUpdates of it: " in text


def test_inspect_leaves_offloaded_moments_out():
    moments = 8 * sum(rows * columns for rows, columns in SHAPES)
    flags = ["inspect", MLP, "--loss", "cross_entropy", "--shape", "batch=4", "--gpu", "h100"]
    here, away = (json.loads(run(*flags, "--offload", offload, "--json").stdout) for offload in ("none", "optimizer"))
    assert here["memory"]["moments"] - away["memory"]["moments"] == away["memory"]["outside"] == moments
    assert here["memory"]["total"] - away["memory"]["total"] == moments
    updates = [node for node in away["roofline"]["nodes"] if node["op"].endswith("AdamW")]
    assert len(updates) == len(SHAPES) and all(node["bound"] == "host" for node in updates)
    done = run("inspect", MLP, "--state-dir", ".", "--gpu", "h100", code=2)
    assert "--state-dir: expected a step on the provider cpu, got one on a GPU" in done.stderr


def test_inspect_counts_state_in_files_apart(tmp_path):
    """Nothing is written: the folder need not exist."""
    flags = ["inspect", MLP, "--loss", "cross_entropy", "--shape", "batch=4", "--json"]
    small = json.loads(run(*flags, "--state-dir", tmp_path / "state").stdout)["memory"]
    assert small["outside"] == 0 < small["parameters"]
    gpt = pathlib.Path(__file__).resolve().parents[2] / "samples/gpt_tiny/gpt_tiny.onnx"
    flags = ["inspect", gpt, "--loss", "cross_entropy", "--shape", "batch=1,seq=8"]
    here = json.loads(run(*flags, "--json").stdout)["memory"]
    away = json.loads(run(*flags, "--state-dir", tmp_path / "state", "--json").stdout)["memory"]
    kinds = ("parameters", "moments", "scaling")
    assert sum(here[k] - away[k] for k in kinds) == away["outside"] == here["total"] - away["total"]
    assert 0 < away["parameters"] < here["parameters"] and away["moments"] < here["moments"]
    limit = (here["total"] + away["total"]) // 2
    text = run(*flags, "--recompute", "none", "--memory", limit, "--state-dir", tmp_path / "state").stdout
    assert "--memory: a step needs " in text and "expected a step that fits" not in text
    assert "expected a step that fits" in run(*flags, "--recompute", "none", "--memory", limit).stdout
    assert not (tmp_path / "state").exists()


def test_inspect_counts_weights_that_only_their_fp8_copies_need(tmp_path):
    """A frozen weight is read by nothing but the maker of its copies, and its file is no memory either."""
    gpt = pathlib.Path(__file__).resolve().parents[2] / "samples/gpt_tiny/gpt_tiny.onnx"
    flags = ["inspect", gpt, "--loss", "cross_entropy", "--shape", "batch=1,seq=8", "--recipe", "tensorwise", "--primary-weights", "fp8",
             "--freeze", "blocks.0.fc.weight", "--json"]
    here, away = (json.loads(run(*flags, *more).stdout) for more in ([], ["--state-dir", tmp_path / "state"]))
    numbers = [math.prod(row["shape"]) for row in here["initializers"] if row["role"] in ("trained", "frozen")]
    assert here["memory"]["parameters"] == sum(4 * n for n in numbers)
    assert away["memory"]["parameters"] == sum(4 * n for n in numbers if 4 * n < 64 << 10)


def test_flops_of_a_linear_model_by_hand(tmp_path):
    """Two layers of 16 · 16 for 64 rows: forward and wgrad of both, dgrad of the second."""
    path = tmp_path / "m.onnx"
    graphs.mlp(path, 8)
    forecast = plan(path, "--batch-size", 64, loss="mse")
    assert forecast["model_flops"] == 5 * 2 * 64 * 16 * 16
    assert forecast["collectives"] == [] and forecast["ms"]["exposed"] == pytest.approx(0)


def test_slow_networks_are_exposed():
    flags = ["--mesh", "dp=16", "--batch-size", 16]
    fast, slow = (plan(MLP, *flags, "--net", net)["ms"] for net in (1000, 0.001))
    assert slow["compute"] == fast["compute"]
    for ms in (fast, slow):
        assert ms["step"] == pytest.approx(ms["compute"] + ms["exposed"])
        assert 0 <= ms["exposed"] <= ms["communication"] * (1 + 1e-9)
    # 16 ranks on two nodes receive an eighth of 2 · 15/16 of the gradients by the network.
    numbers = sum(rows * columns for rows, columns in SHAPES)
    assert slow["exposed"] - fast["exposed"] == pytest.approx(4 * numbers * 2 * 15 / 16 / 8 / 1e6 * 1e3, rel=0.05)


def test_weights_may_be_missing(tmp_path):
    path = tmp_path / "m.onnx"
    graphs.Llama(graphs.Writer(tmp_path / "m.onnx.data", absent=True), 2, 64, 96, 4, 50, 2).write(path)
    forecast = plan(path, "--mesh", "dp=10000", "--shard", "parameters", "--batch-size", 20000, "--shape", "seq=32",
                    "--dtype", "bfloat16")
    assert forecast["tokens"] == 64
    assert "m.onnx.data does not exist" in forecast["notes"][0]
    work = {row["kind"]: row["nodes"] for row in forecast["work"]}
    assert work["attention"] == 4  # the fusion knows it: forward and backward of two layers
    # Three products of each weight for 64 tokens; queries of 4 heads of 16 see 528 of 32 · 32 keys, twice, three times.
    weights = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 64 * 50
    assert forecast["model_flops"] == 3 * 2 * 64 * weights + 2 * 3 * 2 * 2 * 4 * 528 * (16 + 16)
    assert "m.onnx.data does not exist" in run("inspect", path).stdout
    assert "m.onnx.data" in run("rewrite", path, "-o", tmp_path / "s.onnx", "--loss", "cross_entropy", code=1).stderr


def test_parameters_of_llama_3(tmp_path):
    """8,030,261,248 is what the published model has. Nothing of their size is allocated."""
    path = tmp_path / "m.onnx"
    graphs.llama3("llama3_8b", path)
    forecast = plan(path, "--mesh", "dp=8", "--shard", "parameters", "--batch-size", 8, "--shape", "seq=8192",
                    "--dtype", "bfloat16", "--recipe", "tensorwise")
    assert forecast["trained_numbers"] == 8030261248
    assert forecast["memory"]["parameters"] == pytest.approx(4 * 8030261248 / 8, rel=1e-6)


@pytest.mark.parametrize("flags,text", [
    (["--shape", "seq=8"], "no input has an axis"),
    (["--mesh", "dp=9"], "a sample for each of 9 ranks, got 8"),
    (["--shard", "parameters"], "--shard needs --mesh"),
    (["--net", "0"], "--net: expected more than 0"),
    (["--efficiency", "products=2"], "a share above 0 and up to 1"),
    (["--efficiency", "casts=0.5"], "of products, fp8, blocks, attention, attention_grad, memory, quantizing"),
    (["--gpu", "a100"], "h100, h200 or b200"),
])
def test_wrong_use(flags, text):
    assert text in run("plan", MLP, "--loss", "cross_entropy", *flags, code=2).stderr


def test_the_report_plans_what_torchtitan_computes_again(tmp_path):
    """In a layer the products of k, output and up in 16 bits, and all but down in FP8. Attention's reshapes of q, k and v
    run again with what they reshape."""
    path = tmp_path / "m.onnx"
    graphs.llama3("tiny", path)  # of two layers

    def products(row, *more):
        forecast = plan(path, "--batch-size", 2, "--shape", "seq=32", "--dtype", "bfloat16", *row.flags, *more)
        return sum(work["nodes"] for work in forecast["work"] if work["kind"].startswith("products"))

    for row, again in zip(bench_plan.ROWS[1:3], (3, 6)):
        assert row.recompute == "selective"
        assert products(row, *bench_plan.recomputes(row)) == products(row) + 2 * again
    assert bench_plan.recomputes(bench_plan.ROWS[0]) == ()


def test_the_report_has_every_row():
    forecast = {"tokens_per_second": 100.0, "mfu": 0.4, "ms": {"step": 10},
                "efficiency": dict.fromkeys(bench_plan.SHARES, 0.5), "collectives": [{"op": "AllGather", "ms": 3}]}
    rows = [{"name": "near", "recompute": "none", "predicted": 1.1, "published": 1, "error": 0.1, "plan": forecast,
             "why": ("kernels",), "source": bench_plan.BLOG, "gpu": bench_plan.H100},
            {"name": "far", "recompute": "none", "predicted": 2, "published": 1, "error": 1, "plan": forecast,
             "why": ("kernels",), "source": bench_plan.BLOG, "gpu": bench_plan.GRAND_TETON}]
    text = bench_plan.markdown({"rows": rows, "gathers": []})
    assert "| near | none | 1 | 1 | +10 % | 40 % | 1 |" in text
    assert bench_plan.WHY["kernels"] + ": 2\n" in text
    assert "| H100 | 3.35 | 50 |" in text and "| H100, 500 W | 2.4 | 50 |" in text
    assert all(row.why for row in bench_plan.ROWS)
