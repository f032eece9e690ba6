# SPDX-License-Identifier: Apache-2.0
import sys
import time


def step_text(event):
    text = (f"step {event['step']}/{event['total']}  loss {event['loss']:.5g}  grad norm {event['grad_norm']:.5g}"
            + (f"  update {event['update_amax']:.3g}" if event["update_amax"] >= 0 else "")
            + f"  lr {event['lr']:.5g}  {event['per_second']:.5g} {event['unit']}/s")
    return text if event["seconds_left"] is None else f"{text}  ETA {event['seconds_left']:.0f} s"


def validation_text(event):
    own = ("loss", "accuracy", "perplexity")
    others = event.keys() - {*own, "step", "total", "samples", "tokens", "remark", "cause", "weights"}
    names = [n for n in (*own, *sorted(others)) if n in event]
    return (f"step {event['step']}/{event['total']}  " + "  ".join(f"validation {n} {event[n]:.5g}" for n in names)
            + (f"  ({event['weights']})" if "weights" in event else ""))


class Progress:
    """The progress line of a run on sys.stderr: rewritten in place on a terminal; elsewhere a line at the first step,
    about every ten seconds, and at the last step."""

    def __init__(self):
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._open = False

    def begun(self, event):
        self.print(event["trains"])

    def step(self, event):
        now, last = time.monotonic(), event["step"] == event["total"]
        if now < self._next and not last:
            return
        self._next = now + (0.1 if self._terminal else 10)
        text = step_text(event)
        if self._terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._open = True
        else:
            print(text, file=sys.stderr, flush=True)

    def validation(self, event):
        self.print(validation_text(event))

    def print(self, text):
        self.close()
        print(text, file=sys.stderr, flush=True)

    def close(self):
        if self._open:
            print(file=sys.stderr, flush=True)
        self._open = False
