# SPDX-License-Identifier: Apache-2.0
"""One more loss, optimizer, setting of a recipe or flag of a session is one more row in these files and nothing else
in the sources: the numbers that CONTRIBUTING.md tells."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("base", "onnx_fp8", "data", "graph", "optimizers", "providers", "training", "cli")


def places(pattern):
    """The files of the sources that the pattern is in."""
    return sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in (".h", ".cc") and re.search(pattern, path.read_text()))


@pytest.mark.parametrize("pattern, expected", [
    # The row, with the functions of the loss; its test.
    (r"bce_with_logits", ["training/loss.cc"]),
    # The schema with its body, the update, the row, the kernel.
    (r'"SGD"|"sgd"|AppendSgd',
     ["graph/schemas/optimizers.cc", "optimizers/sgd.cc", "optimizers/update.h", "providers/cpu/ops/optimizer.cc"]),
    # Where the graph is rewritten, the field, the row.
    (r"fast_accum_dgrad", ["graph/fp8/fp8_rewrite.cc", "onnx_fp8/recipe.h", "onnx_fp8/recipe_text.cc"]),
    # The flag, the field, where it is read.
    (r"max_plans|max-plans", ["cli/options.cc", "onnx_fp8/session.h", "training/session.cc"]),
], ids=["loss", "optimizer", "recipe", "flag"])
def test_places_of(pattern, expected):
    assert places(pattern) == expected
