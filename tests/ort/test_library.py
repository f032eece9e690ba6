# SPDX-License-Identifier: Apache-2.0
"""What libonnx_fp8_ort.so exports and needs, and how it lives in a process."""
import re
import subprocess
import sys

import pytest
from sessions import EP, LIBRARY, ROOT, register

MODEL = ROOT / "tests/fixtures/mlp/d18.onnx"

# Runs the mlp with our provider; `sessions` are left for the lines after it.
PROLOG = f"""
import gc, sys
sys.path.insert(0, {str(ROOT / "tests/ort")!r})
import numpy, onnxruntime, sessions
sessions.register()
def run(**options):
    opened = sessions.session({str(MODEL)!r}, options)
    feeds = {{"x": numpy.ones((400, 24), numpy.float32)}}
    assert opened.run(None, feeds)[0].shape[0] == 400
    return opened
def unregister():
    gc.collect()
    onnxruntime.unregister_execution_provider_library(sessions.EP)
"""


def child(code):
    return subprocess.run([sys.executable, "-c", PROLOG + code], text=True, capture_output=True)


def test_exports_three_functions():
    table = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], text=True, capture_output=True, check=True)
    names = {line.split()[-1] for line in table.stdout.splitlines()}
    assert names == {"CreateEpFactories", "ReleaseEpFactory", "RegisterCustomOps"}


def test_needs_only_libraries_that_each_system_has():
    table = subprocess.run(["readelf", "-d", LIBRARY], text=True, capture_output=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(\w+)", table.stdout))
    asan = {"libasan", "libubsan"}
    system = {"libstdc", "libc", "libm", "libgcc_s", "libz", "ld", "libdl", "librt", "libpthread"}
    assert needed - asan <= system


def test_lists_a_device():
    devices = register()
    assert len(devices) == 1 and devices[0].ep_vendor == EP


ENDINGS = {
    "session first": "s = run(); del s; unregister()",
    "two sessions, first first": "a = run(); b = run(); del a; gc.collect(); del b; unregister()",
    "two sessions, last first": "a = run(); b = run(); del b; gc.collect(); del a; unregister()",
    "registered again": "s = run(); del s; unregister(); sessions.register(); s = run(); del s; unregister()",
    "threads of our own": "s = run(pool='own', threads='3'); del s; unregister(); sessions.register(); "
                          "s = run(pool='own', threads='3'); del s; unregister(); import time; time.sleep(.1)",
    "never unregistered": "s = run(); del s",
    "session alive at exit": "s = run()",
    "session that failed": "try: sessions.session('absent.onnx')\nexcept Exception: pass\ns = run(); del s; unregister()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_ends_in_any_order(ending):
    done = child(ENDINGS[ending])
    assert done.returncode == 0, done.stderr
