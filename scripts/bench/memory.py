# SPDX-License-Identifier: Apache-2.0
"""The memory of one training step, in bytes of tensors, here and in PyTorch
under autocast with AdamW: parameters, moments, gradients, activations and
temporaries. The process itself does not count on either side.

  ./dev bench memory [--json FILE] [--markdown FILE]
"""
import argparse
import json
import pathlib
import subprocess

from bench import report, task
from bench.machine import environment, say

ROWS = {f"{dtype}{recipe and '+' + recipe}": (dtype, recipe or "off")
        for dtype in ("float32", "bfloat16")
        for recipe in ("", "tensorwise", "delayed")}
PEERS = {"torch_fp32": "fp32", "torch_autocast_bf16": "autocast"}
TIMED = False  # bytes do not depend on other programs
GOAL, PEER = 0.6, "torch_autocast_bf16"


def arguments(words, _):
    parser = argparse.ArgumentParser(prog="./dev bench memory",
                                     description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    return parser.parse_args(words)


def ours(binary, model, dtype, recipe, *flags):
    """Parameters, moments, scaling state, and the peak of the arena, which
    holds everything else."""
    done = subprocess.check_output(
        [binary, "inspect", model, "--loss", "cross_entropy", "--dtype", dtype,
         "--recipe", recipe, "--json", *flags], stderr=subprocess.DEVNULL)
    memory = json.loads(done)["memory"]
    kinds = {kind: memory[kind] for kind in
             ("parameters", "moments", "scaling", "arena_peak")}
    return {**kinds, "total": sum(kinds.values())}


def measure(_, binary, python, scripts, work):
    result = {"models": {}}
    for model in task.MODELS:
        path = work / f"{model}.onnx"
        if not path.exists():
            say(f"exporting {model}")
            subprocess.run([python, "-B", "-m", "bench.torch_export", model,
                            work], cwd=scripts, env=environment(), check=True,
                           stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        rows = {name: ours(binary, path, *row) for name, row in ROWS.items()}
        for peer, dtype in PEERS.items():
            say(f"{model}: {peer}")
            rows[peer] = json.loads(subprocess.check_output(
                [python, "-B", "-m", "bench.torch_memory", model, dtype],
                cwd=scripts, env=environment(), stderr=subprocess.DEVNULL))
        result["models"][model] = rows
    result["ratios"] = ratios(result["models"])
    return result


def ratios(models):
    """{model: {our row: {peer: bytes here by bytes there}}}."""
    return {model: {row: {peer: rows[row]["total"] / rows[peer]["total"]
                          for peer in PEERS} for row in ROWS}
            for model, rows in models.items()}


def markdown(result):
    lines = ["# Memory of a step", "", "MiB of tensors at the fullest moment; "
             "the ratios are this program's by PyTorch's.", ""]
    for model, rows in result["models"].items():
        table = []
        for name, kinds in rows.items():
            of = result["ratios"][model].get(name, {})
            table.append([name, f"{kinds['total'] / 2**20:.1f}",
                          *(f"{of[peer]:.2f}" if of else "" for peer in PEERS)])
        lines += [f"## {model}", "", report.table(
            ["", "MiB", *(f"÷ {peer}" for peer in PEERS)], table)]
    return "\n".join(lines)


def outside(result):
    """bfloat16 with FP8 takes at most GOAL of PyTorch's autocast."""
    return [f"{model}: {row} takes {of[PEER]:.2f} of the memory of {PEER}, "
            f"expected at most {GOAL}"
            for model, rows in result["ratios"].items()
            for row, of in rows.items()
            if row.startswith("bfloat16+") and of[PEER] > GOAL]
