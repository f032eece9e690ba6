# SPDX-License-Identifier: Apache-2.0
"""The machine on which the figures were taken, and other programs on it."""
import os
import pathlib
import platform
import resource
import subprocess
import sys

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16",
         "amx_tile", "amx_bf16")


def say(text):
    print(f"[bench] {text}", file=sys.stderr, flush=True)


# Switches that limit the peers to the instructions that `--isa` allows this
# program. onnxruntime has no such switch.
LIMITS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
             "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
               "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx512bf16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
}
_limits = {}


def hold_to(isa):
    _limits.update(LIMITS[isa])


def environment(**more):
    """The environment of all benchmarked processes: some machines pin OpenBLAS
    to an old kernel, which would make it a weak opponent."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("OPENBLAS_")}
    return {**kept, **_limits, **more}


def cpu():
    """Model name and flags of the first CPU."""
    entries = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if not line.strip():
            break
        name, _, value = line.partition(":")
        entries[name.strip()] = value.strip()
    flags = entries.get("flags", "").split()
    name = entries.get("model name", platform.processor())
    numbers = [entries.get(n, "?") for n in ("cpu family", "model")]
    return {"cpu": f"{name} (family {numbers[0]}, model {numbers[1]})",
            "cores": len(os.sched_getaffinity(0)),
            "flags": [f for f in FLAGS if f in flags],
            "memory_bytes": os.sysconf("SC_PAGE_SIZE")
            * os.sysconf("SC_PHYS_PAGES"), "kernel": platform.release(),
            "session_groups": session_groups()}


def session_groups():
    """Whether Linux shares CPUs between sessions before threads."""
    switch = pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")
    return switch.is_file() and switch.read_text().strip() == "1"


def commit():
    """The commit of this folder."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"],
                          cwd=pathlib.Path(__file__).parent,
                          capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def has_bf16(flags):
    """Whether there are instructions for it, and they may be used."""
    return (_limits in ({}, LIMITS["avx512bf16"])
            and ("avx512_bf16" in flags or "amx_bf16" in flags))


def _busy_seconds():
    """CPU time of all programs, and of this one with its finished children."""
    first = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system = map(int, first[1:4])
    own = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        own += usage.ru_utime + usage.ru_stime
    return (user + nice + system) / os.sysconf("SC_CLK_TCK"), own


class ForeignLoad:
    """CPUs that other programs kept busy, on average, since the object was made.
    Ask when all children have ended."""

    def __init__(self, clock):
        self._clock = clock
        self._begin = clock(), *_busy_seconds()

    def cpus(self):
        now = self._clock(), *_busy_seconds()
        wall, busy, own = (b - a for a, b in zip(self._begin, now))
        return max(0.0, busy - own) / max(wall, 1e-9)
