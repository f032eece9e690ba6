# SPDX-License-Identifier: Apache-2.0
"""The loss and the memory of each way to run a step in FP8, on the sample
models: the tables of docs/fp8.md.

Loss is SQNR in dB, 20 log10(|x| / |x - x8|), of one batch's outputs and
gradients against fp32, with the noise of all layers together: dgrad is the
gradient that arrives below the first layer, wgrad the mean over all weights.
Memory is the forecast of `inspect`, in MiB."""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = os.environ.get("ONNX_FP8_BIN", str(ROOT / "build/release/onnx-fp8"))
RECIPES = (
    "tensorwise",
    "rowwise",
    "rowwise,tr:requantize",
    "rowwise_with_gw_hp",
    "rowwise,go:hp,w_gi:hp,go_gw:dyn_row_e4m3_p2",
    "rowwise,round:none",
    "rowwise,round:none,tr:requantize",
    "blockwise",
    "blockwise,tr:requantize",
    "mxfp8",
    "mxfp8,round:floor",
)
HEAD = ("recipe", "output", "dgrad", "wgrad", "saved activations",
        "FP8 copies", "arena peak")


class Sample:
    """`below`: the gradient below the first layer, in a batch of `below_batch`
    samples: one sample, if the gradient is a sum over samples."""

    def __init__(self, name, data, flags, shape, below, below_batch):
        self.name = name
        self.model = ROOT / f"samples/{name}/{name}.onnx"
        self.data, self.flags, self.shape = data, flags, shape
        self.below, self.below_batch = below, below_batch


def samples(work):
    subprocess.run([sys.executable, ROOT / "samples/gpt_tiny/prepare.py", work],
                   check=True, stdout=subprocess.DEVNULL)
    return (
        Sample("gpt_tiny", work / "train.bin",
               ["--token-dtype", "uint16", "--seq-len", "128"],
               {"batch": 16, "seq": 128}, "grad.wpe.weight", 1),
        Sample("digits_mlp", ROOT / "samples/digits_mlp/train.npz",
               ["--input-grads"], {"batch": 256}, "input_grad.x", 256),
    )


def run(*words):
    done = subprocess.run([BIN, *map(str, words)], check=True,
                          capture_output=True, text=True)
    return done.stdout


def forecast(sample, recipe):
    """The products and bytes that `inspect` reports."""
    shape = ",".join(f"{axis}={n}" for axis, n in sample.shape.items())
    return json.loads(run("inspect", sample.model, "--shape", shape, "--loss",
                          "cross_entropy", "--recipe", recipe, "--json"))


def gradients(sample, recipe, batch, work):
    path = work / "grads.npz"
    run("grad", sample.model, "--data", sample.data, *sample.flags, "--loss",
        "cross_entropy", "--batch-size", batch, "--recipe", recipe, "-o", path)
    with np.load(path) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays}


def sqnr(exact, rounded, names):
    """The SQNR of the mean of their relative noise."""
    ratios = [np.sum((exact[n] - rounded[n]) ** 2) / np.sum(exact[n] ** 2)
              for n in names]
    mean = float(np.mean(ratios))
    return -10 * math.log10(mean) if mean > 0 else math.inf


def measure(sample, work):
    """Rows of figures by recipe."""
    batches = (sample.shape["batch"], sample.below_batch)
    exact = [gradients(sample, "off", batch, work) for batch in batches]
    outputs = [n for n in exact[0] if n.startswith("output.")]
    weights = [f"grad.{g['fqn']}" for g in forecast(sample, "off")["gemms"]
               if g["role"] == "forward"]
    rows = {}
    for recipe in RECIPES:
        got = [gradients(sample, recipe, batch, work) for batch in batches]
        memory = forecast(sample, recipe)["memory"]
        rows[recipe] = (sqnr(exact[0], got[0], outputs),
                        sqnr(exact[1], got[1], [sample.below]),
                        sqnr(exact[0], got[0], weights),
                        memory["saved_activations"], memory["fp8_copies"],
                        memory["arena_peak"])
    return rows


def table(rows):
    lines = [" | ".join(HEAD), " | ".join("---" for _ in HEAD)]
    for recipe, figures in rows.items():
        cells = [f"{x:.1f}" for x in figures[:3]]
        cells += [f"{x / 2**20:.2f}" for x in figures[3:]]
        lines.append(" | ".join([f"`{recipe}`", *cells]))
    return "\n".join(f"| {line} |" for line in lines)


def main():
    argparse.ArgumentParser(prog="./dev ways", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for sample in samples(work):
            print(f"`{sample.name}`\n\n{table(measure(sample, work))}\n",
                  flush=True)


if __name__ == "__main__":
    main()
