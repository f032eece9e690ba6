# SPDX-License-Identifier: Apache-2.0
"""Checks that two builds of the program compute the same bits.

  ./dev same [--isa NAME] OTHER [FOLDER...]

OTHER is the program of another build, or a command that runs it in an emulator:
"qemu-aarch64 -L ROOT PROGRAM". Both use one instruction set if `--isa` names it:
sums have another order with another one. Every model of the folders, by default
the fixtures and the corpus beside the project, goes through both: gradients in
fp32 and FP8, the forward rewrite, a written step, three steps of training. The
files must be the same byte by byte, and so must the messages of errors. This
build resumes a run of the other one. Exit code 0: all is the same."""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = os.environ.get("ONNX_FP8_BIN", str(ROOT / "build/release/onnx-fp8"))
FOLDERS = [ROOT / "tests/fixtures", ROOT.parent / "shared/corpus"]


def call(program, where, *words):
    """(exit code, text of errors)."""
    done = subprocess.run([*program, *map(str, words)], cwd=where,
                          capture_output=True, text=True)
    errors = done.stderr if done.returncode else ""
    return done.returncode, re.sub(r"/\S+", "PATH", errors)


class Case:
    """One model file with a batch of its reference."""

    def __init__(self, model, work):
        self.model = model
        reference = json.loads((model.parent / "reference.json").read_text())
        arrays = load_file(model.parent / "reference.safetensors")
        batch = {name.split(".", 1)[1]: array for name, array in arrays.items()
                 if name.startswith(("input.", "label."))}
        self.data = work / "batch.npz"
        np.savez(self.data, **batch)
        kinds = {"mse": "mse", "bce": "bce_with_logits",
                 "in_graph": "output:" + list(reference["outputs"])[0]}
        self.loss = ["--loss", kinds.get(reference["loss_kind"],
                                         "cross_entropy")]
        size = len(next(iter(batch.values())))
        self.flags = [*self.loss, "--data", self.data, "--batch-size", size]
        self.shapes = sorted({
            f"{axis}={size}" for array in reference["inputs"] for axis, size in
            zip(("batch", "seq"), batch.get(array, np.zeros(0)).shape)})

    def commands(self):
        yield "grad", ["grad", self.model, *self.flags, "-o", "g.safetensors"]
        yield "grad in FP8", ["grad", self.model, *self.flags, "--recipe",
                              "rowwise", "-o", "g8.safetensors"]
        yield "forward rewrite", ["rewrite", self.model, "-o", "forward.onnx",
                                  "--recipe", "tensorwise"]
        shape = ["--shape", ",".join(self.shapes)] if self.shapes else []
        yield "written step", ["rewrite", self.model, "-o", "step.onnx",
                               "--recipe", "delayed", *self.loss, *shape]
        yield "training", self.train(3)

    def train(self, steps):
        return ["train", self.model, *self.flags, "--recipe", "delayed",
                "--steps", steps, "--out", "run"]


def files_in(folder):
    """{name: bytes} of a build's files, without speeds and times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".safetensors", ".onnx"):
            found[str(path.relative_to(folder))] = path.read_bytes()
        if path.name == "metrics.jsonl":
            rows = map(json.loads, path.read_text().splitlines())
            found["losses"] = str([row.get("loss") for row in rows]).encode()
    return found


def differences(case, other, isa, work):
    """The differences between the two builds."""
    folders = [work / "this", work / "other"]
    for folder in folders:
        folder.mkdir()
    for what, words in case.commands():
        this, that = (call(program, folder, *words, *isa)
                      for program, folder in zip(((BIN,), other), folders))
        if this != that:
            yield f"{what}: {this} is not {that}"
    this, that = map(files_in, folders)
    if not this:
        yield "no command writes a file"
    for name in sorted(this.keys() | that.keys()):
        if this.get(name) != that.get(name):
            yield f"{name} differs"
    if not (folders[1] / "run/latest").is_file():
        return  # the data are not for training
    for folder in folders:
        done = call((BIN,), folder, "train", "--resume", "--out", "run", "--steps",
                    5)
        if done[0] != 0:
            yield f"resume: {done}"
    this, that = map(files_in, folders)
    if this != that:
        yield "a run of the other build goes on as another"


def main():
    parser = argparse.ArgumentParser(
        prog="./dev same", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", metavar="NAME")
    parser.add_argument("other", metavar="OTHER", type=shlex.split)
    parser.add_argument("folders", metavar="FOLDER", nargs="*",
                        type=pathlib.Path)
    args = parser.parse_args()
    models = sorted(path.absolute() for folder in args.folders or FOLDERS
                    for path in folder.glob("*/*.onnx")
                    if (path.parent / "reference.json").exists())
    if not models:
        sys.exit("same: no models")
    # The programs run in other folders.
    other = tuple(os.path.abspath(word) if os.path.exists(word) else word
                  for word in args.other)
    isa = ["--isa", args.isa] if args.isa else []
    bad = 0
    for number, model in enumerate(models, 1):
        with tempfile.TemporaryDirectory() as work:
            case = Case(model, pathlib.Path(work))
            found = list(differences(case, other, isa, pathlib.Path(work)))
            files = len(files_in(pathlib.Path(work) / "this"))
        bad += bool(found)
        print(f"[{number}/{len(models)}] {model.parent.name}/{model.name}: "
              f"{'; '.join(found) or f'the same {files} files'}", flush=True)
    print(f"{len(models) - bad} of {len(models)} models are the same")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
