#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the hashes of all wheels into scripts/requirements*.txt, or other files.

  hash_requirements.py [FILE...]
  hash_requirements.py --check

The index that pip uses publishes the hashes. The files get the hashes of wheels that CPython 3.11 or later can use on
Linux, x86-64. Comments and the order of packages stay. --check asks no index. It checks that every package has one
version and a hash, and that requirements-build.txt has the versions of pyproject.toml and requirements.txt.
"""
import pathlib
import re
import sys
import tomllib

import pip_index

ROOT = pathlib.Path(__file__).resolve().parent.parent
OLDEST = 11  # CPython 3.11
PIN = re.compile(r"([A-Za-z0-9][\w.-]*)==([\w.+!]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def parse(text):
    """Lines in order: a string (a comment, an empty line) or (name, version, hashes). ValueError: another line."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip() or line.startswith("#"):
            yield line
            continue
        pin, *hashes = line.split()
        name = PIN.fullmatch(pin)
        hashes = [HASH.fullmatch(word) for word in hashes]
        if not name or not all(hashes):
            raise ValueError(f"expected NAME==VERSION and --hash=sha256:HEX alone, got {line}")
        yield *name.groups(), [found[1] for found in hashes]


def pins(path):
    """{normalized name: version}"""
    return {pip_index.normalized(item[0]): item[1] for item in parse(path.read_text()) if not isinstance(item, str)}


def usable(wheel):
    """Whether CPython 3.11 or later can use a wheel of this name on Linux, x86-64, with glibc."""
    python, abi, platform = (part.split(".") for part in wheel.removesuffix(".whl").split("-")[-3:])
    if not any(re.fullmatch(r"any|(many)?linux\w*_x86_64", word) for word in platform):
        return False
    if any(re.fullmatch(r"py3\d*", word) for word in python):
        return "none" in abi
    minors = [int(word[3:]) for word in python if re.fullmatch(r"cp3\d+", word)]
    return "abi3" in abi and bool(minors) or any(
        minor >= OLDEST and ("none" in abi or f"cp3{minor}" in abi) for minor in minors)


def published(name, version):
    """The hashes of the usable wheels."""
    wheels = [file for file in pip_index.files(name) if file.name.endswith(".whl") and
              file.name.split("-")[1] == version and usable(file.name)]
    if not wheels:
        raise pip_index.IndexFault(f"{name}=={version}: the index has no wheel for Python 3.{OLDEST} or later on Linux")
    without = [file.name for file in wheels if not file.sha256]
    if without:
        raise pip_index.IndexFault(f"{name}=={version}: the index publishes no SHA-256 of {without[0]}")
    return sorted({file.sha256 for file in wheels})


def written(items):
    return "".join((item if isinstance(item, str) else " \\\n    ".join(
        [f"{item[0]}=={item[1]}", *(f"--hash=sha256:{digest}" for digest in item[2])])) + "\n" for item in items)


def refresh(path):
    path.write_text(written([item if isinstance(item, str) else (*item[:2], published(*item[:2]))
                             for item in parse(path.read_text())]))


def faults():
    """What --check finds."""
    for path in sorted(ROOT.glob("scripts/requirements*.txt")):
        name = path.relative_to(ROOT)
        try:
            items = list(parse(path.read_text()))
        except ValueError as fault:
            yield f"{name}: {fault}"
            continue
        packages = [item for item in items if not isinstance(item, str)]
        yield from (f"{name}: {item[0]}=={item[1]} has no hash: run scripts/hash_requirements.py"
                    for item in packages if not item[2])
        if len(pins(path)) < len(packages):
            yield f"{name}: a package has two lines"
    build = pins(ROOT / "scripts/requirements-build.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for file, others in (("requirements.txt", pins(ROOT / "scripts/requirements.txt")), ("pyproject.toml", {
            pip_index.normalized(name): version for name, version in (word.split("==") for word in project)})):
        yield from (f"scripts/requirements-build.txt: {name}=={build.get(name)}, in {file} {version}"
                    for name, version in others.items()
                    if build.get(name) != version and (name in build or file == "pyproject.toml"))


def main():
    if sys.argv[1:] == ["--check"]:
        found = list(faults())
        if found:
            sys.exit("\n".join(found))
        print("requirements: all have hashes")
        return
    paths = [pathlib.Path(word) for word in sys.argv[1:]] or sorted(ROOT.glob("scripts/requirements*.txt"))
    try:
        for path in paths:
            refresh(path)
            print(path)
    except (ValueError, pip_index.IndexFault) as fault:
        sys.exit(f"{path}: {fault}")


if __name__ == "__main__":
    main()
