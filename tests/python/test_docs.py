# SPDX-License-Identifier: Apache-2.0
"""Runs every `sh` block of the README and of the samples' READMEs, in order,
in a copy of what they read. Long runs are cut short."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

BIN = pathlib.Path(os.environ["ONNX_FP8_BIN"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("samples/*/README.md")])


def blocks(page):
    return re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S)


def shortened(block):
    """Fewer steps, and without ./dev, which the test itself runs under."""
    block = re.sub(r"--steps (\d+)", lambda m: f"--steps {int(m[1]) // 100}",
                   block)
    return re.sub(r"^\./dev .*$", "", block, flags=re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.parent.name)
def test_every_command_runs(page, tmp_path):
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    release = tmp_path / "build/release"
    release.mkdir(parents=True)
    for program in [BIN, *BIN.parent.glob("sample_*")]:
        (release / program.name).symlink_to(program)
    assert blocks(page)
    for block in blocks(page):
        done = subprocess.run(["bash", "-euc", shortened(block)], cwd=tmp_path,
                              capture_output=True, text=True)
        assert done.returncode == 0, block + done.stdout + done.stderr
