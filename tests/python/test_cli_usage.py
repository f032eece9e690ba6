# SPDX-License-Identifier: Apache-2.0
"""Exit codes, help and the messages for wrong usage."""
import json
import re

import pytest
from program import FIXTURES, run

COMMANDS = ["train", "eval", "export", "calibrate", "grad", "inspect", "rewrite", "recipes", "run", "bench", "ops", "version"]
MODEL = FIXTURES / "mlp" / "d18.onnx"


def test_help_lists_every_command():
    text = run("--help").stdout
    assert re.findall(r"^  (\w+) ", text, re.M) == COMMANDS
    assert run("help").stdout == text
    assert run(code=2).stderr == text


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_has_examples(command):
    done = run(command, "--help")
    examples = re.findall(r"^  onnx-fp8 (\w+)", done.stdout, re.M)
    assert 1 <= len(examples) <= 3 and set(examples) == {command}
    assert "--threads" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 80
    assert run("help", command).stdout == done.stdout


def test_version_names_what_a_report_needs():
    info = json.loads(run("version", "--json", "--threads", "1").stdout)
    assert info["threads"] == 1
    assert {"version", "isa", "gemm", "providers", "onnx", "protobuf"} <= info.keys()
    text = run("--version").stdout
    assert info["version"] in text and info["gemm"] in text


def test_ops_have_bodies():
    ops = {op["name"]: op for op in json.loads(run("ops", "--json").stdout)}
    assert {"QuantizeTensor", "QuantizeBlock", "ScaledMatMul", "ScaledMatMulBlock", "UpdateScale", "AdamW"} <= ops.keys()
    assert {"name": "q_max", "kind": "float"} in ops["QuantizeTensor"]["attributes"]
    assert "=>" in ops["ScaledMatMul"]["body"]
    assert "ScaledMatMul" in run("ops").stdout


def test_bench_gemm_names_shape_and_peak():
    arguments = ["bench", "gemm", "--seconds", "0", "--shape", "8,16,24,NT", "--shape", "7,5,3"]
    report = json.loads(run(*arguments, "--json").stdout)
    assert set(report["peak"]) == {"fp32", "fp8"} and min(report["peak"].values()) > 0
    products = [(p["dtype"], p["m"], p["k"], p["n"], p["layout"]) for p in report["products"]]
    assert products == [(d, *p) for d in ("fp32", "fp8") for p in [(8, 16, 24, "NT"), (7, 5, 3, "NN")]]
    for product in report["products"]:
        assert 0 < product["median_gflops"] <= product["gflops"]
    text = run(*arguments, "--dtype", "fp8").stdout
    assert "24 NT" in text and "fp32" not in text


WRONG = [
    (["trian"], "did you mean train?"),
    (["train", MODEL, "--dtaa", "x"], "did you mean --data?"),
    (["train", MODEL, "--out", "d"], "--data is missing"),
    (["train", MODEL, "--data", "x.npz", "--out", "d"], "--loss is missing"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--steps", "1"], "--out is missing"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d"], "one of --steps and --epochs"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "1", "--epochs", "1"],
     "one of --steps and --epochs"),
    (["train", MODEL, "--data", "x.npz", "--loss", "ce", "--out", "d", "--steps", "1"], "--loss: expected"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "0"], "at least 1"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "1", "--lr", "-1"], "--lr"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "1", "--betas", "1,1"], "--betas"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "1", "--schedule", "step"],
     "--schedule"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "1", "--optimizer", "lion"],
     "expected adamw, adam or sgd"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "1", "--val-every", "2"],
     "needs --val-data"),
    (["train", MODEL, "--data", "x.npz", "--loss", "mse", "--out", "d", "--steps", "1", "--dtype", "float64"],
     "--dtype"),
    (["eval", MODEL], "--data is missing"),
    (["eval", MODEL, "--data", "x.npz"], "--loss is missing"),
    (["eval", MODEL, "--data", "x.npz", "--loss", "mse", "--recipe", "fp4"], "off, tensorwise, rowwise, "),
    (["grad", MODEL, "--data", "x.npz", "--loss", "mse"], "--out is missing"),
    (["grad", MODEL, "--data", "x.npz", "--loss", "mse", "-o", "g.txt"], ".npz or .safetensors"),
    (["export", "dir"], "--out is missing"),
    (["export", "dir", "-o", "weights.pt"], ".onnx or .safetensors"),
    (["run", MODEL, "--data", "x.npz", "-o", "out.onnx"], ".npz or .safetensors"),
    (["inspect"], "MODEL is required"),
    (["inspect", MODEL, "--shape", "batch=0"], "AXIS=N"),
    (["inspect", MODEL, "--shape", "btach=4"], "there are: batch"),
    (["inspect", MODEL, "another.onnx"], "another.onnx"),
    (["rewrite", MODEL, "-o", "out.txt"], ".onnx"),
    (["rewrite", MODEL, "-o", "out.onnx", "--lr", "1"], "needs --loss"),
    (["rewrite", MODEL, "-o", "out.onnx", "--loss", "cross_entropy"], 'the axis "batch"'),
    (["bench"], "WHAT is required"),
    (["bench", "gem"], "expected gemm"),
    (["bench", "gemm", "--shape", "8,8"], "expected M,K,N"),
    (["bench", "gemm", "--shape", "8,0,8"], "expected M,K,N"),
    (["bench", "gemm", "--shape", "8,8,8,NX"], "expected M,K,N"),
    (["bench", "gemm", "--shape", "8,8,8;NT"], "expected M,K,N"),
    (["bench", "gemm", "--dtype", "fp4"], "expected fp32 or fp8"),
    (["bench", "gemm", "--sizes", "8"], "--sizes needs --save"),
    (["bench", "gemm", "--save", "s.json", "--sizes", "0"], "--sizes: expected numbers from 1 to 16384"),
    (["bench", "gemm", "--save", "s.json", "--json"], "--json and --save exclude each other"),
    (["version", "--threads", "0"], "at least 1"),
    (["version", "--threads", "100000"], "at most 1024"),
]


@pytest.mark.parametrize("arguments,message", WRONG, ids=lambda v: " ".join(map(str, v))[-60:] if v else "")
def test_wrong_usage_is_two(arguments, message, tmp_path):
    done = run(*arguments, code=2, cwd=tmp_path)
    assert message in done.stderr
    assert "--help" in done.stderr
    assert done.stdout == ""


def test_failures_are_one(tmp_path):
    done = run("inspect", tmp_path / "none.onnx", code=1)
    assert done.stderr.startswith("onnx-fp8: ") and "none.onnx" in done.stderr
    done = run("eval", tmp_path, "--data", "x.npz", code=1)
    assert "no folder of a training run" in done.stderr
    flags = ["--data", tmp_path / "x.npz", "--loss", "cross_entropy"]
    done = run("eval", MODEL, *flags, code=1)
    assert "x.npz" in done.stderr
    done = run("eval", MODEL, *flags, "--logits", "nothing", code=1)
    assert "logits" in done.stderr


def test_a_full_output_is_a_failure():
    with open("/dev/full", "w") as full:
        import subprocess
        from program import BIN
        done = subprocess.run([BIN, "ops", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "stdout" in done.stderr
