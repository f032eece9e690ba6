# SPDX-License-Identifier: Apache-2.0
"""Checks that the archives define no function or variable twice.

The linker silently takes the first of two definitions. An inline function (weak)
may be in many objects, but not together with one that is not inline.

  check_symbols.py ARCHIVE..."""
import collections
import pathlib
import re
import subprocess
import sys

# "libgraph.a:verify.cc.o:0000000000000000 T _ZN8onnx_fp86VerifyE…"
LINE = re.compile(r"([^:]+\.a):([^:]+):[0-9a-f]+ ([A-Za-z]) (\S+)")
STRONG, WEAK = "TDBRS", "WVu"


def definitions(archives):
    """{symbol: [(kind, object)]} of all external symbols."""
    listed = subprocess.run(
        ["nm", "--defined-only", "--extern-only", "--print-file-name",
         *archives],
        check=True, capture_output=True, text=True).stdout
    found = collections.defaultdict(list)
    for line in listed.splitlines():
        match = LINE.fullmatch(line)
        if match:
            archive, member, kind, symbol = match.groups()
            found[symbol].append((kind, f"{pathlib.Path(archive).name}:{member}"))
    return found


def twice(found):
    """The symbols with a strong definition and any other one."""
    for symbol, places in sorted(found.items()):
        kinds = [kind for kind, _ in places]
        if len(places) > 1 and any(kind in STRONG for kind in kinds):
            yield symbol, [place for _, place in places]


def readable(symbol):
    return subprocess.run(["c++filt", symbol], check=True, capture_output=True,
                          text=True).stdout.strip()


def main():
    found = definitions(sys.argv[1:])
    if not found:
        print("check_symbols: the archives define nothing")
        return 1
    errors = [f"{readable(symbol)} is defined in {' and '.join(places)}"
              for symbol, places in twice(found)]
    print("\n".join(errors) or f"symbols: {len(found)} are defined once")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
