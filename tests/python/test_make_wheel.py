# SPDX-License-Identifier: Apache-2.0
"""The tags of a portable wheel. tests/python_package looks at a whole wheel; scripts/try_wheels.py installs portable ones
in older and newer systems."""
import pathlib
import sys
import zipfile

from packaging.tags import cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import make_wheel  # noqa: E402

INFO = "onnx_fp8-0.1.0.dist-info"


def installs(wheel, minor):
    """Whether pip of this Python takes the wheel."""
    return not parse_wheel_filename(wheel.name)[3].isdisjoint(cpython_tags((3, minor), platforms=["linux_x86_64"]))


def test_the_wheel_for_later_versions(tmp_path):
    wheel = tmp_path / "onnx_fp8-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{INFO}/METADATA", "Name: onnx-fp8\n")
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n\n")
        archive.writestr(f"{INFO}/RECORD", "")
    later = make_wheel.tagged(wheel, "cp312", "abi3")
    assert [installs(wheel, minor) for minor in range(10, 15)] == [False, True, False, False, False]
    assert [installs(later, minor) for minor in range(10, 15)] == [False, False, True, True, True]
    with zipfile.ZipFile(later) as archive:
        assert archive.read(f"{INFO}/WHEEL").decode() == "Wheel-Version: 1.0\nTag: cp312-abi3-linux_x86_64\n\n"
        rows = archive.read(f"{INFO}/RECORD").decode().splitlines()
    assert sorted(row.split(",")[0] for row in rows) == [f"{INFO}/METADATA", f"{INFO}/RECORD", f"{INFO}/WHEEL"]
