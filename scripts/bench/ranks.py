# SPDX-License-Identifier: Apache-2.0
"""Training on processes of this machine: data parallel, whole and with divided
parameters, here (MPI) and in PyTorch (DDP and FSDP2 over gloo), and with
divided layers (tp), here. All share the same global batch and the same cores. Tokens per second, and bytes that a
process receives in a step: counted here, of PyTorch by formula.

  ./dev bench ranks [--ranks 1,2,4] [--rounds N] [--json FILE] [--markdown FILE]
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess

from bench import contest, report, task
from bench.machine import environment, say

# Row: (our flags, or None; PyTorch's wrapper, or the axis of our mesh).
ROWS = {
    "onnx-fp8 dp": (["--recipe", "off"], "dp"),
    "onnx-fp8 dp, tensorwise": (["--recipe", "tensorwise"], "dp"),
    "onnx-fp8 parameters": (["--recipe", "off", "--shard", "parameters"],
                            "dp"),
    "onnx-fp8 parameters, tensorwise": (
        ["--recipe", "tensorwise", "--shard", "parameters"], "dp"),
    "onnx-fp8 tp": (["--recipe", "off"], "tp"),
    "onnx-fp8 tp, tensorwise": (["--recipe", "tensorwise"], "tp"),
    "torch DDP": (None, "ddp"),
    "torch FSDP2": (None, "fsdp2"),
}
MODEL = "gpt"
FILE = f"{MODEL}_open.onnx"
TIMED = True


def numbers(text):
    return tuple(int(word) for word in text.split(","))


def arguments(words, _):
    parser = argparse.ArgumentParser(
        prog="./dev bench ranks", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=(1, 2, 4))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8,
                        help="steps of a turn that count (8)")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    return parser.parse_args(words)


def threads(ranks):
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def mpirun():
    return shutil.which("mpirun.mpich") or "mpirun"


def ours(binary, work, row, ranks, steps):
    """Seconds of the steps, bytes by kind."""
    folder = work / "run_ranks"
    shutil.rmtree(folder, ignore_errors=True)
    flags = ROWS[row][0]
    launcher, mesh = [], []
    if ranks > 1:
        launcher = [mpirun(), "-n", str(ranks)]
        mesh = ["--mesh", f"{ROWS[row][1]}={ranks}"]
    else:
        flags = [f for f in flags if f not in ("--shard", "parameters")]
    done = subprocess.run(
        [*launcher, binary, "train", work / FILE, "--data",
         work / "tokens.bin", "--no-shuffle", "--seq-len", str(task.SEQ),
         "--token-dtype", "uint16", "--batch-size", str(task.BATCH), "--loss",
         "cross_entropy", "--optimizer", "adamw", "--lr", str(task.LR),
         "--steps", str(steps), "--threads", str(threads(ranks)), "--out",
         folder, "--json", *flags, *mesh],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True)
    if done.returncode:
        raise contest.Failure(done.stderr.strip())
    summary = json.loads(done.stdout)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {"seconds": [task.TOKENS / json.loads(line)["tokens_per_second"]
                        for line in lines],
            "bytes": sum(size for key, size in summary.items()
                         if key.startswith("received_by_"))}


def torch(python, scripts, work, row, ranks, steps):
    done = subprocess.run(
        [python, "-m", "bench.torch_ranks", ROWS[row][1], MODEL,
         work / "tokens.bin", str(ranks), str(steps), str(threads(ranks))],
        cwd=scripts, env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise contest.Failure(done.stderr.strip().splitlines()[-1])
    reply = json.loads(done.stdout.strip().splitlines()[-1])
    return {"seconds": reply["seconds"],
            "bytes": by_formula(ROWS[row][1], ranks, 4 * reply["parameters"])}


def by_formula(wrapper, ranks, size):
    """A ring receives (N − 1) / N of `size` bytes in each all-gather and in each
    reduce-scatter. An all-reduce is one of each; FSDP2 gathers twice."""
    share = size * (ranks - 1) / ranks
    return round(share * (2 if wrapper == "ddp" else 3))


def export(python, scripts, work):
    path = work / FILE
    if path.exists():
        return
    say(f"exporting {MODEL}")
    subprocess.run([python, "-m", "bench.torch_export", MODEL, work,
                    "open"],
                   cwd=scripts, env=environment(), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(chosen, binary, python, scripts, work):
    export(python, scripts, work)
    steps = contest.WARM_UP + chosen.steps
    task.write_tokens(work / "tokens.bin", max(32, steps))
    cells = [(row, ranks) for row in ROWS for ranks in chosen.ranks]
    draw, results = random.Random(0), {}
    for number in range(chosen.rounds):
        for row, ranks in draw.sample(cells, len(cells)):
            if ROWS[row][0]:
                turn = ours(binary, work, row, ranks, steps)
            else:
                turn = torch(python, scripts, work, row, ranks, steps)
            cell = results.setdefault(row, {}).setdefault(
                str(ranks), {"seconds": [], "bytes": turn["bytes"]})
            cell["seconds"] += turn["seconds"][contest.WARM_UP:]
            say(f"round {number + 1} of {chosen.rounds}  {row}, {ranks} ranks")
    results = {row: results[row] for row in ROWS}
    for row in results.values():
        for cell in row.values():
            cell["tokens_per_second"] = (
                task.TOKENS / statistics.median(cell["seconds"]))
    return {"ranks": list(chosen.ranks), "rows": results, "warnings": []}


def markdown(result):
    ranks = [str(n) for n in result["ranks"]]
    table = [[row, *(f"{cells[n]['tokens_per_second']:.0f}" for n in ranks),
              *(f"{cells[n]['bytes'] / 2**20:.1f}" for n in ranks if n != "1")]
             for row, cells in result["rows"].items()]
    heads = ["", *(f"tokens/s, {n}" for n in ranks),
             *(f"MiB received, {n}" for n in ranks if n != "1")]
    facts = result["machine"]
    return "\n".join([
        "# Several processes on one machine", "",
        f"{facts['cpu']}, {facts['cores']} cores, {result['date']}. A GPT of "
        f"{task.LAYERS} layers of {task.WIDTH}, {task.TOKENS} tokens a step in "
        "all. Columns: number of processes, which share the cores. Bytes of "
        "PyTorch are by formula.", "", report.table(heads, table)])


def outside(_):
    return []
