# SPDX-License-Identifier: Apache-2.0
"""Runs every `sh` block of PAGES, in order, in a copy of their files. Long runs are cut short. samples/fine_tune needs
PyTorch: tests/python_package runs it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

BIN = pathlib.Path(os.environ["ONNX_FP8_BIN"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ["command_line", "cpp", "fp8", "precision", "distributed", "plan", "onnxruntime_training", "steps", "lora",
        "coming_from", "report"]
PAGES = sorted([ROOT / "README.md", *(ROOT / f"docs/{page}.md" for page in DOCS),
                *(set(ROOT.glob("samples/*/README.md")) - {ROOT / "samples/fine_tune/README.md"})])


def blocks(page):
    return re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S)


def shortened(block):
    """The block with fewer steps, and without ./dev, which runs this test. `cmake
    --install` replaces `./dev install`, which would build first."""
    block = re.sub(r"--steps (\d+)", lambda m: f"--steps {int(m[1]) // 100}",
                   block)
    block = re.sub(r"^\./dev install ",
                   f"cmake --install {BIN.parent} --prefix ", block, flags=re.M)
    return re.sub(r"^\./dev .*$", "", block, flags=re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_command_runs(page, tmp_path):
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    (tmp_path / "artifacts").symlink_to(ROOT / "tests/fixtures/ort_training")
    release = tmp_path / "build/release"
    release.mkdir(parents=True)
    (release / BIN.name).symlink_to(BIN)
    assert blocks(page)
    # A script stands in for torchrun.
    env = os.environ | {"PATH": f"{pathlib.Path(__file__).parent}:{os.environ['PATH']}"}
    for block in blocks(page):
        done = subprocess.run(["bash", "-euc", shortened(block)], cwd=tmp_path, env=env,
                              capture_output=True, text=True)
        assert done.returncode == 0, block + done.stdout + done.stderr


def figures(text):
    """Table rows that begin with a recipe: [(recipe, dB…, MiB…)], in order."""
    rows = re.findall(r"^\| `(\S+)`((?: \| [\d.]+){6}) \|$", text, re.M)
    return [(name, *map(float, cells.split(" | ")[1:]))
            for name, cells in rows]


def test_the_tables_of_ways_are_measured():
    """Another instruction set adds in another order, which changes at most the
    last digit."""
    done = subprocess.run([sys.executable, ROOT / "scripts/ways.py"],
                          capture_output=True, text=True, check=True)
    measured = figures(done.stdout)
    written = figures((ROOT / "docs/fp8.md").read_text())
    assert len(measured) >= 20
    assert [row[0] for row in written] == [row[0] for row in measured]
    for want, got in zip(written, measured):
        assert want[1:4] == pytest.approx(got[1:4], abs=0.11), want[0]
        assert want[4:] == pytest.approx(got[4:], abs=0.011), want[0]
