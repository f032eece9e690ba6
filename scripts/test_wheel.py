#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of a build, installs it into a new virtual environment, and runs
tests/python_package there.

  test_wheel.py BUILD [PYTEST_ARGUMENT...]

The environment sees the packages of the test environment, but not this tree.
"""
import pathlib
import subprocess
import sys
import sysconfig
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    folder = build / "wheel"
    subprocess.run([sys.executable, ROOT / "scripts/make_wheel.py", build, folder], check=True)
    home = folder / "venv"
    venv.create(home, clear=True, with_pip=True, symlinks=True)
    python = home / "bin/python"
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    [wheel] = folder.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", wheel],
                   check=True)
    tests = ROOT / "tests/python_package"
    sys.exit(subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(sys.argv[2:] or [tests])],
                            cwd=tests).returncode)


if __name__ == "__main__":
    main()
