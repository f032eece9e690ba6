# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks: under mpirun, or with the variables that torchrun sets."""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import uuid

import pytest
from program import BIN, leave_out

LAUNCHER = shutil.which("mpirun.mpich") or shutil.which("mpirun")
MODULE = pathlib.Path(BIN).parent / "libonnx_fp8_mpi.so"
TORCHRUN = pathlib.Path(__file__).parent / "torchrun"  # a script in its place


def need_mpi():
    if not LAUNCHER or not MODULE.exists():
        leave_out("training on several ranks of MPI: it is not installed")
        pytest.skip("no MPI")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def torchrun_variables(rank, ranks, port):
    return {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port}


class Job:
    """Programs that run, one for each rank. A program is a list of words. The launcher is mpirun, torchrun, which starts
    the first program for all ranks, or "variables": each process gets the variables that torchrun would set."""

    def __init__(self, programs, launcher="mpirun"):
        self.id = str(uuid.uuid4())
        programs = [list(map(str, program)) for program in programs]
        self.size = len(programs)
        if launcher == "mpirun":
            words = [LAUNCHER]
            for program in programs:
                words += ["-n", "1", *program, ":"]
            self.processes = [self._start(words[:-1], {})]
        elif launcher == "torchrun":
            self.processes = [self._start([TORCHRUN, "--no-python", "--nproc-per-node", str(self.size), *programs[0]], {})]
        else:
            port = free_port()
            self.processes = [self._start(program, torchrun_variables(rank, self.size, port))
                              for rank, program in enumerate(programs)]

    def _start(self, words, variables):
        env = os.environ | {"ONNX_FP8_TEST_JOB": self.id} | {name: str(value) for name, value in variables.items()}
        return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pids(self):
        """Processes that run the program, by rank."""
        pids = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                words = dict(w.split("=", 1) for w in path.read_text().split("\0") if "=" in w)
                if words.get("ONNX_FP8_TEST_JOB") == self.id and (path.parent / "exe").resolve().name == pathlib.Path(BIN).name:
                    pids[int(words.get("PMI_RANK") or words["RANK"])] = int(path.parent.name)
            except (OSError, ValueError, KeyError):
                continue
        return pids

    def wait_for(self, what):
        """Until what() is true."""
        end = time.monotonic() + 60
        while not what():
            assert time.monotonic() < end and all(p.poll() is None for p in self.processes), self.end()
            time.sleep(0.02)

    def all_pids(self):
        """The same once there are all."""
        self.wait_for(lambda: len(self.pids()) == self.size)
        return self.pids()

    def end(self, timeout=120):
        """The exit codes and all that was printed, when the job has ended."""
        texts = []
        try:
            for process in self.processes:
                texts += process.communicate(timeout=timeout)
        finally:
            self.kill()
        return [process.returncode for process in self.processes], "".join(texts)

    def kill(self):
        for pid in [*self.pids().values(), *(p.pid for p in self.processes if p.poll() is None)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.communicate()


def job_of(n, *arguments, mesh=None, **options):
    """The program on n ranks, with the same arguments on each."""
    return Job([[BIN, *arguments, "--mesh", mesh or f"dp={n}", "--threads", 1]] * n, **options)
