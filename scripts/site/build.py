#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation site: build.py OUT [SOURCE]. A dead link, or an anchor that does not exist, is an error."""
import pathlib
import sys

from sphinx.cmd.build import main

HERE = pathlib.Path(__file__).resolve().parent


def build(out, source=HERE.parents[1]):
    return main(["--quiet", "--fail-on-warning", "--keep-going", "--nitpicky", "--jobs", "2",
                 "--conf-dir", str(HERE), str(source), str(out)])


if __name__ == "__main__":
    sys.exit(build(*sys.argv[1:]))
