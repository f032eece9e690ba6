# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows: the progress of a run with its curve, and results as tables."""
import html
import math
import sys
import time

from ._progress import step_text, validation_text

_WIDTH, _HEIGHT, _PAD = 600, 140, 8
_ROWS = 50  # of a table


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


class _Curve:
    """The lowest and the highest loss of each column of a picture: as much memory for any number of steps."""

    def __init__(self):
        self.columns, self.marks = {}, {}

    def add(self, step, total, loss):
        at = round(step * 200 / total)
        low, high = self.columns.get(at, (loss, loss))
        self.columns[at] = (min(low, loss), max(high, loss))

    def svg(self):
        numbers = [n for pair in self.columns.values() for n in pair] + list(self.marks.values())
        if len(self.columns) < 2:
            return ""
        low, high = min(numbers), max(numbers)
        span = (high - low) or 1

        def point(at, loss):
            return (f"{_PAD + at / 200 * (_WIDTH - 2 * _PAD):.1f},"
                    f"{_HEIGHT - _PAD - (loss - low) / span * (_HEIGHT - 2 * _PAD):.1f}")

        line = " ".join(point(at, n) for at, pair in sorted(self.columns.items()) for n in dict.fromkeys(pair))
        marks = "".join('<circle cx="{}" cy="{}" r="3" fill="currentColor"/>'.format(*point(at, n).split(","))
                        for at, n in self.marks.items())
        return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" style="max-width:{_WIDTH}px" role="img" '
                f'aria-label="loss from {high:.5g} to {low:.5g}">'
                f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>{marks}</svg>'
                f"<div>loss: {low:.5g} … {high:.5g}{', validations are dots' if self.marks else ''}</div>")


class NotebookProgress:
    """The progress of a run as one output of a cell, which changes twice a second: a bar, numbers, and the curve of the
    loss."""

    def __init__(self):
        self._handle, self._next = None, 0.0
        self._curve, self._text, self._share = _Curve(), {}, 0

    def begun(self, event):
        self._text["begun"] = event["trains"]
        self._draw()

    def step(self, event):
        if math.isfinite(event["loss"]):
            self._curve.add(event["step"], event["total"], event["loss"])
        self._text["step"], self._share = step_text(event), event["step"] / event["total"]
        now = time.monotonic()
        if now >= self._next or event["step"] == event["total"]:
            self._next = now + 0.5
            self._draw()

    def validation(self, event):
        if math.isfinite(event["loss"]):
            self._curve.marks[round(event["step"] * 200 / event["total"])] = event["loss"]
        self._text["validation"] = validation_text(event)
        self._draw()

    def print(self, text):
        self._text["last"] = text
        self._draw()

    def close(self):
        pass

    def _draw(self):
        from IPython.display import HTML, display

        lines = "".join(f"<div>{html.escape(text)}</div>" for text in self._text.values())
        page = HTML(f'<progress value="{self._share:.4f}" max="1" style="width:100%;max-width:{_WIDTH}px"></progress>'
                    f"{lines}{self._curve.svg()}")
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)


def _cell(value):
    return html.escape(f"{value:.6g}" if isinstance(value, float) else str(value))


def _rows(rows):
    """A table of dicts."""
    keys = list(dict.fromkeys(key for row in rows[:_ROWS] for key in row))
    head = "".join(f"<th>{html.escape(key)}</th>" for key in keys)
    body = "".join("<tr>" + "".join(f"<td>{_cell(row[key]) if key in row else ''}</td>" for key in keys) + "</tr>"
                   for row in rows[:_ROWS])
    more = f"<div>… and {len(rows) - _ROWS} more</div>" if len(rows) > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _table(value):
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            shown = _table(item)
        elif isinstance(item, list) and item and all(isinstance(row, dict) for row in item):
            shown = f"<details><summary>{len(item)}</summary>{_rows(item)}</details>"
        else:
            shown = _cell(item)
        lines.append(f"<tr><th>{html.escape(str(key))}</th><td>{shown}</td></tr>")
    return f"<table><tbody>{''.join(lines)}</tbody></table>"


class Result(dict):
    """A dict that a notebook shows as a table; lists of dicts unfold, up to 50 rows of each."""

    def _repr_html_(self):
        return _table(self)
