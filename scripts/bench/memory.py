# SPDX-License-Identifier: Apache-2.0
"""The memory of one training step, in bytes of tensors, here and in PyTorch
under autocast with AdamW: parameters, moments, gradients, activations and
temporaries. The process itself does not count on either side. A step of this
program is planned, and then run: it must allocate the bytes of its plan.

  ./dev bench memory [--json FILE] [--markdown FILE] [--size SIZE]
"""
import argparse
import itertools
import json
import pathlib
import shutil
import subprocess

import numpy

from bench import report, task
from bench.machine import environment, say

ROWS = {f"{dtype}{recipe and '+' + recipe}":
        ("--dtype", dtype, "--recipe", recipe or "off")
        for dtype in ("float32", "bfloat16")
        for recipe in ("", "tensorwise", "delayed")}
SMALL = "bfloat16+tensorwise"  # in all combinations of the next flags
ROWS |= {" ".join((SMALL, *flags)): (*ROWS[SMALL], *flags) for flags in
         (sum(chosen, ()) for chosen in itertools.product(
             ((), ("--moments", "bfloat16"), ("--moments", "fp8")),
             ((), ("--release-gradients",)), ((), ("--recompute", "blocks"))))}
LEAST = ("--moments", "fp8", "--release-gradients", "--recompute", "blocks")
ROWS |= {" ".join((SMALL, *flags)): (*ROWS[SMALL], *flags) for flags in (
    ("--master", "split"), ("--master", "split8"), ("--master", "bfloat16"),
    ("--moments", "bfloat16", "--master", "split8"),
    ("--primary-weights", "fp8"),
    ("--primary-weights", "fp8", "--recompute", "blocks"),
    (*LEAST, "--master", "split8"), (*LEAST, "--master", "bfloat16"),
    (*LEAST, "--master", "split8", "--primary-weights", "fp8"))}
PEERS = {"torch_fp32": (), "torch_autocast_bf16": ("autocast",),
         "torch_checkpoint": ("autocast", "checkpoint"),
         "torchao_adamw8bit": ("autocast", "adamw8bit"),
         "torchao_checkpoint": ("autocast", "adamw8bit", "checkpoint")}
MODELS = (*task.MODELS, "vit")
TIMED = False  # bytes do not depend on other programs
PEER = "torch_autocast_bf16"
# {row: the largest share of PEER's bytes}
GOALS = {SMALL: 0.6, "bfloat16+delayed": 0.6,
         f"{SMALL} --moments bfloat16": 0.4,
         f"{SMALL} --moments fp8 --recompute blocks": 0.28,
         f"{SMALL} --moments fp8 --release-gradients --recompute blocks": 0.28}
STATE = {"parameters": "parameters", "optimizer_state": "moments",
         "fp8_state": "scaling"}  # {kind of a memory report: its name here}
CODES = "codes"  # of weights, which live from step to step


def arguments(words, _):
    parser = argparse.ArgumentParser(prog="./dev bench memory",
                                     description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--size", choices=task.SIZES, default="default")
    return parser.parse_args(words)


def run(binary, command, model, *flags):
    return json.loads(subprocess.check_output(
        [binary, command, model, "--loss", "cross_entropy", "--json", *flags],
        env=environment(), stderr=subprocess.DEVNULL))


def planned(binary, model, *flags):
    """Parameters, moments and counters, scaling state, codes of weights, the
    batch with constants and outputs, and the arena, which holds everything
    else."""
    memory = run(binary, "inspect", model, "--memory-report",
                 *flags)["memory_report"]
    kinds = {name: memory["kinds"][kind] for kind, name in STATE.items()}
    # No node of the step makes state.
    kinds[CODES] = sum(value["bytes"] for value in memory["values"]
                       if value["kind"] == "fp8_copies" and not value["node"])
    kinds["batch"] = sum(memory["kinds"][kind]
                         for kind in ("inputs", "constants", "outputs"))
    kinds["arena"] = memory["arena_bytes"]
    return {**kinds, "total": sum(kinds.values())}


def allocated(binary, model, data, folder, *flags):
    """The bytes that a run of one step took for its state and its arena."""
    shutil.rmtree(folder, ignore_errors=True)
    done = run(binary, "train", model, "--data", data, "--steps", "1", "--out",
               folder, *flags)
    shutil.rmtree(folder)
    return {"state": done["state_bytes"], "arena": done["arena_bytes"]}


def write_data(model, work):
    """One batch for `train`."""
    if model in task.MODELS:
        path = work / "tokens.bin"
        task.write_tokens(path, 1)
    else:
        path = work / f"{model}.npz"
        shape = (task.BATCH, 3, task.IMAGE, task.IMAGE)
        random = numpy.random.default_rng(0)
        numpy.savez(path, pixels=random.normal(size=shape).astype("f4"),
                    labels=random.integers(0, task.CLASSES, task.BATCH))
    return path


def measure(chosen, binary, python, scripts, work):
    task.choose(chosen.size)
    work = work if chosen.size == "default" else work / chosen.size
    work.mkdir(exist_ok=True)
    result = {"size": chosen.size, "tokens": {}, "models": {}}
    for model in MODELS:
        path = work / f"{model}.onnx"
        if not path.exists():
            say(f"exporting {model}")
            subprocess.run([python, "-m", "bench.torch_export", model,
                            work], cwd=scripts, env=environment(), check=True,
                           stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        data, rows = write_data(model, work), {}
        for row, flags in ROWS.items():
            say(f"{model}: {row}")
            rows[row] = planned(binary, path, *flags)
            rows[row]["allocated"] = allocated(
                binary, path, data, work / f"memory_{model}", *flags)
        for peer, choices in PEERS.items():
            say(f"{model}: {peer}")
            rows[peer] = json.loads(subprocess.check_output(
                [python, "-m", "bench.torch_memory", model, *choices],
                cwd=scripts, env=environment(), stderr=subprocess.DEVNULL))
        result["tokens"][model] = (task.TOKENS if model in task.MODELS
                                   else task.BATCH * task.PATCHES)
        result["models"][model] = rows
    result["ratios"] = ratios(result["models"])
    return result


def ratios(models):
    """{model: {our row: {peer: bytes here by bytes there}}}."""
    return {model: {row: {peer: rows[row]["total"] / rows[peer]["total"]
                          for peer in PEERS} for row in ROWS}
            for model, rows in models.items()}


def state(kinds):
    """Bytes of parameters, moments, scaling and codes, here or in PyTorch."""
    if "param" in kinds:
        return kinds["param"], kinds["opt"], 0, 0
    return *(kinds[name] for name in STATE.values()), kinds[CODES]


def markdown(result):
    lines = ["# Memory of a step", "", f"Size of the task: {result['size']}. "
             "Bytes of tensors at the fullest moment: of weights, moments, "
             "scaling and codes of weights for each parameter, of all the rest "
             "in KiB for each token of the batch, of the sum in MiB. The ratios are this program's "
             "sums by PyTorch's.", "", "## Goals", "",
             f"The largest share of {PEER}'s bytes, and the measured ones:", "",
             report.table(["", "goal", *result["models"]], [
                 [row, f"{goal:.2f}", *(f"{of[row][PEER]:.2f}" for of in
                                        result["ratios"].values())]
                 for row, goal in GOALS.items()])]
    for model, rows in result["models"].items():
        parameters = rows["torch_fp32"]["param"] // 4
        tokens = result["tokens"][model]
        table, plans = [], []
        for name, kinds in rows.items():
            of = result["ratios"][model].get(name, {})
            kept = state(kinds)
            table.append([
                name, *(f"{size / parameters:.2f}" for size in kept),
                f"{(kinds['total'] - sum(kept)) / tokens / 2**10:.1f}",
                f"{kinds['total'] / 2**20:.1f}",
                *(f"{of[peer]:.2f}" if of else "" for peer in PEERS)])
            if of:
                sizes = (sum(kept), kinds["allocated"]["state"],
                         kinds["arena"], kinds["allocated"]["arena"])
                plans.append([name, *(f"{size:,}" for size in sizes)])
        lines += [f"## {model}", "", f"{parameters:,} parameters, {tokens:,} "
                  f"tokens.", "", report.table(
                      ["", "weights", "moments", "scaling", "codes",
                       "KiB per token", "MiB", *(f"÷ {peer}" for peer in PEERS)], table),
                  "Bytes that were planned, and bytes that a run allocated:", "",
                  report.table(["", "state, planned", "allocated",
                                "arena, planned", "allocated"], plans)]
    return "\n".join(lines)


def outside(result):
    """Plans that a run did not keep to the byte, and goals that are missed."""
    complaints = []
    for model, rows in result["models"].items():
        for row, of in result["ratios"][model].items():
            plan = {"state": sum(state(rows[row])), "arena": rows[row]["arena"]}
            if rows[row]["allocated"] != plan:
                complaints.append(f"{model}: {row} allocated "
                                  f"{rows[row]['allocated']}, planned {plan}")
            goal = GOALS.get(row)
            if goal and of[PEER] > goal:
                complaints.append(f"{model}: {row} takes {of[PEER]:.2f} of the "
                                  f"memory of {PEER}, expected at most {goal}")
    return complaints
