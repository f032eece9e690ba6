#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Downloads a source package from the index that pip uses. Nothing of it runs.

  fetch_sdist.py NAME-VERSION SHA256 FILE

FILE is there only if its SHA-256 is the expected one. pip itself would run the package's build backend, to ask
for its dependencies.
"""
import hashlib
import os
import pathlib
import sys

import pip_index


def fetch(release, sha256):
    """The bytes of the package."""
    wanted = pip_index.normalized(f"{release}.tar.gz")
    for path in pip_index.local_files():
        if pip_index.normalized(path.name) == wanted:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() == sha256:
                return data
    got = "none"
    for file in pip_index.files(release.rpartition("-")[0]):
        if pip_index.normalized(file.name) != wanted:
            continue
        got = file.sha256
        if got in (sha256, ""):
            data, _ = pip_index.read(file.url)
            got = hashlib.sha256(data).hexdigest()
            if got == sha256:
                return data
    raise pip_index.IndexFault(f"expected {release}.tar.gz with the SHA-256 {sha256}, got {got}")


def main():
    release, sha256, path = sys.argv[1:]
    try:
        data = fetch(release, sha256)
    except pip_index.IndexFault as fault:
        sys.exit(f"{fault}\nA file that you have from elsewhere may be put at {path}")
    part = pathlib.Path(f"{path}.part")
    part.write_bytes(data)
    os.replace(part, path)


if __name__ == "__main__":
    main()
