# SPDX-License-Identifier: Apache-2.0
"""The checks of scripts/gpu_check.sh, which says how to call it."""
import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

from gpu import (attention, compile_cache, end_to_end, gtest, history, layers,
                 llama, llama_8b, losses, predictions, report, runs,
                 timeline)

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Checks:
    """Each method is a section; its first line is the title."""

    def __init__(self, chosen):
        self.provider, self.quick = chosen.provider, chosen.quick
        self.binary, self.tests = chosen.binary, chosen.tests
        self.history, self.gpu = chosen.history, chosen.gpu
        self.compiled, self.unpacked = chosen.compiled, chosen.unpacked
        self._folder, self._gpt = tempfile.TemporaryDirectory(), None

    def machine(self, section):
        """Machine"""
        commands = [[self.binary, "version"]]
        smi = shutil.which("nvidia-smi")
        if smi and self.provider == "cuda":
            commands.append(
                [smi, "--query-gpu=name,driver_version,memory.total,"
                 "clocks.sm,clocks.max.sm,power.limit", "--format=csv"])
        for command in commands:
            done = runs.run(command, max(1, section.left()))
            section.add(report.code(done.tail()))
            if done.cut:
                section.cut(" ".join(map(str, command)))
            elif done.code and command[0] == self.binary:
                section.fail("the program does not start")
        version = runs.run([self.binary, "version", "--json"], 10, errors=False)
        if version.cut:
            section.cut("the program's version")
        else:
            section.data["version"] = json.loads(version.out)
        self._say(section, self.unpacked)

    def kernels(self, section):
        """Kernels and training beside the CPU"""
        self._require_gpu()
        outcome = gtest.run(self.tests, section.left, self.history.tests())
        self._tests(section, outcome)

    def memcheck(self, section):
        """compute-sanitizer memcheck"""
        self._sanitizer(section, "memcheck")

    def racecheck(self, section):
        """compute-sanitizer racecheck"""
        self._sanitizer(section, "racecheck")

    def timeline(self, section):
        """Three steps as the GPU runs them"""
        timeline.check(section, lambda: self._task(section), self.binary,
                       self.provider, predictions.of(self.gpu, "timeline"))

    def nodes(self, section):
        """Nodes alone, beside the roofline"""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "nodes.json")
            quick = ["--quick", "--seconds", "0"] if self.quick else []
            done = runs.run(
                [self.binary, "bench", "nodes", "--provider", self.provider,
                 "--save", file, *quick], section.left())
            progress = re.compile(r"^\d+/\d+ .*\n", re.M)
            section.add(report.code(progress.sub("", done.out)))
            figures = json.loads(file.read_text()) if file.exists() else {}
            # An earlier call may have had more time.
            section.data.update(max(
                figures, section.before, key=lambda f: len(f.get("nodes", []))))
            if done.cut:
                section.cut("the nodes that the table lacks")
            elif done.failed:
                section.fail("some nodes failed, are wrong, or none ran")

    def attention(self, section):
        """Attention alone, in one call and in slices"""
        attention.check(section, self.binary, self.provider, self.quick,
                        predictions.of(self.gpu, "attention"))

    def layers(self, section):
        """Layers in FP8 beside torchao's published speed-ups"""
        layers.check(section, self.binary, self.provider, self.quick)

    def end_to_end(self, section):
        """Training steps beside PyTorch and torchao"""
        end_to_end.check(section, self._task(section), self.binary,
                         self.provider, self.quick,
                         predictions.of(self.gpu, "end_to_end"))
        self._say(section, self.compiled.pack())

    def llama(self, section):
        """Four layers of Llama-3-8B's width"""
        llama.check(section, self.binary, self.provider, self.quick,
                    predictions.of(self.gpu, "llama"))
        self._say(section, self.compiled.pack())

    def llama_8b(self, section):
        """All of Llama-3-8B, and its memory beside the plan's"""
        llama_8b.check(section, self.binary, self.provider, self.quick,
                       self.gpu)

    def losses(self, section):
        """Loss curves beside the CPU's"""
        losses.check(section, self.binary, self.provider, self.quick)

    def _task(self, section):
        """The model and the data that two sections share."""
        if not self._gpt:
            self._gpt = end_to_end.Task(pathlib.Path(self._folder.name),
                                        section, self.quick)
        return self._gpt

    def _say(self, section, text):
        if text:
            section.add(text)

    def _require_gpu(self):
        if self.provider != "cuda":
            raise report.LeftOut(f"the provider is {self.provider}")
        if not pathlib.Path(self.tests).exists():
            raise report.LeftOut(f"there is no {self.tests}")

    def _sanitizer(self, section, tool):
        self._require_gpu()
        program = shutil.which("compute-sanitizer")
        if not program:
            raise report.LeftOut("this machine lacks compute-sanitizer")
        outcome = gtest.Outcome()
        done = runs.run([program, "--tool", tool, "--error-exitcode", "1",
                         self.tests, "--gtest_filter=*CudaKernelsTest*"],
                        section.left())
        outcome.add([], done)
        outcome.cut |= done.cut
        self._tests(section, outcome)
        if done.failed and not outcome.failed:
            section.add(report.code(done.tail(60)))
            section.fail(f"exit code {done.code}")

    def _tests(self, section, outcome):
        section.data.update(passed=len(outcome.passed),
                            failed=sorted(outcome.failed))
        if section.title == Checks.kernels.__doc__:
            section.passed_tests = sorted(outcome.passed)
        section.add(f"{len(outcome.passed)} tests passed.")
        if outcome.left_out:
            section.add(report.code("\n".join(sorted(outcome.left_out))))
        for name, text in outcome.failed.items():
            lines = text.splitlines()
            section.add(report.code("\n".join(lines[:12])))
        if outcome.failed:
            section.fail(f"{len(outcome.failed)} tests: "
                         + ", ".join(sorted(outcome.failed)))
        if outcome.cut:
            section.cut("the tests that follow")


# Seconds of each section, the most telling ones first. With the start of a
# machine they fit a window of fifteen minutes. A program that does not end when
# it is interrupted takes ten more.
SECTIONS = (("machine", 10), ("kernels", 35), ("timeline", 35),
            ("end_to_end", 100), ("llama", 100),
            ("llama_8b", 120), ("nodes", 35),
            ("attention", 30), ("layers", 25), ("losses", 15), ("memcheck", 20),
            ("racecheck", 15))
BUDGET = sum(seconds for _, seconds in SECTIONS)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh")
    add = parser.add_argument
    add("report", nargs="?", type=pathlib.Path,
        help="Markdown file (default: standard output)")
    add("--json", type=pathlib.Path, help="write the figures")
    add("--logs", type=pathlib.Path,
        help="folder that gets all that programs print")
    add("--history", metavar="FOLDER",
        help="what machines with such a GPU have shown so far, by kind; a call "
        "that follows within half an hour goes on where this one stopped")
    add("--compile-cache", metavar="FOLDER",
        default=ROOT / "build/release/compile-cache",
        help="what PyTorch compiles; with --history an archive there keeps it "
        "for the next machine with such a GPU")
    add("--provider", choices=("cuda", "cpu"), default="cuda")
    add("--quick", action="store_true", help="check this script, not the GPU")
    add("--budget", type=float, default=BUDGET,
        help=f"seconds in all ({BUDGET})")
    add("--only", type=lambda text: text.split(","),
        default=[name for name, _ in SECTIONS],
        help="some of " + ",".join(name for name, _ in SECTIONS) +
        ", which share the budget")
    add("--binary", default=ROOT / "build/release/onnx-fp8",
        help=argparse.SUPPRESS)
    add("--tests", default=ROOT / "build/release/test_cuda_device",
        help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    for name in chosen.only:
        if name not in dict(SECTIONS):
            parser.error(f"there is no section {name}")
    return chosen


def main(arguments=None):
    chosen = parse(arguments)
    if chosen.logs:
        chosen.logs.mkdir(parents=True, exist_ok=True)
    runs.LOGS = chosen.logs
    chosen.gpu = history.gpu_name(chosen.provider)
    chosen.compiled = compile_cache.CompileCache(
        chosen.compile_cache, chosen.history and pathlib.Path(
            chosen.history, f"{chosen.gpu}.compile-cache.tar.gz"))
    chosen.unpacked = chosen.compiled.unpack()
    os.environ.update(chosen.compiled.environment())
    chosen.history = history.History(chosen.history, chosen.gpu,
                                     history.digest(chosen.binary))
    checks = Checks(chosen)
    whole = report.Report(f"The provider {chosen.provider} on this machine",
                          chosen.budget, chosen.report, chosen.json,
                          chosen.history)
    share = chosen.budget / sum(seconds for name, seconds in SECTIONS
                                if name in chosen.only)
    for name, seconds in SECTIONS:
        if name in chosen.only:
            method = getattr(checks, name)
            whole.section(method.__doc__.strip(), seconds * share, method)
    whole.finish()
    return 1 if whole.failed else 0


if __name__ == "__main__":
    sys.exit(main())
