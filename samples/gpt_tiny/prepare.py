#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn austen.txt.xz into the token files that training reads.

usage: prepare.py [FOLDER]

Writes FOLDER/train.bin and FOLDER/val.bin (default: beside this script). Needs
only Python's standard library. A token is one byte of the text, stored as a
little-endian uint16. The last tenth of the text is held out.

Prints two entropies of the held-out text in nats per byte, to compare a
validation loss with. n(b) is the count of byte b, n(a,b) the count of b
directly after a, and N the number of bytes:

  unigram  H(b)   = - sum over b:   n(b) / N         * log(n(b) / N)
  bigram   H(b|a) = - sum over a,b: n(a,b) / (N - 1) * log(n(a,b) / n(a))
           where n(a) = sum over b of n(a,b)

The counts come from the held-out text itself, so no model that sees only the
byte before can do better on it, whatever it was trained on. A model with a loss
below the bigram entropy uses bytes from further back.
"""
import array
import lzma
import math
import pathlib
import sys
from collections import Counter

HERE = pathlib.Path(__file__).parent
HELD_OUT = 0.1  # of the text


def unigram_entropy(text):
    counts = Counter(text)
    total = len(text)
    return -sum(n / total * math.log(n / total) for n in counts.values())


def bigram_entropy(text):
    pairs = Counter(zip(text, text[1:]))
    before = Counter(text[:-1])
    total = len(text) - 1
    return -sum(
        n / total * math.log(n / before[a]) for (a, _), n in pairs.items()
    )


def write_tokens(path, text):
    tokens = array.array("H", list(text))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())
    print(f"{path}: {len(tokens)} tokens")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE)
    folder.mkdir(parents=True, exist_ok=True)
    text = lzma.decompress((HERE / "austen.txt.xz").read_bytes())
    split = len(text) - round(len(text) * HELD_OUT)
    held_out = text[split:]
    write_tokens(folder / "train.bin", text[:split])
    write_tokens(folder / "val.bin", held_out)
    print(
        "held-out text, nats per byte:",
        f"unigram {unigram_entropy(held_out):.4f},",
        f"bigram {bigram_entropy(held_out):.4f}",
    )


if __name__ == "__main__":
    main()
