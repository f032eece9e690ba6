# SPDX-License-Identifier: Apache-2.0
"""Programs that are given a number of seconds. They are interrupted then, as by
Ctrl-C, so that they can print what they have."""
import dataclasses
import itertools
import shlex
import signal
import subprocess
import tempfile
import time

KILLED_AFTER = 10  # seconds after the interruption
LOGS = None  # the folder that gets a file for each run
_number = itertools.count()


@dataclasses.dataclass
class Done:
    code: int
    out: str  # both outputs
    cut: bool  # its time was over

    @property
    def failed(self):
        return self.code != 0 and not self.cut

    def tail(self, lines=25):
        return "\n".join(self.out.splitlines()[-lines:])


def run(command, seconds, errors=True, **kwargs):
    """Runs it to its end, or for `seconds`. `errors`: with what it writes to
    stderr."""
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        begin = time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command], stdout=file,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, **kwargs)
        cut = False
        for ending in (lambda: process.send_signal(signal.SIGINT),
                       process.kill, None):
            try:
                wait = max(0.1, seconds - (time.monotonic() - begin))
                process.wait(KILLED_AFTER if cut else wait)
                break
            except subprocess.TimeoutExpired:
                cut = True
                ending()
        file.seek(0)
        done = Done(process.wait(), file.read(), cut)
        if LOGS:
            line = shlex.join(str(word) for word in command)
            (LOGS / f"{next(_number):03}.log").write_text(
                f"{line}\n{done.out}\nexit code {done.code}, "
                f"{time.monotonic() - begin:.1f} s\n")
        return done
