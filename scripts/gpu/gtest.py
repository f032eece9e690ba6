# SPDX-License-Identifier: Apache-2.0
"""The tests of a GoogleTest program, several processes at a time. An error of
the GPU's can't be undone within a process: all tests that follow fail, too. So
the tests that failed run again, each in a process of its own."""
import concurrent.futures
import os
import re

from gpu import runs


def names(program, seconds, outcome):
    done = runs.run([program, "--gtest_list_tests"], seconds)
    outcome.cut |= done.cut
    if done.failed:
        outcome.failed["the list of tests"] = done.tail()
    found, suite = [], ""
    for line in done.out.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            found.append(suite + word)
        elif word.endswith("."):
            suite = word
    return found


class Outcome:
    def __init__(self):
        self.passed, self.failed = set(), {}  # failed: {name: output}
        self.left_out, self.cut = set(), False

    def add(self, wanted, done):
        """The tests of `wanted` that did not run, because the program ended."""
        passed = set(re.findall(r"^\[ +OK \] (\S+)", done.out, re.M))
        begun = re.findall(r"^\[ RUN +\] (\S+)", done.out, re.M)
        self.passed |= passed
        self.left_out.update(re.findall(r"^left out: .*", done.out, re.M))
        for name in begun:
            if name not in passed and not (done.cut and name == begun[-1]):
                self.failed[name] = _of(name, done.out)
        left = [name for name in wanted if name not in begun]
        if done.cut:
            self.cut |= bool(left) or not done.out
            return []
        if left and not begun:
            self.failed.update(dict.fromkeys(left, done.tail()))
            return []
        return left


def _of(name, text):
    """What a test printed, from its first line to the next test's."""
    begin = text.index(f" {name}\n")
    end = text.find("[ RUN ", begin)
    return text[begin:end if end >= 0 else None].strip()


def run(program, left, known=frozenset(), workers=None):
    """`left()`: the seconds that are left. `known`: tests that have passed on
    such a machine before; the others come first."""
    outcome = Outcome()
    wanted = sorted(names(program, left(), outcome),
                    key=lambda name: name in known)
    workers = workers or max(1, len(os.sched_getaffinity(0)) // 2)

    def some(part):
        while part and left() > 1:
            done = runs.run([program, "--gtest_filter=" + ":".join(part)],
                            left())
            part = outcome.add(part, done)
        outcome.cut |= bool(part)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(some, (wanted[i::workers] for i in range(workers))))
        first, outcome.failed = outcome.failed, {}
        list(pool.map(some, ([name] for name in first if name in wanted)))
    for name, text in first.items():
        if name not in outcome.passed:  # there was no time to run it again
            outcome.failed.setdefault(name, text)
    return outcome
