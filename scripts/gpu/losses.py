# SPDX-License-Identifier: Apache-2.0
"""Loss curves of small models on the GPU beside the CPU: the same files, data
and settings, so that the curves differ by the order of sums only."""
import array
import concurrent.futures
import json
import lzma
import math
import os
import pathlib
import tempfile

from gpu import report, runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPES = ("off", "tensorwise", "delayed", "rowwise")
DTYPES = ("float32", "bfloat16")
# Between two losses of a step. Tiny models amplify the rounding of FP8.
MOST_DIFFERENCE = 0.05


class Model:
    def __init__(self, name, file, tokens, seq, batch):
        self.name, self.file = name, ROOT / file
        self.tokens, self.seq, self.batch = tokens, seq, batch


MODELS = (Model("GPT", "samples/gpt_tiny/gpt_tiny.onnx", 256, 128, 16),
          Model("LLaMA", "tests/fixtures/llama/d18.onnx", 61, 16, 16))


def write_numbers(path, numbers):
    path.write_bytes(array.array("H", numbers).tobytes())


def write_tokens(path, below):
    """A novel by the byte, modulo the vocabulary."""
    with lzma.open(ROOT / "samples/gpt_tiny/austen.txt.xz") as file:
        write_numbers(path, (byte % below for byte in file.read(2**18)))


def command(binary, provider, model, recipe, dtype, steps, data, out):
    return [binary, "train", model.file, "--provider", provider, "--data", data,
            "--token-dtype", "uint16", "--seq-len", model.seq, "--batch-size",
            model.batch, "--steps", steps, "--no-shuffle", "--loss",
            "cross_entropy", "--optimizer", "adamw", "--lr", "1e-3", "--recipe",
            recipe, "--dtype", dtype, "--threads", 2, "--out", out]


def losses(folder):
    """By step, as far as the run came."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [entry["loss"] for entry in map(json.loads, lines)
            if "loss" in entry]


def difference(ours, theirs):
    """The largest one of a step, as a share of the CPU's loss."""
    if not all(map(math.isfinite, ours + theirs)):
        return math.inf
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def curves(section, binary, provider, steps, cases):
    """[(case, (run, losses) of the provider, the same of the CPU)]. The CPU's
    runs are several at a time, the provider's one after the other beside them.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for model in MODELS:
            write_tokens(folder / f"{model.name}.bin", model.tokens)

        def train(side, where, case):
            out = folder / "-".join((side, case[0].name, *case[1:]))
            if section.left() < 1:
                return runs.Done(0, "", cut=True), []
            words = command(binary, where, *case, steps,
                            folder / f"{case[0].name}.bin", out)
            return runs.run(words, section.left()), losses(out)

        workers = max(1, len(os.sched_getaffinity(0)) // 2)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            truth = [pool.submit(train, "truth", "cpu", c) for c in cases]
            ours = [train("ours", provider, c) for c in cases]
            truth = [future.result() for future in truth]
    return list(zip(cases, ours, truth))


def measure(section, binary, provider, steps, cases):
    """Figures by case: an earlier call's if its curves are whole."""
    found = {(f["model"], f["recipe"], f["dtype"]): f
             for f in section.before.get("curves", [])}

    def is_whole(case):
        name = (case[0].name, *case[1:])
        return name in found and len(found[name]["losses"]) == steps == len(
            found[name]["cpu_losses"])

    missing = [case for case in cases if not is_whole(case)]
    for case, (run, ours), (other, truth) in curves(section, binary, provider,
                                                    steps, missing):
        model, recipe, dtype = case
        both = min(len(ours), len(truth))
        name = f"{model.name}, {dtype}, {recipe}"
        for done in (run, other):
            if done.failed:
                section.fail(f"{name}: {done.tail(3)}")
        if both < steps and not run.failed and not other.failed:
            section.cut(f"{name} after {both} steps")
        if both:
            apart = difference(ours[:both], truth[:both])
            found[model.name, recipe, dtype] = {
                "model": model.name, "dtype": dtype, "recipe": recipe,
                "losses": ours, "cpu_losses": truth,
                "difference": apart if math.isfinite(apart) else None}
    return list(found.values())


def check(section, binary, provider, quick):
    steps = 3 if quick else 50
    recipes = ("tensorwise",) if quick else RECIPES
    cases = [(model, recipe, dtype) for model in MODELS for dtype in DTYPES
             for recipe in recipes]
    rows = []
    section.data["curves"] = measure(section, binary, provider, steps, cases)
    for figures in section.data["curves"]:
        name = ", ".join(figures[key] for key in ("model", "dtype", "recipe"))
        ours, truth = figures["losses"], figures["cpu_losses"]
        both, apart = min(len(ours), len(truth)), figures["difference"]
        apart = math.inf if apart is None else apart
        if not apart <= MOST_DIFFERENCE:
            section.fail(f"{name}: losses differ by {apart:.3g}")
        rows.append([name, both, f"{ours[0]:.4f}", f"{ours[both - 1]:.4f}",
                     f"{truth[both - 1]:.4f}", f"{apart:.2g}"])
    section.add(report.table(["model", "steps", f"first loss ({provider})",
                              f"last loss ({provider})", "last loss (cpu)",
                              "largest relative difference"], rows))
