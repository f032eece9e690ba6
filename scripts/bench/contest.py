# SPDX-License-Identifier: Apache-2.0
"""Training by turns: this program and its peers, each in its own process."""
import json
import random
import shutil
import statistics
import subprocess

from bench import task
from bench.machine import environment, say

# The rows of this program: (recipe, dtype).
OURS = {"fp32": ("off", "float32"),
        "tensorwise": ("tensorwise", "float32"),
        "delayed": ("delayed", "float32"),
        "bfloat16": ("off", "bfloat16"),
        "bfloat16+tensorwise": ("tensorwise", "bfloat16"),
        "bfloat16+delayed": ("delayed", "bfloat16")}
TORCH_PEERS = ("torch_eager_fp32", "torch_compile_fp32", "torch_compile_bf16",
               "torch_compile_bf16_weights", "torchao_emulate")
PEERS = (*TORCH_PEERS, "ort_training")
# Steps at the start of every turn that do not count: the first step plans,
# compiles or wakes threads, the second still finds cold caches.
WARM_UP = 2


class Failure(Exception):
    """A contestant that cannot take part; the text says why."""


class Ours:
    """`onnx-fp8 train`, started anew for each turn. `more`: other flags."""

    def __init__(self, binary, file, data, row, folder, *more):
        self.facts = {}
        self._folder, self._file = folder, file
        recipe, dtype = OURS[row]
        self._numbers = ["--recipe", recipe, "--dtype", dtype]
        self._binary = binary
        self._train = [
            binary, "train", file, "--data", data, "--no-shuffle", "--loss",
            "cross_entropy", "--optimizer", "adamw", "--lr", str(task.LR),
            "--betas", "{},{}".format(*task.BETAS), "--eps", str(task.EPS),
            "--weight-decay", str(task.WEIGHT_DECAY), *self._numbers, *more,
            "--out", folder, "--json"]

    def start(self):
        done = subprocess.run(
            [self._binary, "inspect", self._file, "--loss", "cross_entropy",
             "--json", *self._numbers], env=environment(), check=True,
            stdout=subprocess.PIPE)
        gemms = [g for g in json.loads(done.stdout)["gemms"]
                 if g["role"] != "none"]
        version = subprocess.run([self._binary, "version", "--json"],
                                 env=environment(), check=True,
                                 stdout=subprocess.PIPE)
        self.facts = {"threads": json.loads(version.stdout)["threads"],
                      "gemms": len(gemms),
                      "fp8_gemms": sum(g["fp8"] for g in gemms)}

    def turn(self, steps, *more):
        shutil.rmtree(self._folder, ignore_errors=True)
        done = subprocess.run([*self._train, "--steps", str(steps), *more],
                              env=environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Failure(f"onnx-fp8 train: {done.stderr.strip()}")
        lines = (self._folder / "metrics.jsonl").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        self.facts["peak_rss"] = json.loads(done.stdout)["peak_bytes"]
        return {"losses": [e["loss"] for e in entries],
                "seconds": [task.TOKENS / e["tokens_per_second"]
                            for e in entries]}

    def profile(self, steps):
        """Milliseconds per step by operator, longest first."""
        trace = self._folder.with_suffix(".trace.json")
        self.turn(steps, "--profile", trace)
        total = {}
        for event in json.loads(trace.read_text()):
            name = event["args"].get("op", event["name"])
            total[name] = total.get(name, 0.0) + event["dur"] / 1000 / steps
        return dict(sorted(total.items(), key=lambda x: -x[1]))

    def stop(self):
        pass


class Peer:
    """A process of bench/turns.py, which waits between its turns."""

    def __init__(self, command, scripts, log, **variables):
        self.facts = {}
        self._command, self._scripts, self._log = command, scripts, log
        self._environment = environment(**variables)
        self._process = None

    def start(self):
        self._process = subprocess.Popen(
            self._command, cwd=self._scripts, env=self._environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=open(self._log, "w"), text=True)
        self.facts = self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self.stop()
        log = self._log.read_text().strip().splitlines()
        raise Failure(log[-1] if log else "it ended without a word")

    def turn(self, steps):
        try:
            self._process.stdin.write(json.dumps({"steps": steps}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # _read finds out why
        reply = self._read()
        self.facts["peak_rss"] = reply.pop("peak_rss")
        return reply

    def stop(self):
        if self._process and self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait()


def orders(names, rounds, seed):
    """The order of turns of each round. It is random, so that no program always
    follows the same other one, but for a seed always the same."""
    draw = random.Random(seed)
    return [draw.sample(list(names), len(names)) for _ in range(rounds)]


def run(contestants, orders, steps):
    """{name: its figures} and {name: why it left}. A round is one turn of each
    program, in the given order; a turn has `steps` that count."""
    results, left = {}, {}

    def attempt(name, action, *arguments):
        try:
            return action(*arguments)
        except (Failure, OSError, subprocess.CalledProcessError) as error:
            left[name] = str(error)
            say(f"{name} is left out: {error}")
            return None

    try:
        for number, order in enumerate(orders):
            for name in order:
                contestant = contestants[name]
                if name in left:
                    continue
                if number == 0:
                    attempt(name, contestant.start)
                if name in left:
                    continue
                reply = attempt(name, contestant.turn, WARM_UP + steps)
                if reply is None:
                    results.pop(name, None)
                    continue
                result = results.setdefault(
                    name, {"seconds": [], "losses": reply["losses"]})
                seconds = reply["seconds"][WARM_UP:]
                result["seconds"].append(seconds)
                speed = task.TOKENS / statistics.median(seconds)
                say(f"round {number + 1} of {len(orders)}  {name}: "
                    f"{speed:.0f} tokens/s")
    finally:
        for contestant in contestants.values():
            contestant.stop()
    results = {name: results[name] for name in contestants if name in results}
    for name, result in results.items():
        result.update(summary(result["seconds"]))
        result.update(contestants[name].facts)
    return results, left


def summary(turns):
    """Tokens per second over all steps of all turns."""
    seconds = [s for turn in turns for s in turn]
    return {"tokens_per_second": task.TOKENS / statistics.median(seconds),
            "best_tokens_per_second": task.TOKENS / min(seconds)}
