# SPDX-License-Identifier: Apache-2.0
"""Exit codes, help and the messages for wrong usage."""
import json
import re

import pytest
from program import FIXTURES, run

COMMANDS = ["train", "eval", "export", "calibrate", "grad", "inspect", "plan", "rewrite", "sensitivity", "explain",
            "report", "compare", "recipes", "run", "bench", "ops", "version"]
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


WRONG = [
    (["trian"], "did you mean train?"),
    (["train", MODEL, "--dtaa", "x"], "did you mean --data?"),
    (["train", MODEL, "--out", "d"], "--data is missing"),
    (["train", MODEL, "--data", "x.npz", "--out", "d", "--steps", "1"], "--loss is missing"),
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
     "expected adamw, adam, adamw_hf, muon, sgd or FILE.onnx"),
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
    (["export", "dir", "-o", "weights.pt"], ".onnx, .safetensors or .ckpt"),
    (["run", MODEL, "--data", "x.npz", "-o", "out.onnx"], ".npz or .safetensors"),
    (["inspect"], "MODEL is missing"),
    (["inspect", MODEL, "--shape", "batch=0"], "AXIS=N"),
    (["inspect", MODEL, "--shape", "btach=4"], "there are: batch"),
    (["inspect", MODEL, "another.onnx"], "another.onnx"),
    (["rewrite", MODEL, "-o", "out.txt"], ".onnx"),
    (["rewrite", MODEL, "-o", "out.onnx", "--lr", "1"], "needs --loss"),
    (["rewrite", MODEL, "-o", "out.onnx", "--loss", "cross_entropy"], 'the axis "batch"'),
    (["bench"], "WHAT is missing"),
    (["bench", "gem"], 'WHAT: expected gemm, linear, norm-linear-sigmoid, attention or nodes, got "gem"'),
    (["bench", "gem", "--sizes", "8"], "WHAT: expected gemm"),
    (["bench", "--threads", "1", "gem"], "WHAT: expected gemm"),
    (["bench", "gemm", "--shape", "8,8"], "expected M,K,N"),
    (["bench", "gemm", "--shape", "8,0,8"], "expected M,K,N"),
    (["bench", "gemm", "--shape", "8,8,8,NX"], "expected M,K,N"),
    (["bench", "gemm", "--shape", "8,8,8;NT"], "expected M,K,N"),
    (["bench", "gemm", "--dtype", "fp4"], "expected fp32, bf16 or fp8"),
    (["bench", "gemm", "--sizes", "8"], "--sizes needs --save"),
    (["bench", "gemm", "--save", "s.json", "--sizes", "0"], "--sizes: expected numbers from 1 to 16384"),
    (["bench", "gemm", "--save", "s.json", "--json"], "--json and --save exclude each other"),
    (["bench", "gemm", "--rows", "8"], "there is no option --rows"),
    (["bench", "linear", "--shape", "8,8"], '--shape: expected M,K,N, got "8,8"'),
    (["bench", "linear", "--shape", "8,8,8,NT"], '--shape: expected M,K,N, got "8,8,8,NT"'),
    (["bench", "linear", "--rows", "0"], "at least 1"),
    (["bench", "linear", "--rows", "1048577"], "--rows: expected at most 1048576, got 1048577"),
    (["bench", "linear", "--rows", "8", "--sizes", "8"], "--rows and --sizes exclude each other"),
    (["bench", "linear", "--shape", "8,8,8", "--sizes", "8"], "--shape and --sizes exclude each other"),
    (["bench", "linear", "--shape", "8,8,8", "--rows", "8"], "--shape and --rows exclude each other"),
    (["bench", "linear", "--save", "s.json"], "--save needs --sizes"),
    (["bench", "linear", "--sizes", "x"], "--sizes: expected numbers from 1 to 16384"),
    (["bench", "linear", "--sizes", ""], "--sizes: expected numbers from 1 to 16384, got none"),
    (["bench", "linear", "--recipe", "fp4"], "off, tensorwise, rowwise, "),
    (["bench", "linear", "--dtype", "fp8"], "expected float32, bfloat16 or float16, got fp8"),
    (["bench", "norm-linear-sigmoid", "--sizes", "16385"], "--sizes: expected numbers from 1 to 16384"),
    (["bench", "norm-linear-sigmoid", "--shape", "8,8,8"], "there is no option --shape"),
    (["bench", "attention", "--dtype", "fp8"], 'expected fp32 or bf16, got "fp8"'),
    (["bench", "attention", "--sequence", "0"], "--sequence: expected numbers from 1 to 65536"),
    (["bench", "attention", "--head-size", "2000"], "--head-size: expected numbers from 1 to 1024"),
    (["bench", "attention", "--heads", "0"], "at least 1"),
    (["bench", "attention", "--heads", "1025"], "--heads: expected at most 1024, got 1025"),
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
