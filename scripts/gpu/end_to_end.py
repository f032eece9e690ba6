# SPDX-License-Identifier: Apache-2.0
"""Whole training steps beside PyTorch with torch.compile and torchao: the
benchmark's GPT with GPT-2's sizes and 16 sequences of 1024 tokens. Without
PyTorch it is the sample GPT, and there are no peers."""
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from gpu import losses, report, runs

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
# Our runs: a recipe, then one flag at most. The most telling runs come first.
OURS = (("off",), ("tensorwise",), ("tensorwise", "--tune"),
        ("tensorwise", "--nondeterministic"),
        ("tensorwise", "--loss-chunk", "0"), ("delayed",), ("rowwise",),
        ("blockwise",))
OF_CUDA = {"--tune", "--nondeterministic"}  # flags of this provider
FIRST = "onnx-fp8, off"
PEERS = ("bfloat16", "tensorwise", "rowwise")  # compiling takes them minutes
SIZE = "gpt2_b16"
SHAPE = {"vocabulary": 50304, "batch": 16, "seq": 1024}
# Small enough for curves that can be compared. With 1e-3 from the first step
# on, a run whose weights differ by 1e-4 of themselves leaves the others' curve.
LR = "1e-4"
MOST_APART = 0.1  # losses without FP8, here and in PyTorch
WARM_UP = 5
STEPS = 20


def imports(module):
    done = runs.run([sys.executable, "-c", f"import {module}"], 60)
    return done.code == 0


class GpuMemory:
    """The most memory of the GPU that was in use, of all programs, as its
    driver counts it; None without nvidia-smi."""

    def __enter__(self):
        self.peak_bytes = None
        self._file = tempfile.TemporaryFile("w+")
        try:
            self._process = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=memory.used", "-lms", "100",
                 "--format=csv,noheader,nounits"], stdout=self._file,
                stderr=subprocess.DEVNULL)
        except OSError:
            self._process = None
        return self

    def __exit__(self, *_):
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._file.seek(0)
            counts = [int(line) for line in self._file.read().split()
                      if line.isdigit()]
            if counts:
                self.peak_bytes = max(counts) * 2**20
        self._file.close()


class Task:
    """The model's file, its data, and how many tokens a step has."""

    def __init__(self, folder, section, quick):
        self.folder, self.steps = folder, 3 if quick else STEPS
        self.torch = not quick and imports("torch")
        self.tokens = folder / "tokens.bin"
        if self.torch:
            self._export(section)
        else:
            model = losses.MODELS[0]
            self.name, self.file = "the sample GPT", model.file
            self.batch, self.seq = model.batch, model.seq
            losses.write_tokens(self.tokens, model.tokens)

    def _export(self, section):
        self.name = "GPT-2 (124 M parameters)"
        self.file = self.folder / "gpt.onnx"
        self.batch, self.seq = SHAPE["batch"], SHAPE["seq"]
        done = peer(["export", self.file], section.left() / 2)
        if done.cut:
            raise report.OutOfTime("PyTorch's export of the model")
        if not self.file.exists():
            raise RuntimeError(f"no model: {done.tail(3)}")
        draw = random.Random(0)
        count = self.batch * self.seq * 4 + 1
        numbers = [draw.randrange(SHAPE["vocabulary"]) for _ in range(count)]
        losses.write_numbers(self.tokens, numbers)

    def per_step(self):
        return self.batch * self.seq


def peer(arguments, seconds, size=SIZE):
    environment = {**os.environ, "ONNX_FP8_BENCH_SIZE": size}
    return runs.run([sys.executable, "gpu_peers.py", *arguments],
                    max(1, seconds), cwd=SCRIPTS, env=environment)


def summary(done):
    """The JSON object that the program prints last, or {}."""
    begin = done.out.rfind("\n{") + 1
    try:
        return json.JSONDecoder().raw_decode(done.out[begin:])[0]
    except ValueError:
        return {}


def ours(task, binary, provider, recipe, seconds, *flags):
    """(run, figures)"""
    out = pathlib.Path(tempfile.mkdtemp(dir=task.folder)) / "run"
    with GpuMemory() as memory:
        done = runs.run(
            [binary, "train", task.file, "--provider", provider, "--data",
             task.tokens, "--token-dtype", "uint16", "--seq-len", task.seq,
             "--batch-size", task.batch, "--no-shuffle", "--loss",
             "cross_entropy", "--optimizer", "adamw", "--lr", LR,
             "--weight-decay", "0.01",
             "--recipe", recipe, "--dtype", "bfloat16", "--steps",
             WARM_UP + task.steps, "--out", out, "--json", *flags],
            max(1, seconds))
    metrics = out / "metrics.jsonl"
    if done.code or not metrics.exists():
        return done, None
    entries = [json.loads(line) for line in metrics.read_text().splitlines()]
    speeds = [e["tokens_per_second"] for e in entries
              if "tokens_per_second" in e][WARM_UP:]
    printed = summary(done)
    return done, {
        "milliseconds": 1e3 * task.per_step() / statistics.median(speeds),
        "losses": [math.nan if e["loss"] is None else e["loss"]
                   for e in entries],
        "arena_bytes": printed.get("arena_bytes"),
        "state_bytes": printed.get("state_bytes"),
        "gpu_bytes": memory.peak_bytes}


def theirs(task, name, seconds, size=SIZE, model="gpt"):
    with GpuMemory() as memory:
        done = peer(["--model", model, "train", name, task.tokens, task.steps,
                     "--lr", LR], seconds, size)
    lines = [line for line in done.out.splitlines() if line.startswith("{")]
    if done.code or not lines:
        return done, None
    return done, {**json.loads(lines[-1]), "gpu_bytes": memory.peak_bytes}


def measure(section, rows, name, run):
    """Adds the row that run() measures, unless an earlier call did."""
    if name in rows:
        return
    done, figures = run()
    if done.cut:
        section.cut(name)
    elif figures is None:
        section.fail(f"{name}: {done.tail(3)}")
    else:
        rows[name] = figures


def check(section, task, binary, provider, quick, predicted):
    rows = dict(section.before.get("rows", {}))
    for way in OURS[:2] if quick else OURS:
        name = f"onnx-fp8, {' '.join(way)}"
        if provider == "cuda" or not OF_CUDA & set(way):
            measure(section, rows, name, lambda: ours(
                task, binary, provider, way[0], section.left(), *way[1:]))
    section.data["again"] = section.before.get("again") or run_again(
        section, rows.get(FIRST), task, binary, provider)
    if not task.torch:
        section.add("PyTorch is left out: " + (
            "a quick run" if quick else "python3 can't import it"))
    elif provider == "cuda":
        has_torchao = imports("torchao.float8")
        if not has_torchao:
            section.add("torchao is left out: python3 can't import it")
        for name in PEERS if has_torchao else PEERS[:1]:
            measure(section, rows, f"PyTorch, {name}",
                    lambda: theirs(task, name, section.left()))
    section.data.update(model=task.name, tokens=task.per_step(), rows=rows)
    compare_losses(section, rows)
    section.add(f"Steps of {task.name} with {task.per_step()} tokens, "
                "bfloat16 but for FP8, on the same data. GPU memory is what "
                "its driver counts, with CUDA's own. The last column "
                "compares each step's loss with PyTorch's in bfloat16, or "
                "else with `off`.")
    section.add(report.table(
        ["program", "ms per step", "predicted", "tokens per second", "GPU MiB",
         "first loss", "last loss", "largest difference"],
        [line(name, row, task, reference(rows), predicted)
         for name, row in rows.items()]))


def run_again(section, figures, task, binary, provider):
    """Returns whether a second run gives the same losses, to the last digit. If
    it does not, the section fails."""
    if figures is None:
        return False
    done, again = ours(task, binary, provider, OURS[0][0], section.left())
    same = again is not None and \
        repr(again["losses"]) == repr(figures["losses"])  # NaN is NaN
    if done.cut:
        section.cut(f"{FIRST}, again")
    elif again is None:
        section.fail(f"{FIRST}, again: {done.tail(3)}")
    elif not same:
        section.fail(f"{FIRST}: expected the same losses in a second run, got "
                     f"{again['losses']} after {figures['losses']}")
    return same


def compare_losses(section, rows):
    if FIRST not in rows or "PyTorch, bfloat16" not in rows:
        return
    apart = difference(rows[FIRST], rows["PyTorch, bfloat16"])
    if apart > MOST_APART:
        section.fail(f"{FIRST}: expected losses within {MOST_APART} of "
                     f"PyTorch's, got {apart:.4f}")


def reference(rows):
    """The row whose losses the others are compared with."""
    return rows.get("PyTorch, bfloat16", rows.get(FIRST))


def difference(row, other):
    """The largest one of a step; infinite if a loss is not finite."""
    apart = [abs(a - b) for a, b in zip(row["losses"], other["losses"])]
    return max(apart) if all(map(math.isfinite, apart)) else math.inf


def line(name, row, task, other, predicted):
    memory, losses = row["gpu_bytes"], row["losses"]
    return [name, f"{row['milliseconds']:.2f}", predicted.get(name, ""),
            f"{1e3 * task.per_step() / row['milliseconds']:.0f}",
            memory // 2**20 if memory else "?", f"{losses[0]:.4f}",
            f"{losses[-1]:.4f}",
            f"{difference(row, other):.4f}" if other else "?"]
