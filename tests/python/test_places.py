# SPDX-License-Identifier: Apache-2.0
"""A new loss, optimizer, setting of a recipe or option of a session changes only these files of the sources: CONTRIBUTING.md
gives their numbers."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("base", "onnx_fp8", "data", "graph", "optimizers", "providers", "training", "cli", "python")


def places(pattern):
    """The source files that contain the pattern."""
    return sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in (".h", ".cc", ".inc") and re.search(pattern, path.read_text()))


@pytest.mark.parametrize("pattern, expected", [
    # The row, with the functions of the loss; its test.
    (r"bce_with_logits", ["training/step/loss.cc"]),
    # The schema with its body, the update, the row, the kernel.
    (r'"Adam"|"adam"|AppendAdam\b',
     ["graph/schemas/optimizers.cc", "optimizers/adam.cc", "optimizers/update.h", "providers/cpu/ops/optimizer.cc"]),
    # The pass that rewrites the graph, the field, the row.
    (r"fast_accum_dgrad", ["graph/fp8/fp8_rewrite.cc", "onnx_fp8/recipe.h", "onnx_fp8/recipe_text.cc"]),
    # The row, the code that reads it.
    (r"max_plans|max-plans", ["onnx_fp8/session_options.inc", "training/session/session.cc"]),
], ids=["loss", "optimizer", "recipe", "option"])
def test_places_of(pattern, expected):
    assert places(pattern) == expected
