# SPDX-License-Identifier: Apache-2.0
"""The runs of a study of loss parity, each with a small file of its own: a run
whose file is there is not repeated. A study is one program on one instruction
set with one text and one training schedule. It keeps a copy of its program, so
that it can go on when the program has been built anew."""
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from bench.machine import environment, say

MODELS = ("gpt", "llama")
DTYPES = ("float32", "bfloat16")
SIZES = {
    "small": {"LAYERS": 2, "WIDTH": 128, "HEADS": 4, "KV_HEADS": 2,
              "VOCABULARY": 256, "BATCH": 4, "SEQ": 128},
    "large": {"LAYERS": 4, "WIDTH": 256, "HEADS": 8, "KV_HEADS": 4,
              "VOCABULARY": 256, "BATCH": 8, "SEQ": 256},
}
HELD_OUT = 65536  # bytes of text for validation
TRAIN = ["--token-dtype", "uint16", "--loss", "cross_entropy", "--optimizer",
         "adamw", "--lr", "3e-3", "--weight-decay", "0.01", "--clip-norm", "1"]
WARM_UP = 0.1  # of the steps, in a cosine schedule
LAST_PART = 0.1  # of the steps, whose mean training loss is kept
LOSSES = ("loss", "train_loss")
RESULT = (*LOSSES, "skipped", "seconds")


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


@dataclasses.dataclass(frozen=True)
class Run:
    """What tells a run from the others of its study."""
    size: str
    seed: int
    model: str
    dtype: str
    recipe: str

    @property
    def sizes(self):
        return SIZES[self.size]

    @property
    def key(self):
        return {**dataclasses.asdict(self), "sizes": self.sizes}

    @property
    def file(self):
        key = digest(json.dumps(self.key, sort_keys=True).encode())
        return (f"{self.size}-{self.seed:03}-{self.model}-{self.dtype}-"
                f"{self.recipe.translate(str.maketrans(',:/', '___'))[:60]}-"
                f"{key}.json")

    def __str__(self):
        return (f"{self.size} {self.model}, seed {self.seed}, {self.dtype}, "
                f"{self.recipe}")


def plan(sizes, seeds, dtypes, recipes):
    """All runs, the first size first. A seed ends before the next begins, so
    that all recipes have the same seeds wherever a study stops."""
    return [Run(size, seed, model, dtype, recipe)
            for size in sizes for seed in range(seeds) for model in MODELS
            for dtype in dtypes for recipe in recipes]


def isa_of(program):
    return json.loads(subprocess.check_output([program, "version",
                                               "--json"]))["isa"]


def settings(binary, steps, scripts):
    """What all runs of a study share: another value is another study."""
    sample = scripts.parent / "samples/gpt_tiny"
    sources = [scripts / "bench" / f"{name}.py"
               for name in ("task", "torch_models", "torch_sizes",
                            "torch_seeds")]
    return {"program": digest(pathlib.Path(binary).read_bytes()),
            "isa": isa_of(binary), "steps": steps,
            "warm_up": round(WARM_UP * steps),
            "flags": TRAIN, "held_out": HELD_OUT,
            "text": digest((sample / "austen.txt.xz").read_bytes()),
            "models": digest(*(s.read_bytes() for s in sources))}


class Study:
    """A folder: study.json, the program, the text, models, and runs/."""

    def __init__(self, folder):
        self.folder = folder
        self.facts = read(folder / "study.json", "the facts of a study",
                          ("settings", "commit", "cpu"))
        self.settings = self.facts["settings"]
        self.program = folder / "onnx-fp8"

    def path(self, run):
        return self.folder / "runs" / run.file

    def result(self, run):
        """The figures of a run, or None if it has not ended."""
        path = self.path(run)
        if not path.exists():
            return None
        what = f"the result of {run}"
        found = read(path, what, ("run", *RESULT))
        if found["run"] != run.key:
            fail(path, what, f"that of {json.dumps(found['run'])}")
        for name in RESULT:
            value = found[name]
            if value is None and name in LOSSES:  # the run has diverged
                continue
            if (not isinstance(value, (int, float))
                    or not math.isfinite(value)):
                fail(path, f"a number as `{name}` in {what}", repr(value))
        return {name: found[name] for name in RESULT}

    def results(self, runs):
        found = {run: self.result(run) for run in runs}
        return {run: result for run, result in found.items() if result}

    @contextlib.contextmanager
    def locked(self):
        with open(self.folder / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SystemExit(
                    f"bench: expected to be the only one at work in "
                    f"{self.folder}, found another: wait for its end, or "
                    "make the report of what is there with --report-only"
                ) from None
            yield

    def prepare(self, runs, python, scripts):
        """The text and the models that these runs lack."""
        if not (self.folder / "val.bin").exists():
            sample = scripts.parent / "samples/gpt_tiny/prepare.py"
            part = self.folder / "part"
            subprocess.run([sys.executable, sample, part], check=True,
                           stdout=subprocess.DEVNULL)
            held_out = (part / "val.bin").read_bytes()[:2 * HELD_OUT]
            (part / "val.bin").write_bytes(held_out)
            for name in ("train.bin", "val.bin"):
                os.replace(part / name, self.folder / name)
            part.rmdir()
        wanted = {}
        for run in runs:
            path = self.model(run)
            if not path.exists():
                wanted[path] = {"model": run.model, "seed": run.seed,
                                "sizes": run.sizes,
                                "path": str(path.with_suffix(".part"))}
        if not wanted:
            return
        say(f"exporting {len(wanted)} models")
        log = self.folder / "export.log"
        with open(log, "w") as out:
            done = subprocess.run(
                [python, "-m", "bench.torch_seeds",
                 json.dumps(list(wanted.values()))], cwd=scripts,
                env=environment(), stdout=out, stderr=out)
        if done.returncode:
            raise SystemExit(f"bench: the export of models ended with exit "
                             f"code {done.returncode}: see {log}")
        for path in wanted:
            os.replace(path.with_suffix(".part"), path)

    def model(self, run):
        return self.folder / f"{run.size}_{run.model}_{run.seed}.onnx"

    def flags(self, run):
        """The run's own flags. Its study has others, for all of its runs."""
        return ["--recipe", run.recipe, "--dtype", run.dtype]

    def more(self, summary, losses):
        """Figures of a run beside RESULT."""
        return {}

    def train(self, run, threads):
        """Trains, and writes the result in one piece."""
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)  # of a run that was cut off
        steps = self.settings["steps"]
        begin = time.monotonic()
        done = subprocess.run(
            [self.program, "train", self.model(run), "--data",
             self.folder / "train.bin", "--val-data", self.folder / "val.bin",
             *self.settings["flags"], "--steps", str(steps), "--schedule",
             f"cosine:warmup={self.settings['warm_up']}",
             "--save-every", str(steps), "--seed", str(run.seed),
             *self.flags(run),
             *(["--threads", str(threads)] if threads else []),
             "--out", work, "--json"],
            env=environment(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        seconds = time.monotonic() - begin
        if done.returncode:
            raise SystemExit(f"bench: {run}: {done.stderr.strip()}")
        summary = json.loads(done.stdout)
        losses = [entry["loss"] for entry in map(json.loads, (
            work / "metrics.jsonl").read_text().splitlines())
            if "loss" in entry]
        last = losses[-max(1, round(LAST_PART * steps)):]
        diverged = None in (*last, summary["val_loss"])
        result = {"run": run.key,
                  "loss": None if diverged else summary["val_loss"],
                  "train_loss": None if diverged else statistics.mean(last),
                  "skipped": summary["skipped_steps"],
                  "seconds": round(seconds, 2),
                  **self.more(summary, losses)}
        write(self.path(run), result)
        shutil.rmtree(work)
        return result

    def go_on(self, runs, threads, python, scripts):
        """Trains what is missing."""
        isa = isa_of(self.program)
        if isa != self.settings["isa"]:
            raise SystemExit(f"bench: {self.folder}: expected a machine where "
                             f"the program chooses {self.settings['isa']}, "
                             f"found {isa}: begin another study")
        with self.locked():
            results = self.results(runs)
            missing = [run for run in runs if run not in results]
            if results:
                say(f"{len(results)} of {len(runs)} runs are there already")
            for size in dict.fromkeys(run.size for run in missing):
                of_size = [run for run in missing if run.size == size]
                self.prepare(of_size, python, scripts)
                for run in of_size:
                    results[run] = self.train(run, threads)
                    say(progress(run, results, runs))
            return results


def progress(run, results, runs):
    """One line: the loss of this run and when the others will have ended."""
    seconds, untimed = 0.0, 0
    for other in runs:
        if other in results:
            continue
        like = [r["seconds"] for done, r in results.items()
                if (done.size, done.model) == (other.size, other.model)]
        seconds += statistics.median(like) if like else 0
        untimed += not like
    result = results[run]
    loss = result["loss"]
    shown = "diverged" if loss is None else f"validation loss {loss:.4f}"
    more = f", and {untimed} runs not timed yet" if untimed else ""
    return (f"{len(results)}/{len(runs)} {run}: {shown}, "
            f"{result['seconds']:.0f} s; ETA {seconds / 60:.0f} min{more}")


def fail(path, expected, found):
    raise SystemExit(f"bench: {path}: expected {expected}, found {found}: "
                     "delete the file, and the study makes it again")


def read(path, expected, names):
    """The JSON object in a file, which has these names."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        fail(path, f"{expected} as JSON", f"a broken file ({error})")
    if not isinstance(found, dict):
        fail(path, expected, f"a {type(found).__name__}")
    lacking = [name for name in names if name not in found]
    if lacking:
        fail(path, expected, f"no `{lacking[0]}`")
    return found


def write(path, value):
    """In one piece: a reader never sees a half."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)


def begin(folder, binary, steps, scripts, facts, kind=Study):
    """The study of this program in the folder, made if it is not there."""
    shared = settings(binary, steps, scripts)
    name = digest(json.dumps(shared, sort_keys=True).encode())
    study = folder / name
    (study / "runs").mkdir(parents=True, exist_ok=True)
    program = study / "onnx-fp8"
    if not program.exists():
        shutil.copy2(binary, program.with_suffix(".part"))
        os.replace(program.with_suffix(".part"), program)
    if not (study / "study.json").exists():
        write(study / "study.json", {"settings": shared, **facts})
    return kind(study)


def find(folder, name, kind=Study):
    """The study of this name, or the only one if there is no name."""
    names = sorted(path.parent.name for path in folder.glob("*/study.json"))
    if name is None and len(names) == 1:
        return kind(folder / names[0])
    if name in names:
        return kind(folder / name)
    expected = f"the study {name}" if name else "one study"
    raise SystemExit(f"bench: {folder}: expected {expected}, found "
                     f"{', '.join(names) or 'none'}: choose one with --study")
