# SPDX-License-Identifier: Apache-2.0
"""Whether FP8 learns what fp32 learns: every recipe on the same text, from the
same weights, on the same batches.

  ./dev bench parity [--markdown FILE] [--quick] [--only small,large]
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from bench import report
from bench.machine import environment, say

PARTS = ("small", "large")
MODELS = ("gpt", "llama")
FP32 = "off"
# The static run takes the scales at the end of the delayed run.
RECIPES = {
    "small": (FP32, "tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed",
              "static", "blockwise", "blockwise,round:p2", "mxfp8",
              "mxfp8,round:floor"),
    "large": (FP32, "tensorwise", "delayed"),
}
SIZES = {
    "small": {"LAYERS": 2, "WIDTH": 128, "HEADS": 4, "KV_HEADS": 2,
              "VOCABULARY": 256, "BATCH": 4, "SEQ": 128},
    "large": {"LAYERS": 4, "WIDTH": 256, "HEADS": 8, "KV_HEADS": 4,
              "VOCABULARY": 256, "BATCH": 8, "SEQ": 256},
}
SEEDS = {"small": (0, 1, 2), "large": (0,)}
STEPS = 300
HELD_OUT = 65536  # bytes of text for validation
LARGEST_RISE = 0.01  # in addition to the spread of the fp32 seeds
TRAIN = ["--token-dtype", "uint16", "--loss", "cross_entropy", "--optimizer",
         "adamw", "--lr", "3e-3", "--weight-decay", "0.01", "--clip-norm", "1"]


def arguments(words, names):
    parser = argparse.ArgumentParser(
        prog="./dev bench parity", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--markdown", type=pathlib.Path, help="write the tables too")
    add("--quick", action="store_true", help="few steps; losses say little")
    add("--only", type=names(PARTS), default=PARTS,
        help="some of " + ",".join(PARTS))
    return parser.parse_args(words)


class Measurement:
    def __init__(self, binary, python, scripts, work, quick):
        self.binary, self.python, self.scripts = binary, python, scripts
        self.work = work / "parity"
        self.steps = 20 if quick else STEPS
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def prepare(self, parts):
        """Text and models."""
        sample = self.scripts.parent / "samples/gpt_tiny/prepare.py"
        subprocess.run([sys.executable, sample, self.work], check=True,
                       stdout=subprocess.DEVNULL)
        held_out = self.work / "val.bin"
        held_out.write_bytes(held_out.read_bytes()[:2 * HELD_OUT])
        wanted = [{"model": model, "seed": seed, "sizes": SIZES[part],
                   "path": str(self.model(part, model, seed))}
                  for part in parts for model in MODELS
                  for seed in SEEDS[part]]
        say(f"exporting {len(wanted)} models")
        with open(self.work / "export.log", "w") as log:
            subprocess.run([self.python, "-B", "-m", "bench.torch_seeds",
                            json.dumps(wanted)], cwd=self.scripts, check=True,
                           env=environment(), stdout=log, stderr=log)

    def model(self, part, model, seed):
        return self.work / f"{part}_{model}_{seed}.onnx"

    def train(self, part, model, seed, recipe):
        """Validation loss and tokens/s of one run."""
        folder = self.work / f"{part}_{model}_{seed}_{recipe}"
        more = []
        if recipe == "static":
            more = ["--scales", self.work / f"{part}_{model}_{seed}_delayed"]
        done = subprocess.run(
            [self.binary, "train", self.model(part, model, seed), "--data",
             self.work / "train.bin", "--val-data", self.work / "val.bin",
             *TRAIN, "--steps", str(self.steps), "--schedule",
             f"cosine:warmup={self.steps // 10}", "--seed", str(seed),
             "--recipe", recipe, *more, "--out", folder, "--json"],
            env=environment(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"bench: {recipe}: {done.stderr.strip()}")
        summary = json.loads(done.stdout)
        entries = [json.loads(line) for line in
                   (folder / "metrics.jsonl").read_text().splitlines()]
        speed = statistics.median(e["tokens_per_second"] for e in entries
                                  if "tokens_per_second" in e)
        return {"loss": summary["val_loss"], "tokens_per_second": speed,
                "skipped": summary["skipped_steps"]}

    def part(self, part):
        """{model: {recipe: [result of each seed]}}"""
        results = {}
        for model in MODELS:
            results[model] = {recipe: [] for recipe in RECIPES[part]}
            for seed in SEEDS[part]:
                for recipe in RECIPES[part]:
                    result = self.train(part, model, seed, recipe)
                    results[model][recipe].append(result)
                    say(f"{part} {model}, seed {seed}, {recipe}: validation "
                        f"loss {result['loss']:.4f}")
        return results


def measure(chosen, binary, python, scripts, work):
    begin = time.monotonic()
    m = Measurement(binary, python, scripts, work, chosen.quick)
    m.prepare(chosen.only)
    results = {part: m.part(part) for part in chosen.only}
    return {"parts": results, "steps": m.steps,
            "seconds": time.monotonic() - begin}


def judge(results):
    """For each recipe its mean loss, the difference from fp32's, and whether
    that is within the spread of the fp32 seeds plus LARGEST_RISE."""
    losses = {recipe: [r["loss"] for r in runs]
              for recipe, runs in results.items()}
    fp32 = losses[FP32]
    mean = statistics.mean(fp32)
    allowed = max(fp32) - min(fp32) + LARGEST_RISE * mean
    judged = {}
    for recipe, values in losses.items():
        difference = statistics.mean(values) - mean
        judged[recipe] = {"difference": difference / mean,
                          "within": abs(difference) <= allowed}
    return judged, allowed / mean


def outside(result):
    """The recipes that are not within, for the exit code."""
    return [f"{part} {model}: {recipe} is {100 * j['difference']:+.1f} % off"
            for part, models in result["parts"].items()
            for model, runs in models.items()
            for recipe, j in judge(runs)[0].items() if not j["within"]]


def _rows(results):
    judged, _ = judge(results)
    # Turn by turn, so that a slow minute of the machine affects all recipes.
    speeds = {recipe: statistics.median(
        mine["tokens_per_second"] / theirs["tokens_per_second"]
        for mine, theirs in zip(runs, results[FP32]))
        for recipe, runs in results.items()}
    for recipe, runs in results.items():
        skipped = sum(r["skipped"] for r in runs)
        yield [recipe if recipe != FP32 else "off (fp32)",
               *(f"{r['loss']:.4f}" for r in runs),
               f"{statistics.mean(r['loss'] for r in runs):.4f}",
               f"{100 * judged[recipe]['difference']:+.2f} %",
               "yes" if judged[recipe]["within"] else "**no**",
               f"{speeds[recipe]:.2f}", str(skipped)]


def markdown(result):
    machine = result["machine"]
    text = (f"# Loss parity: {machine['isa']}\n\n"
            f"- {machine['cpu']}; commit {result['commit']}; "
            f"{result['date']}\n"
            f"- {result['steps']} steps of AdamW on English text, bytes as "
            "tokens; validation loss in nats per byte on "
            f"{HELD_OUT // 1024} KiB of held-out text\n"
            f"- took {result['seconds'] / 60:.0f} min\n\n")
    for part, models in result["parts"].items():
        s = SIZES[part]
        for model, runs in models.items():
            _, allowed = judge(runs)
            text += (f"## {model}, {s['LAYERS']} layers, width {s['WIDTH']}, "
                     f"{s['BATCH']} x {s['SEQ']} tokens\n\n"
                     "Within: the mean is off by less than the fp32 seeds' "
                     f"spread and 1 %, together {100 * allowed:.1f} %.\n\n")
            seeds = [f"seed {seed}" for seed in SEEDS[part]]
            text += report.table(
                ["", *seeds, "mean", "against fp32", "within",
                 "tokens/s ÷ fp32's", "skipped steps"],
                list(_rows(runs))) + "\n"
    return text
