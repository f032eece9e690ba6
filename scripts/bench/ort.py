# SPDX-License-Identifier: Apache-2.0
"""One training step in four ways, by turns: `onnx-fp8 train`; the step that
`onnx-fp8 rewrite` wrote, in a stock onnxruntime with our provider, and without it,
by the bodies of our ops; and onnxruntime-training, in fp32.

  ./dev bench ort [--json FILE] [--markdown FILE] [...]
"""
import argparse
import importlib.metadata
import os
import pathlib
import subprocess
import sys

import onnx

from bench import contest, report, task
from bench.machine import environment

TIMED = True  # figures depend on other programs
RECIPES = {"fp32": "off", "delayed": "delayed"}
GOAL = 0.9  # of the tokens/s of train


def write_step(binary, model, path, recipe):
    sizes = {}
    for value in onnx.load(model, load_external_data=False).graph.input:
        axes = value.type.tensor_type.shape.dim
        for axis, size in zip(axes, (task.BATCH, task.SEQ)):
            if axis.dim_param:
                sizes[axis.dim_param] = size
    flags = ["--shape", ",".join(f"{axis}={size}" for axis, size in sizes.items())] if sizes else []
    subprocess.run(
        [binary, "rewrite", model, "-o", path, "--loss", "cross_entropy", "--optimizer", "adamw", "--lr",
         str(task.LR), "--betas", "{},{}".format(*task.BETAS), "--eps", str(task.EPS), "--weight-decay",
         str(task.WEIGHT_DECAY), "--recipe", recipe, *flags],
        env=environment(), check=True, stdout=subprocess.DEVNULL)


def contestants(binary, python, scripts, work):
    model, tokens = work / "gpt.onnx", work / "tokens.bin"
    task.write_tokens(tokens, 32)
    subprocess.run([python, "-m", "bench.torch_export", "gpt", work], cwd=scripts, env=environment(),
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    library = pathlib.Path(binary).parent / "libonnx_fp8_ort.so"
    found = {}
    for row, recipe in RECIPES.items():
        found[f"train, {row}"] = contest.Ours(binary, model, tokens, row, work / f"run_{row}")
        step = work / f"step_{row}.onnx"
        write_step(binary, model, step, recipe)
        for who in ("ep", "bodies"):
            found[f"{who}, {row}"] = contest.Peer(
                [sys.executable, "-m", "bench.ort_step_peer", who, step, tokens, library], scripts,
                work / f"{who}_{row}.log")
    ort_python = os.environ.get("ONNX_FP8_ORT_PYTHON")
    if ort_python:
        found["onnxruntime-training, fp32"] = contest.Peer(
            [ort_python, "-m", "bench.ort_peer", work / "gpt_ort.onnx", tokens, work / "gpt_ort"],
            scripts, work / "training.log")
    return found


def measure(chosen, binary, python, scripts, work):
    work = work / "ort"
    work.mkdir(exist_ok=True)
    found = contestants(binary, python, scripts, work)
    results, left = contest.run(found, contest.orders(found, chosen.rounds, chosen.seed), chosen.steps)
    found = {"ort": results, "left_out": left, "rounds": chosen.rounds, "steps": chosen.steps,
             "seed": chosen.seed, "onnxruntime": importlib.metadata.version("onnxruntime")}
    return {**found, "of_train": shares(found)}


def of_train(result, name):
    """(The share of train's tokens/s in the same numbers, its interval)."""
    theirs, ours = result["ort"][f"train, {name.split(', ')[1]}"], result["ort"][name]
    return (ours["tokens_per_second"] / theirs["tokens_per_second"],
            report.interval(ours["seconds"], theirs["seconds"]))


def shares(result):
    """{name: of_train()}, where train is there: a file keeps no seconds of steps."""
    return {name: dict(zip(("share", "interval"), of_train(result, name)))
            for name in result["ort"] if f"train, {name.split(', ')[1]}" in result["ort"]}


def outside(result):
    """The goals that are not reached, for the exit code."""
    complaints = [f"{name} is left out: {why}" for name, why in result["left_out"].items()]
    for name, figures in result["ort"].items():
        if not name.startswith("ep, "):
            continue
        share, _ = of_train(result, name)
        if share < GOAL:
            complaints.append(f"{name}: {share:.2f} of train's speed, less than {GOAL}")
        if figures["losses"] != result["ort"][name.replace("ep", "train")]["losses"]:
            complaints.append(f"{name}: other losses than train's")
    return complaints


def markdown(result):
    facts, rows = result["machine"], []
    for name, figures in result["ort"].items():
        share, interval = of_train(result, name)
        rows.append([f"**{name}**" if name.startswith("ep") else name,
                     f"{figures['tokens_per_second']:.0f}", f"{share:.2f}",
                     "[{:.2f}, {:.2f}]".format(*interval), GOAL if name.startswith("ep") else "-",
                     f"{figures['peak_rss'] / 2**20:.0f}", f"{figures['losses'][-1]:.6f}"])
    return (f"# In ONNX Runtime: {facts['isa']}\n\n"
            "The GPT of `./dev bench`. train: `onnx-fp8 train`. ep: the step that `onnx-fp8 rewrite` wrote, in a stock\n"
            "onnxruntime with our provider, which has all nodes. A written step returns the logits; both cut them into chunks.\n"
            "bodies: the same file without our library, and without chunks.\n\n"
            f"- CPU: {facts['cpu']}, {facts['cores']} cores; threads: {facts['threads']}\n"
            f"- onnxruntime {result['onnxruntime']}; date: {result['date']}; commit {result['commit']}; other "
            f"programs kept {facts['foreign_cpus']:.2f} CPUs busy\n"
            f"- Rounds: {result['rounds']}, steps of a turn: {result['steps']}; seed of the order of turns: "
            f"{result['seed']}\n\n"
            + report.table(["", "tokens/s", "of train", "95 %", "goal", "peak MiB", "last loss"], rows))


def arguments(words, names):
    parser = argparse.ArgumentParser(prog="./dev bench ort", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--json", type=pathlib.Path, help="write the figures")
    add("--markdown", type=pathlib.Path, help="write the table too")
    add("--rounds", type=int, default=4, help="turns of each (4)")
    add("--steps", type=int, default=8, help="steps of a turn that count (8)")
    add("--seed", type=int, default=0, help="of the order of turns (0)")
    chosen = parser.parse_args(words)
    for path in (chosen.json, chosen.markdown):
        if path and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent}")
    return chosen
