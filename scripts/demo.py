# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level GPT in fp32 and in FP8 on the same data, prints the
validation losses side by side, and checks the exported model in stock
onnxruntime. The last line is JSON. With --ranks N, each run has N processes
that divide the parameters. Usage: ./dev demo [--steps N] [--ranks N]"""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import draw_losses
import numpy
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = os.environ.get("ONNX_FP8_BIN", str(ROOT / "build/release/onnx-fp8"))
SAMPLE = ROOT / "samples/gpt_tiny"
MODEL = SAMPLE / "gpt_tiny.onnx"
SEQ = 128
BATCH = 16
RECIPES = {"fp32": "off", "tensorwise": "tensorwise", "delayed": "delayed"}
WITH_BF16 = ("avx512bf16", "amx")
TOKENS = ["--token-dtype", "uint16", "--seq-len", str(SEQ)]


def run(*words, ranks=1):
    """Runs the program, whose progress goes to the terminal. Returns its
    output."""
    command = [BIN, *map(str, words)]
    if ranks > 1:
        launcher = shutil.which("mpirun.mpich") or "mpirun"
        command = [launcher, "-n", str(ranks), *command, "--mesh",
                   f"dp={ranks}", "--shard", "parameters", "--threads",
                   str(max(1, len(os.sched_getaffinity(0)) // ranks))]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed, _ = child.communicate()
    if child.returncode != 0:
        sys.exit(f"demo: onnx-fp8 {words[0]} ended with exit code "
                 f"{child.returncode}")
    return printed


def bigram_entropy(tokens):
    """H(next | previous) of the text's own pair counts, nats per byte."""
    pairs = numpy.zeros((256, 256))
    numpy.add.at(pairs, (tokens[:-1], tokens[1:]), 1)
    rows = pairs.sum(1, keepdims=True)
    p = pairs / pairs.sum()
    with numpy.errstate(divide="ignore", invalid="ignore"):
        terms = numpy.where(pairs > 0, p * numpy.log(pairs / rows), 0)
    return -terms.sum()


def train(name, recipe, steps, ranks, work):
    """One run; returns validation losses by step, tokens/s, peak bytes."""
    out = work / name
    printed = run(
        "train", MODEL, "--data", work / "train.bin", "--val-data",
        work / "val.bin", "--val-every", max(steps // 5, 1), *TOKENS,
        "--batch-size", BATCH, "--steps", steps, "--loss", "cross_entropy",
        "--optimizer", "adamw", "--lr", "5e-3", "--schedule",
        f"cosine:warmup={max(steps // 10, 1)}", "--clip-norm", 1, "--seed", 1,
        "--recipe", recipe, "--out", out, "--json", ranks=ranks)
    peak = json.loads(printed)["peak_bytes"]
    losses, speeds = {}, []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "val_loss" in entry:
            losses[entry["step"]] = entry["val_loss"]
        elif "tokens_per_second" in entry:
            speeds.append(entry["tokens_per_second"])
    return losses, sorted(speeds)[len(speeds) // 2], peak


def ort_loss(model, tokens):
    """Validation loss of an exported file in stock onnxruntime."""
    session = onnxruntime.InferenceSession(
        str(model), providers=["CPUExecutionProvider"])
    windows = (len(tokens) - 1) // SEQ
    total = 0.0
    for first in range(0, windows, BATCH):
        count = min(BATCH, windows - first)
        x = numpy.stack([tokens[i * SEQ:i * SEQ + SEQ]
                         for i in range(first, first + count)])
        y = numpy.stack([tokens[i * SEQ + 1:i * SEQ + SEQ + 1]
                         for i in range(first, first + count)])
        logits = session.run(["logits"], {"input_ids": x})[0].astype("float64")
        top = logits.max(-1, keepdims=True)
        norm = numpy.log(numpy.exp(logits - top).sum(-1)) + top[..., 0]
        picked = numpy.take_along_axis(logits, y[..., None], -1)[..., 0]
        total += (norm - picked).sum()
    return total / (windows * SEQ)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    steps = options.steps
    work = ROOT / "build/demo"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    subprocess.run([sys.executable, SAMPLE / "prepare.py", work], check=True)
    tokens = numpy.fromfile(work / "val.bin", "<u2").astype(numpy.int64)
    bigram = bigram_entropy(tokens)

    results = {}
    for name, recipe in RECIPES.items():
        print(f"\n== {name}: {steps} steps of {BATCH} x {SEQ} bytes",
              flush=True)
        results[name] = train(name, recipe, steps, options.ranks, work)

    print("\nvalidation loss, nats per byte "
          f"(bigram entropy of that text: {bigram:.4f})")
    print("  step" + "".join(f"{name:>14}" for name in results))
    for step in results["fp32"][0]:
        row = "".join(f"{results[name][0][step]:14.4f}" for name in results)
        print(f"{step:6d}{row}")
    print(" tok/s" + "".join(f"{r[1]:14.0f}" for r in results.values()))
    print("   MiB" + "".join(f"{r[2] / 2**20:14.0f}" for r in results.values()))

    trained = work / "trained.onnx"
    run("export", work / "tensorwise", "-o", trained)
    printed = run("eval", trained, "--data", work / "val.bin", *TOKENS,
                  "--batch-size", BATCH, "--loss", "cross_entropy", "--json")
    ours = json.loads(printed)["loss"]
    difference = ort_loss(trained, tokens) - ours
    print(f"\nFP8-trained model, exported, in stock onnxruntime: loss differs "
          f"by {difference:.1e} from eval's {ours:.4f}")
    isa = json.loads(run("version", "--json"))["isa"]
    if isa not in WITH_BF16:
        print(f"\nThis CPU ({isa}) has no BF16 instructions: FP8 saves memory "
              "here, and no time.")
    curves = {name: work / name / "metrics.jsonl" for name in RECIPES}
    draw_losses.draw(curves, work / "losses.svg")
    print(f"\nThe validation losses are drawn in {work / 'losses.svg'}")
    last = {name: r[0][max(r[0])] for name, r in results.items()}
    if not all(math.isfinite(x) for x in last.values()):
        sys.exit("demo: a loss is not finite")
    print(json.dumps({
        **{name: round(x, 6) for name, x in last.items()},
        "ort_loss_diff": difference,
        "tokens_per_second": {n: round(r[1]) for n, r in results.items()},
        "peak_bytes": {n: r[2] for n, r in results.items()},
    }))


if __name__ == "__main__":
    main()
