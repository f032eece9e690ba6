# SPDX-License-Identifier: Apache-2.0
"""Runs ONNX files that others published, beside stock onnxruntime, and trains them.

usage: ./dev wild [PATH...]

Without a path: every .onnx file of the packages in scripts/requirements-wild.txt; the table goes to
docs/results/wild.md. With paths, files or folders of your own: the table is printed only.

Each file is inspected, run on seeded inputs (floats uniform in 0…1, integers in 0…255; open axes get sizes that
onnxruntime accepts) and, if it holds float weights, trained for ten steps by AdamW on that batch: mse against its own
outputs, moved by seeded noise of their spread (an output of one number is the loss itself). If all outputs are below
0.01, float inputs are squares of ±1 in training, like strokes of writing: then a sigmoid has a gradient.

It passes if outputs differ by at most 1e-4 of the largest and the loss falls. If they differ by more, it passes if
roundings of the inputs move onnxruntime's outputs by as much (codes of a quantization flip), or if onnx.reference in
float64 is no farther from ours than from onnxruntime's. A file that holds float weights and trains none of them fails."""
import collections
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
import onnx.reference.ops.op_resize
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/results/wild.md"
BIN = os.environ["ONNX_FP8_BIN"]
BOUND = 1e-4
STEPS = 10
RATES = (1e-4, 1e-6, 1e-7)
# Sizes to try for open axes, in this order; the first axis of a shape gets 1.
SIZES = (128, 96, 512, 48, 1)
# Values that inputs must have for the file to do its work.
VALUES = {"sr": 16000}
# If all outputs are below this, the input excites none.
SMALL = 1e-2
SECONDS = 900
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
         "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
HEADINGS = ["file", "MB", "opset", "inputs", "difference", "numbers trained", "loss", "lr"]

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


# ---- inputs -----------------------------------------------------------------

def axis_keys(info):
    """For each axis its size, or a key that gets a size: the symbol, or the place of the axis if it has none."""
    return [f"{info.name}.{axis}" if size is None else size for axis, size in enumerate(info.shape)]


def blocks(rng, shape):
    """±1 in squares of two by two, gray, like strokes of writing."""
    plane = list(shape[-2:])
    x = rng.choice([-1.0, 1.0], size=[-(-size // 2) for size in plane])
    for axis, size in enumerate(plane):
        x = np.repeat(x, 2, axis).take(range(size), axis)
    return np.broadcast_to(x, shape)


def array(info, sizes, rng, below):
    shape = [sizes.get(key, key) for key in axis_keys(info)]
    dtype = TYPES.get(info.type)
    if dtype is None:
        raise Failed(f"input {info.name} is a {info.type}")
    if info.name in VALUES:
        return np.full(shape, VALUES[info.name], dtype)
    if np.issubdtype(dtype, np.floating):
        return rng.uniform(size=shape).astype(dtype)
    return rng.integers(0, 2 if dtype == np.bool_ else below, shape).astype(dtype)


def open_session(path):
    """On one thread: DynamicQuantizeLSTM rounds the rows of a thread together."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feeds_and_outputs(path):
    """Inputs that onnxruntime accepts, and its outputs for them."""
    session = open_session(path)
    inputs, error = session.get_inputs(), None
    axes = {}  # whether it is the first of a shape
    for info in inputs:
        for axis, key in enumerate(axis_keys(info)):
            if isinstance(key, str):
                axes[key] = axes.get(key, False) or axis == 0
    for below in (256, 2):
        for choice in itertools.product(*[(1,) if first else SIZES for first in axes.values()]):
            rng, sizes = np.random.default_rng(0), dict(zip(axes, choice))
            feeds = {info.name: array(info, sizes, rng, below) for info in inputs}
            try:
                outputs = {o.name: y for o, y in zip(session.get_outputs(), session.run(None, feeds))}
                return feeds, outputs
            except Exception as refusal:
                error = refusal
    raise Failed(f"onnxruntime takes no sizes that were tried: {str(error).splitlines()[0]}")


def largest(outputs):
    return max((float(np.abs(y).max()) for y in outputs.values() if y.size), default=0.0)


def to_train_on(path, feeds, expected):
    """The same, or blocks if uniform floats excite no output: a sigmoid of -16 has almost no gradient."""
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    for seed in range(16):
        if largest(expected) >= SMALL:
            break
        rng = np.random.default_rng(seed)
        feeds = {name: blocks(rng, x.shape).astype(x.dtype) if x.dtype.kind == "f" and x.ndim > 1 else x
                 for name, x in feeds.items()}
        expected = dict(zip(names, session.run(None, feeds)))
    return feeds, expected


# ---- outputs ----------------------------------------------------------------

def run(folder, path, feeds):
    np.savez(folder / "x.npz", **feeds)
    program("run", path, "--data", folder / "x.npz", "-o", folder / "y.npz")
    return dict(np.load(folder / "y.npz"))


def distance(got, expected):
    """The largest difference, divided by the largest output."""
    worst = 0.0
    for name, array in expected.items():
        if got[name].shape != array.shape:
            raise Failed(f"run: output {name} has shape {got[name].shape}, not {array.shape}")
        a, b = got[name].astype(np.float64), array.astype(np.float64)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            raise Failed(f"run: output {name} is not finite in other places")
        finite = np.isfinite(b)
        if finite.any():
            worst = max(worst, float(np.abs(a - b)[finite].max() / max(np.abs(b[finite]).max(), 1e-30)))
    return worst


def float_tensors(graph):
    """The tensors that the graph and its bodies hold, without the lists of Constant nodes."""
    yield from (tensor for tensor in graph.initializer if tensor.data_type in FLOATS)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type in FLOATS:
                yield attribute.t
            if attribute.HasField("g"):
                yield from float_tensors(attribute.g)


def set_double(graph):
    for tensor in float_tensors(graph):
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for info in [*graph.input, *graph.output, *graph.value_info]:
        if info.type.tensor_type.elem_type in FLOATS:
            info.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                set_double(attribute.g)
            if node.op_type in ("Cast", "RandomNormalLike") and attribute.name in ("to", "dtype") and attribute.i in FLOATS:
                attribute.i = onnx.TensorProto.DOUBLE


class Resize(onnx.reference.ops.op_resize.Resize):
    """By whole factors: onnx.reference computes one element at a time, which takes hours."""

    def _run(self, x, roi=None, scales=None, sizes=None, **attributes):
        modes = [attributes.get(key) for key in ("mode", "coordinate_transformation_mode", "nearest_mode")]
        if scales is None or modes != ["nearest", "asymmetric", "floor"] or any(s != int(s) for s in scales):
            return super()._run(x, roi, scales, sizes, **attributes)
        for axis, scale in enumerate(scales):
            x = np.repeat(x, int(scale), axis)
        return (x,)


class BatchNormalization(OpRun):
    """Evaluation: in old opsets onnx.reference would train wherever a file gives a momentum."""

    def _run(self, x, scale, bias, mean, var, epsilon=None, **attributes):
        column = [-1] + [1] * (x.ndim - 2)
        scale = scale / np.sqrt(var + (1e-5 if epsilon is None else epsilon))
        return ((x - mean.reshape(column)) * scale.reshape(column) + bias.reshape(column),)


def in_float64(path, feeds):
    model = onnx.load(path)
    set_double(model.graph)
    wide = {name: x.astype(np.float64) if x.dtype.kind == "f" else x for name, x in feeds.items()}
    names = [output.name for output in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model, new_ops=[Resize, BatchNormalization]).run(None, wide)))


def distance_of_roundings(path, feeds, expected, seed):
    """How far onnxruntime's outputs move if float inputs move by 1e-6 of themselves, as layers of sums in another
    order do. Codes of a quantization flip where a number lies between two of them."""
    draw = np.random.default_rng(seed)
    nudged = {name: (x * (1 + 1e-6 * draw.standard_normal(x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x
              for name, x in feeds.items()}
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    return distance(dict(zip(names, session.run(None, nudged))), expected)


def compare(folder, path, feeds, expected, row):
    got = run(folder, path, feeds)
    difference = distance(got, expected)
    row["difference"] = f"{difference:.1e}"
    if difference <= BOUND:
        return
    moved = max(distance_of_roundings(path, feeds, expected, seed) for seed in range(4))
    if difference <= moved:
        row["difference"] += f"; roundings of the inputs move onnxruntime's by {moved:.1e}"
        return
    exact = in_float64(path, feeds)
    ours, theirs = distance(got, exact), distance(expected, exact)
    row["difference"] += f"; to float64 {ours:.1e}, onnxruntime's {theirs:.1e}"
    if ours > theirs:
        raise Failed(f"run: outputs differ by {row['difference']}")


# ---- training ---------------------------------------------------------------

def inspect(path, feeds):
    """The report of `inspect` on the initializers, at the inputs' sizes and values."""
    flags, sizes = [], {}
    for info in json.loads(program("inspect", path, "--json"))["inputs"]:
        for axis, (key, size) in enumerate(zip(info["shape"], feeds[info["name"]].shape)):
            if not isinstance(key, int):
                sizes[key or f"{info['name']}.{axis}"] = size
    for key, size in sizes.items():
        flags += ["--shape", f"{key}={size}"]
    for name, x in feeds.items():
        if x.size == 1 and x.dtype.kind in "ib":
            flags += ["--value", f"{name}={int(x.reshape(()))}"]
    return json.loads(program("inspect", path, *flags, "--json"))["initializers"]


def weights(path, rows, row):
    """The count of float numbers in the file, the count of trained ones, and the others by reason."""
    held = sum(int(np.prod(t.dims)) for t in float_tensors(onnx.load(path, load_external_data=False).graph) if len(t.dims))
    counts = collections.Counter()
    for entry in rows:
        moves = entry["role"] in ("trained", "tied")
        if "float" in entry["dtype"] and (entry["shape"] or moves):
            reason = "trained" if moves else entry["reason"].split(" (")[0].split(", with ")[0]
            counts[reason] += int(np.prod(entry["shape"]))
    trained = counts.pop("trained", 0)
    row["numbers trained"] = f"{trained:,} of {held:,}"
    rest = ", ".join(f"{number:,} {reason}" for reason, number in counts.most_common(3))
    if held and not trained:
        raise Failed(f"train: no weight is trained: {rest or 'inspect lists none'}")
    return trained, rest


def train(folder, path, feeds, expected):
    """First and last loss, and the largest rate of RATES at which it falls."""
    name, y = next(((n, y) for n, y in expected.items() if y.dtype.kind == "f" and y.size), (None, None))
    if name is None:
        raise Failed("train: no output of float to compare")
    noise = np.random.default_rng(1).normal(size=y.shape) * max(float(y.std()), 1e-2)
    labels = {"labels": (y + noise).astype(y.dtype)} if y.ndim else {}
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


# ---- the table --------------------------------------------------------------

def try_file(path, row, untrained):
    """Fills the row as far as it gets. Returns whether the file has weights."""
    row["MB"] = f"{path.stat().st_size / 1e6:.1f}"
    imports = onnx.load(path, load_external_data=False).opset_import
    row["opset"] = str(next((i.version for i in imports if i.domain in ("", "ai.onnx")), "?"))
    feeds, expected = feeds_and_outputs(path)
    row["inputs"] = ", ".join(f"{name} {'×'.join(map(str, x.shape)) or 'scalar'}" for name, x in feeds.items())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        compare(folder, path, feeds, expected, row)
        trained, rest = weights(path, inspect(path, feeds), row)
        if rest:
            untrained.append(f"- `{row['file']}`: {rest}")
        if trained:
            first, last, rate = train(folder, path, *to_train_on(path, feeds, expected))
            row["loss"], row["lr"] = f"{first:.4g} → {last:.4g}", f"{rate:g}"
        return trained > 0


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
    packages = pathlib.Path(os.environ.get("ONNX_FP8_WILD_PACKAGES", "."))
    files = list(files_of(sys.argv[1:] or [packages]))
    rows, failures, untrained, trains = [], [], [], 0
    for number, path in enumerate(files, 1):
        short = str(path.relative_to(packages) if path.is_relative_to(packages) else path)
        row, start = {"file": short}, time.monotonic()
        try:
            trains += try_file(path, row, untrained)
            said = "; ".join(f"{key} {row[key]}" for key in HEADINGS[4:] if key in row)
        except Exception as error:
            said = (str(error).splitlines() or [type(error).__name__])[0].replace(str(packages) + "/", "")
            failures.append(f"- `{short}`: {said}")
            said = "FAILED: " + said
        rows.append(row)
        print(f"[{number}/{len(files)}] {short} ({time.monotonic() - start:.0f} s): {said}", flush=True)
    passed = len(files) - len(failures)
    lines = table(rows) + ["", f"{passed} of {len(files)} files pass; {trains} of them have weights and train."]
    if failures:
        lines += ["", "Failures:", "", *failures]
    if untrained:
        lines += ["", "Floats that are not trained, in numbers, by the reason that `inspect` gives (the first three):", "",
                  *untrained]
    print("\n" + "\n".join(lines))
    if not sys.argv[1:]:
        packages_used = [line.strip(" \\\n") for line in (ROOT / "scripts/requirements-wild.txt").open() if "==" in line]
        head = ["# Published files", "", "What `./dev wild` measured, beside onnxruntime " + onnxruntime.__version__ +
                ", on the files of " + ", ".join(packages_used) + ". A difference is divided by the largest output; "
                "the loss is that of the first and the last of ten steps.", ""]
        TABLE.write_text("\n".join(head + lines) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
