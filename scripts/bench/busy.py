# SPDX-License-Identifier: Apache-2.0
"""The speed that is left on a machine that does other things too: the GPT of
samples/gpt_tiny trains in fp32 here and under torch.compile, by turns, alone
and beside busy loops. Each loop is started as from another terminal. A third
contestant only counts: it shows the share that the system leaves to a program
whose threads never wait for each other.

  ./dev bench busy [--json FILE] [--markdown FILE] [--quick] [...]
"""
import argparse
import contextlib
import os
import pathlib
import random
import statistics
import subprocess
import sys

from bench import contest, report, task
from bench.machine import say

TIMED = True  # figures depend on other programs
OURS, PEER, SHARE = "fp32", "torch_compile_fp32", "counting"
BATCH, SEQ = 16, 128  # of task.TOKENS tokens
# The least shares of the idle speed.
GOALS = {"one busy loop": 0.7, "one per core": 0.35}
# It ends after 10 minutes of CPU, in case nobody stops it.
LOOP = ["sh", "-c", "ulimit -t 600; while :; do :; done"]
COUNT = """import time
count, end = 0, time.monotonic() + 2
while time.monotonic() < end:
    count += 1
print(count)"""


def conditions():
    return {"idle": 0, "one busy loop": 1,
            "one per core": len(os.sched_getaffinity(0))}


@contextlib.contextmanager
def busy_loops(count):
    """Busy loops, each in a session with its own share of the CPUs."""
    loops = [subprocess.Popen(LOOP, start_new_session=True)
             for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


class Counting:
    """A process per core. All are in one session, as a program's threads are,
    and none waits for another."""

    def turn(self, steps):
        each = [subprocess.Popen([sys.executable, "-c", COUNT], text=True,
                                 stdout=subprocess.PIPE)
                for _ in os.sched_getaffinity(0)]
        total = sum(int(process.communicate()[0]) for process in each)
        return {"seconds": [2 / total] * steps}

    def stop(self):
        pass


def contestants(binary, python, scripts, work, quick):
    sample = scripts.parent / "samples/gpt_tiny"
    subprocess.run([sys.executable, sample / "prepare.py", work], check=True,
                   stdout=subprocess.DEVNULL)
    tokens = work / "train.bin"
    found = {OURS: contest.Ours(
        binary, sample / "gpt_tiny.onnx", tokens, OURS, work / "run",
        "--token-dtype", "uint16", "--seq-len", str(SEQ), "--batch-size",
        str(BATCH)), SHARE: Counting()}
    if python and not quick:
        found[PEER] = contest.Peer(
            [python, "-m", "bench.torch_peer", PEER, "gpt_tiny", tokens,
             str(BATCH), str(SEQ)], scripts, work / "torch.log",
            TORCHINDUCTOR_CACHE_DIR=str(work / "inductor"))
    return found


def speed(name, seconds):
    if name == SHARE:
        return f"{1 / statistics.mean(seconds):.3g} counts/s"
    return f"{task.TOKENS / statistics.mean(seconds):.0f} tokens/s"


def run(found, chosen, loops=busy_loops):
    """{contestant: {condition: turns of seconds}}"""
    turns = {name: {c: [] for c in conditions()} for name in found}
    draw = random.Random(chosen.seed)
    try:
        if PEER in found:
            found[PEER].start()
        for name, contestant in found.items():  # compiles, fills caches
            contestant.turn(contest.WARM_UP)
        for number in range(chosen.rounds):
            order = [(c, name) for c in conditions() for name in found]
            draw.shuffle(order)
            for condition, name in order:
                with loops(conditions()[condition]):
                    reply = found[name].turn(contest.WARM_UP + chosen.steps)
                seconds = reply["seconds"][contest.WARM_UP:]
                turns[name][condition].append(seconds)
                say(f"round {number + 1} of {chosen.rounds}  {name}, "
                    f"{condition}: {speed(name, seconds)}")
    finally:
        for contestant in found.values():
            contestant.stop()
    return turns


def summary(turns):
    """Tokens per second over all steps, and their share of the idle speed."""
    figures = {}
    for name, of in turns.items():
        figures[name] = {}
        for condition, seconds in of.items():
            mean = statistics.mean(s for turn in seconds for s in turn)
            idle = statistics.mean(s for turn in of["idle"] for s in turn)
            figures[name][condition] = {
                "tokens_per_second": task.TOKENS / mean,
                "of_idle": idle / mean,
                "interval": report.interval(seconds, of["idle"],
                                            statistics.mean)}
    return figures


def outside(result):
    """The goals that are not reached, for the exit code."""
    ours = result["busy"][OURS]
    return [f"{condition}: {ours[condition]['of_idle']:.2f} of the idle speed, "
            f"less than {goal}"
            for condition, goal in GOALS.items()
            if not ours[condition]["of_idle"] >= goal]


def markdown(result):
    facts, rows = result["machine"], []
    for name, of in result["busy"].items():
        for condition, f in of.items():
            goal = GOALS.get(condition) if name == OURS else None
            rows.append([f"**{name}**" if name == OURS else name, condition,
                         "-" if name == SHARE
                         else f"{f['tokens_per_second']:.0f}",
                         f"{f['of_idle']:.2f}",
                         "[{:.2f}, {:.2f}]".format(*f["interval"]),
                         goal or "-"])
    return (f"# Beside busy loops: {facts['isa']}\n\n"
            f"- CPU: {facts['cpu']}, {facts['cores']} cores; threads: "
            f"{facts['threads']}\n"
            f"- Linux {facts['kernel']}; CPUs are shared between "
            f"{'sessions' if facts['session_groups'] else 'threads'} first\n"
            f"- Date: {result['date']}; commit {result['commit']}; other "
            f"programs kept {facts['foreign_cpus']:.2f} CPUs busy\n"
            f"- Rounds: {result['rounds']}, steps of a turn: "
            f"{result['steps']}; seed of the order of turns: {result['seed']}"
            "\n\n" + report.table(
                ["", "beside", "tokens/s", "of idle", "95 %", "goal"], rows))


def arguments(words, names):
    parser = argparse.ArgumentParser(
        prog="./dev bench busy", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--json", type=pathlib.Path, help="write the figures")
    add("--markdown", type=pathlib.Path, help="write the table too")
    add("--quick", action="store_true",
        help="one short round without PyTorch, which is not installed for it")
    add("--rounds", type=int, help="turns of each (5)")
    add("--steps", type=int, help="steps of a turn that count (40)")
    add("--seed", type=int, default=0, help="of the order of turns (0)")
    chosen = parser.parse_args(words)
    for path in (chosen.json, chosen.markdown):
        if path and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent}")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 5)
    chosen.steps = chosen.steps or (20 if chosen.quick else 40)
    return chosen


def measure(chosen, binary, python, scripts, work):
    work = work / "busy"
    work.mkdir(exist_ok=True)
    turns = run(contestants(binary, python, scripts, work, chosen.quick),
                chosen)
    return {"busy": summary(turns), "turns": turns, "rounds": chosen.rounds,
            "steps": chosen.steps, "seed": chosen.seed}
