# SPDX-License-Identifier: Apache-2.0
"""Runs ONNX files that others published, beside stock onnxruntime, and trains them.

usage: ./dev wild [PATH...]

Without a path: every .onnx file of the packages in scripts/requirements-wild.txt; the table goes to
docs/results/wild.md. With paths, files or folders of your own: the table is printed only.

Each file is inspected, run on seeded inputs (floats in 0…1, or 2 × 2 blocks of ±1 where those excite no output; integers
in 0…255; open axes get sizes that onnxruntime accepts) and, if it has parameters, trained for ten steps by AdamW on that batch: mse against its own outputs, moved by
seeded noise of their spread (an output of one number is the loss itself). It passes if outputs differ by at most 1e-4 of the largest and the loss falls."""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/results/wild.md"
BIN = os.environ["ONNX_FP8_BIN"]
BOUND = 1e-4
STEPS = 10
RATES = (1e-4, 1e-6, 1e-7)
# Sizes that open axes are given, in this order; the first of a shape is 1.
SIZES = (128, 96, 512, 48, 1)
# An output below this says little: sigmoids are computed to about 1e-8.
SMALL = 1e-2
# What an input must be for the file to do its work.
VALUES = {"sr": 16000}
SECONDS = 900
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
         "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
HEADINGS = ["file", "MB", "opset", "inputs", "largest difference", "trained", "loss", "lr"]

onnxruntime.set_default_logger_severity(4)


class Failed(Exception):
    pass


def program(*arguments):
    try:
        done = subprocess.run([BIN, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{arguments[0]}: no end after {SECONDS} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("onnx-fp8:")] or done.stderr.splitlines()
        raise Failed(f"{arguments[0]}: {lines[0] if lines else f'exit code {done.returncode}'}")
    return done.stdout


def uniform(rng, shape):
    return rng.uniform(size=shape)


def blocks(rng, shape):
    """±1 in squares of two by two, grey, as strokes of writing are."""
    plane = list(shape[-2:])
    x = rng.choice([-1.0, 1.0], size=[-(-size // 2) for size in plane])
    for axis, size in enumerate(plane):
        x = np.repeat(x, 2, axis).take(range(size), axis)
    return np.broadcast_to(x, shape)


def array(info, sizes, rng, draw, below):
    shape = [size if isinstance(size, int) else sizes[(info.name, axis) if size is None else size]
             for axis, size in enumerate(info.shape)]
    dtype = TYPES.get(info.type)
    if dtype is None:
        raise Failed(f"input {info.name} is a {info.type}")
    if info.name in VALUES:
        return np.full(shape, VALUES[info.name], dtype)
    if np.issubdtype(dtype, np.floating):
        return draw(rng, shape).astype(dtype)
    return rng.integers(0, 2 if dtype == np.bool_ else below, shape).astype(dtype)


def open_axes(inputs):
    """Symbols, and the axes without one; those that are first somewhere are true."""
    axes = {}
    for info in inputs:
        for axis, size in enumerate(info.shape):
            if isinstance(size, int):
                continue
            key = (info.name, axis) if size is None else size
            axes[key] = axes.get(key, False) or axis == 0
    return axes


def feeds_and_outputs(path):
    """Inputs that onnxruntime accepts, and what it makes of them."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    axes = open_axes(session.get_inputs())
    error, best = None, (-1.0, None, None)
    draws = [(uniform, 0), *[(blocks, seed) for seed in range(16)]]
    for below, (draw, seed) in itertools.product((256, 2), draws):
        for choice in itertools.product(*[(1,) if first else SIZES for first in axes.values()]):
            rng = np.random.default_rng(seed)
            sizes = dict(zip(axes, choice))
            feeds = {info.name: array(info, sizes, rng, draw, below) for info in session.get_inputs()}
            try:
                outputs = {o.name: y for o, y in zip(session.get_outputs(), session.run(None, feeds))}
            except Exception as refusal:
                error = refusal
                continue
            largest = max((float(np.abs(y).max()) for y in outputs.values() if y.size), default=0.0)
            if best[1] is None or largest > best[0]:
                best = largest, feeds, outputs
            break
        if best[0] >= SMALL:
            break
    if best[1]:
        return best[1:]
    raise Failed(f"onnxruntime takes no sizes that were tried: {str(error).splitlines()[0]}")


def largest_difference(folder, path, feeds, expected):
    np.savez(folder / "x.npz", **feeds)
    program("run", path, "--data", folder / "x.npz", "-o", folder / "y.npz")
    got = np.load(folder / "y.npz")
    worst = 0.0
    for name, array in expected.items():
        if got[name].shape != array.shape:
            raise Failed(f"run: output {name} has shape {got[name].shape}, onnxruntime's {array.shape}")
        a, b = got[name].astype(np.float64), array.astype(np.float64)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            raise Failed(f"run: output {name} is not finite in other places than onnxruntime's")
        finite = np.isfinite(b)
        if finite.any():
            worst = max(worst, float(np.abs(a - b)[finite].max() / max(np.abs(b[finite]).max(), 1e-30)))
    return worst


def train(folder, path, feeds, expected):
    """First and last loss, and the largest rate of RATES at which it falls."""
    name, y = next(((n, y) for n, y in expected.items() if y.dtype == np.float32 and y.size), (None, None))
    if name is None:
        raise Failed("train: no output of float to compare")
    noise = np.random.default_rng(1).normal(size=y.shape) * max(float(y.std()), 1e-2)
    labels = {"labels": (y + noise).astype(np.float32)} if y.ndim else {}
    np.savez(folder / "t.npz", **feeds, **labels)
    samples = next((x.shape[0] for x in feeds.values() if x.ndim), 1)
    whole = [n for n, x in {**feeds, **labels}.items() if x.ndim == 0 or x.shape[0] != samples]
    flags = ["--whole", ",".join(whole)] if whole else []
    # A number of rank 0 is a loss itself.
    flags += ["--loss", "mse", "--logits", name] if y.ndim else ["--loss", f"output:{name}"]
    for rate in RATES:
        out = folder / f"run{rate}"
        program("train", path, "--data", folder / "t.npz", "--steps", STEPS, "--batch-size", samples,
                "--lr", rate, "--out", out, *flags)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        if losses[-1] < losses[0]:
            return losses[0], losses[-1], rate
    raise Failed(f"train: the loss does not fall: {losses[0]:.6g} to {losses[-1]:.6g}")


def try_file(path, row):
    """Fills the row as far as it gets."""
    row["MB"] = f"{path.stat().st_size / 1e6:.1f}"
    imports = onnx.load(path, load_external_data=False).opset_import
    row["opset"] = str(next((i.version for i in imports if i.domain in ("", "ai.onnx")), "?"))
    feeds, expected = feeds_and_outputs(path)
    row["inputs"] = ", ".join(f"{name} {'×'.join(map(str, x.shape)) or 'scalar'}" for name, x in feeds.items())
    initializers = json.loads(program("inspect", path, "--json"))["initializers"]
    trained = [i for i in initializers if i["role"] == "trained"]
    row["trained"] = f"{len(trained)} of {len(initializers)}"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        difference = largest_difference(folder, path, feeds, expected)
        row["largest difference"] = f"{difference:.1e}"
        if trained:
            first, last, rate = train(folder, path, feeds, expected)
            row["loss"], row["lr"] = f"{first:.4g} → {last:.4g}", f"{rate:g}"
        if difference > BOUND:
            raise Failed(f"run: outputs differ by {difference:.1e} of the largest")


def files_of(arguments):
    for argument in map(pathlib.Path, arguments):
        yield from sorted(argument.rglob("*.onnx")) if argument.is_dir() else [argument]


def table(rows):
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    return lines + ["| " + " | ".join(row.get(heading, "") for heading in HEADINGS) + " |" for row in rows]


def main():
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    packages = pathlib.Path(os.environ["ONNX_FP8_WILD_PACKAGES"])
    files = list(files_of(sys.argv[1:] or [packages]))
    rows, failures = [], []
    for number, path in enumerate(files, 1):
        short = str(path.relative_to(packages) if path.is_relative_to(packages) else path)
        row, start = {"file": short}, time.monotonic()
        try:
            try_file(path, row)
            said = "; ".join(f"{key} {row[key]}" for key in HEADINGS[4:] if key in row)
        except Exception as error:
            said = (str(error).splitlines() or [type(error).__name__])[0].replace(str(packages) + "/", "")
            failures.append(f"- `{short}`: {said}")
            said = "FAILED: " + said
        rows.append(row)
        print(f"[{number}/{len(files)}] {short} ({time.monotonic() - start:.0f} s): {said}", flush=True)
    lines = table(rows) + ["", f"{len(files) - len(failures)} of {len(files)} files pass."]
    if failures:
        lines += ["", "Failures:", "", *failures]
    print("\n" + "\n".join(lines))
    if not sys.argv[1:]:
        packages_used = [line.strip() for line in (ROOT / "scripts/requirements-wild.txt").open() if "==" in line]
        head = ["# Published files", "", "What `./dev wild` measured, beside onnxruntime " + onnxruntime.__version__ +
                ", on the files of " + ", ".join(packages_used) + ". A difference is divided by the largest output; "
                "the loss is that of the first and the last of ten steps.", ""]
        TABLE.write_text("\n".join(head + lines) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
