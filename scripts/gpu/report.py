# SPDX-License-Identifier: Apache-2.0
"""The report of scripts/gpu_check.sh: sections that share a number of seconds.
It is written again after each section, so nothing is lost if the machine is
taken away."""
import time

import short_json


class LeftOut(Exception):
    """A section that this machine can't run; the text says why."""


class OutOfTime(Exception):
    """The time was over before the first figure. The text names the work that
    was cut off."""


def code(text):
    return f"```\n{text.strip()}\n```"


def table(header, rows):
    """Markdown; all columns but the first are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


class Section:
    """What a check found out. It must be done after `seconds`."""

    def __init__(self, title, seconds, before=None):
        self.title = title
        self.before = before or {}  # figures of a call in the same window
        self.texts, self.data = [], {}  # data: the figures
        self.failures, self.cuts, self.left_out = [], [], ""
        self.passed_tests, self.seconds = [], 0
        self._end = time.monotonic() + seconds

    def left(self):
        return self._end - time.monotonic()

    def add(self, text):
        self.texts.append(text)

    def fail(self, what):
        self.failures.append(what)

    def cut(self, what):
        """`what` was not done, because the time was over."""
        self.cuts.append(what)

    def outcome(self):
        """How the section went, and its figures under a key of their own."""
        return {"failures": self.failures, "cut_off": self.cuts,
                "left_out": self.left_out, "seconds": self.seconds,
                "figures": self.data}

    def result(self):
        return "FAILED" if self.failures else "cut off" if self.cuts \
            else "left out" if self.left_out else "ok"

    def markdown(self):
        lines = [f"## {self.title}", *self.texts]
        lines += [f"**FAILED**: {what}" for what in self.failures]
        lines += [f"cut off by the time budget: {what}" for what in self.cuts]
        return "\n\n".join(lines) + "\n"


class Report:
    def __init__(self, title, seconds, markdown, figures, history=None):
        self._history = history
        self._title, self._markdown, self._figures = title, markdown, figures
        self._end = time.monotonic() + seconds
        self._saved = 0.0
        self._done, self._begin = [], time.monotonic()
        self.failed = False

    def section(self, title, seconds, check):
        """`check(section)` gets `seconds`, and the seconds that earlier
        sections did not need, but no more than are left."""
        begin = time.monotonic()
        allowed = min(seconds + self._saved, self._end - begin)
        before = self._history.before(title) if self._history else None
        section = Section(title, allowed, before and before["figures"])
        whole = before and not before["cut_off"] and not before["failures"]
        if whole:
            section.add("It was measured in this window before.")
            section.data.update(section.before)
        elif allowed < 1:
            section.cut("all of it")
        else:
            try:
                check(section)
            except LeftOut as why:
                section.add(f"left out: {why}")
                section.left_out = str(why)
            except OutOfTime as what:
                section.cut(str(what))
            except Exception as error:  # the other sections still count
                section.fail(f"{type(error).__name__}: {error}")
        took = time.monotonic() - begin
        self._saved = max(0.0, self._saved + seconds - took)
        section.seconds = round(took, 1)
        self.failed |= bool(section.failures)
        self._done.append(section)
        if self._history and not whole and allowed >= 1:
            self._history.add(title, section.outcome(), section.passed_tests)
        self._write()

    def _write(self):
        summary = table(["section", "seconds", "result"], [
            [s.title, s.seconds, s.result()] for s in self._done])
        parts = [f"# {self._title}\n", summary + "\n",
                 *(s.markdown() for s in self._done)]
        text = "\n".join(parts)
        if self._markdown:
            self._markdown.write_text(text)
        else:
            self._text = text
        if self._figures:
            # The history has all of them, because a later call goes on there.
            self._figures.write_text(short_json.text(short_json.short(
                {s.title: s.outcome() for s in self._done})))

    def finish(self):
        """Prints the report if it has no file."""
        if not self._markdown:
            print(self._text)
