# SPDX-License-Identifier: Apache-2.0
"""Runs docs/onnxruntime.md: its sh blocks, then its python blocks in one process."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from sessions import LIBRARY, ROOT

BIN = pathlib.Path(os.environ["ONNX_FP8_BIN"])


def test_the_page_runs(tmp_path):
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    release = tmp_path / "build/release"
    release.mkdir(parents=True)
    for file in (BIN, pathlib.Path(LIBRARY)):
        (release / file.name).symlink_to(file)
    page = (ROOT / "docs/onnxruntime.md").read_text()
    for block in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S):
        subprocess.run(["bash", "-euc", block], cwd=tmp_path, check=True, capture_output=True)
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 3
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "[W:onnxruntime" not in done.stderr
    shape, loss = done.stdout.splitlines()
    assert shape.endswith("10)") and float(loss.split()[1]) < 1.5  # at first 2.3
