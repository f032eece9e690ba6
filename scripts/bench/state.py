# SPDX-License-Identifier: Apache-2.0
"""Whether a run whose optimizer state takes few bytes learns what it learns with
state in float32: moments and master weights in each format, from the same
weights, on the same batches, with many seeds. Each run is kept in a file, so a
study that was stopped goes on where it stopped.

  ./dev bench state [--json FILE] [--markdown FILE] [...]
  ./dev bench state --seeds 2 --steps 20 --models gpt --dtypes bfloat16
  ./dev bench state --report-only [--study ID] [...]
"""
import dataclasses
import json
import math
import os
import subprocess

from bench import parity_runs, report
from bench import parity_stats as stats
from bench import studies
from bench.machine import environment

TIMED = False  # losses do not depend on other programs
BASE, NOISE = "float32", "float32, weights · (1 ± 1e-6)"
MOMENTS = {BASE: (), NOISE: (),
           "moments bfloat16": ("--moments", "bfloat16"),
           "moments fp8": ("--moments", "fp8")}
# Products read weights in 16 bits: a master in 16 bits belongs to bfloat16.
MASTERS = {"master split8": ("--master", "split8"),
           "master bfloat16": ("--master", "bfloat16"),
           "fp8 and split8": ("--moments", "fp8", "--master", "split8"),
           "fp8 and bfloat16": ("--moments", "fp8", "--master", "bfloat16")}
STATES = {**MOMENTS, **MASTERS}
SIZES = {"LAYERS": 2, "WIDTH": 128, "HEADS": 4, "KV_HEADS": 2, "HIDDEN": 256,
         "VOCABULARY": 256, "BATCH": 8, "SEQ": 64}
SEEDS, STEPS = 8, 120
MORE = ("losses", "update_amax", "state_bytes")
BASE_BYTES = 12  # of a weight and its moments in float32


def states_of(dtype):
    return MOMENTS if dtype == "float32" else STATES


@dataclasses.dataclass(frozen=True)
class Run(parity_runs.Run):
    state: str = BASE

    @property
    def sizes(self):
        return SIZES

    @property
    def file(self):
        key = parity_runs.digest(json.dumps(self.key, sort_keys=True).encode())
        return f"{self.seed:03}-{self.model}-{self.dtype}-{key}.json"

    def __str__(self):
        return f"{self.model}, seed {self.seed}, {self.dtype}, {self.state}"


def plan(chosen):
    """All runs. A seed ends before the next begins, so that all states have the
    same seeds wherever a study stops."""
    return [Run("state", seed, model, dtype, "off", state)
            for seed in range(chosen.seeds) for model in chosen.models
            for dtype in chosen.dtypes for state in states_of(dtype)]


class Study(parity_runs.Study):
    def flags(self, run):
        return [*super().flags(run), *STATES[run.state]]

    def more(self, summary, losses):
        update = summary.get("update_amax")
        if update is None and "update_amax" in summary:
            update = math.inf  # JSON has no infinite number
        return {"losses": losses, "update_amax": update,
                "state_bytes": summary["state_bytes"]}

    def result(self, run):
        found = super().result(run)
        if found is None:
            return None
        more = parity_runs.read(self.path(run), f"the result of {run}", MORE)
        return {**found, **{name: more[name] for name in MORE}}

    def model(self, run):
        noise = "_noise" if run.state == NOISE else ""
        return self.folder / f"state_{run.model}_{run.seed}{noise}.onnx"

    def prepare(self, runs, python, scripts):
        super().prepare([dataclasses.replace(run, state=BASE) for run in runs],
                        python, scripts)
        wanted = {}
        for run in runs:
            path = self.model(run)
            if run.state == NOISE and not path.exists():
                base = self.model(dataclasses.replace(run, state=BASE))
                wanted[path] = {"model": str(base), "seed": run.seed,
                                "path": str(path.with_suffix(".part"))}
        if not wanted:
            return
        subprocess.run([python, "-m", "bench.perturb",
                        json.dumps(list(wanted.values()))], cwd=scripts,
                       env=environment(), check=True)
        for path in wanted:
            os.replace(path.with_suffix(".part"), path)


def arguments(words, names):
    parser = studies.parser("state", __doc__, SEEDS, STEPS, names)
    parser.add_argument("--models", type=names(parity_runs.MODELS),
                        default=parity_runs.MODELS,
                        help="some of " + ",".join(parity_runs.MODELS))
    return studies.parse(parser, words)


def measure(chosen, binary, python, scripts, work):
    results, facts = studies.run(chosen, plan(chosen), work / "state", STEPS,
                                 (binary, python, scripts), Study)
    return {"tables": evaluate(results, chosen), **facts,
            "wanted": chosen.seeds}


def evaluate(results, chosen):
    """{model: {dtype: {state: figures}}} of the seeds of which all runs are
    there."""
    tables = {}
    for model in chosen.models:
        for dtype in chosen.dtypes:
            runs = {state: [Run("state", seed, model, dtype, "off", state)
                            for seed in range(chosen.seeds)]
                    for state in states_of(dtype)}
            seeds = [seed for seed in range(chosen.seeds) if all(
                of[seed] in results for of in runs.values())]
            if seeds:
                tables.setdefault(model, {})[dtype] = compare(
                    {state: [results[of[seed]] for seed in seeds]
                     for state, of in runs.items()}, seeds)
    return tables


def compare(found, seeds):
    """{state: figures}, against BASE."""
    judged = stats.judge({stats.BASE if state == BASE else state: figures
                          for state, figures in found.items()})
    judged[BASE] = judged.pop(stats.BASE)
    base = found[BASE]
    return {state: {
        **judged[state], "seeds": seeds,
        "loss_of_seeds": [figures["loss"] for figures in of],
        "bytes": BASE_BYTES * of[0]["state_bytes"] / base[0]["state_bytes"],
        "worst_step": worst_step(of, base),
        "update_amax": largest(of)} for state, of in found.items()}


def worst_step(ours, theirs):
    """The largest difference of a step's training losses with any seed; None if
    a loss is no number."""
    pairs = [pair for own, other in zip(ours, theirs, strict=True)
             for pair in zip(own["losses"], other["losses"], strict=True)]
    if any(None in pair for pair in pairs):
        return None
    return max(abs(a - b) for a, b in pairs)


def largest(figures):
    """The largest update of any seed; None: it is not measured."""
    updates = [of["update_amax"] for of in figures]
    return None if None in updates else max(updates)


METHOD = """\
For one seed, all states start from the same weights and see the same batches in
the same order. Loss: validation, in nats per byte on held-out text, after the
last step. A difference is the loss of a state minus the loss of float32 with the
same seed and dtype of products; in brackets is its 95 % interval (Student's t
over seeds). The second row is float32 against itself with slightly changed
weights: the noise floor. The worst step is the largest difference of the
training loss at any step of any seed. The largest update is `update_amax`, in
units of the learning rate; a run measures it where moments are not float32. Bytes are of the weight and its moments, per weight;
tensors that keep floats are included.
"""


def row(state, figures):
    worst = figures["worst_step"]
    worst = "?" if worst is None else f"{worst:.3f}"
    if "diverged" in figures:
        return [state, f"{figures['bytes']:.2f}",
                f"diverged with {figures['diverged']} seeds", "", "", worst, ""]
    cells = [state, f"{figures['bytes']:.2f}", f"{figures['mean_loss']:.4f}"]
    nats = figures.get("nats")
    if nats is None:
        band = figures["band"]
        cells += ["", "" if band is None else
                  f"{band * figures['mean_loss']:.4f} between seeds", ""]
    elif nats["low"] is None:
        cells += [f"{nats['mean']:+.4f}", "", worst]
    else:
        cells += [f"{nats['mean']:+.4f} [{nats['low']:+.4f}, "
                  f"{nats['high']:+.4f}]", f"{nats['deviation']:.4f}", worst]
    update = figures["update_amax"]
    return [*cells, "" if update is None else f"{update:.2f}"]


def markdown(result):
    settings = result["settings"]
    text = (f"# State in few bytes: {result['machine']['isa']}\n\n"
            f"- {result['machine']['cpu']}; commit {result['commit']}; program "
            f"{settings['program']}; report of {result['date']}\n"
            f"- {settings['steps']} steps of AdamW on English text, bytes as "
            f"tokens, {SIZES['BATCH']} x {SIZES['SEQ']} tokens in a step; "
            f"{SIZES['LAYERS']} layers of width {SIZES['WIDTH']}\n\n{METHOD}")
    for model, dtypes in result["tables"].items():
        for dtype, states in dtypes.items():
            seeds = len(states[BASE]["seeds"])
            text += f"\n## {model}, products in {dtype}; {seeds} seeds\n\n"
            text += report.table(
                ["state", "bytes", "mean loss", "difference", "deviation",
                 "worst step", "largest update"],
                [row(state, of) for state, of in states.items()])
    return text


def outside(result):
    """States that learn something else, and seeds that are missing."""
    complaints = []
    for model, dtypes in result["tables"].items():
        for dtype, states in dtypes.items():
            done = len(states[BASE]["seeds"])
            if done < result["wanted"]:
                complaints.append(
                    f"{model}, {dtype}: expected {result['wanted']} seeds, found "
                    f"{done}: go on with --study {result['study']}")
            complaints += [
                f"{model}, {dtype}: {state} is further from float32 than seeds "
                "are from each other" for state, of in states.items()
                if of.get("holds") == stats.NO]
    return complaints or ([] if result["tables"] else [
        f"no seed has ended: go on with --study {result['study']}"])
