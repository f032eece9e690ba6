# SPDX-License-Identifier: Apache-2.0
"""A new op, loss, optimizer, recipe, setting of a recipe or option of a session changes only these files of the sources:
CONTRIBUTING.md gives their numbers."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("base", "onnx_fp8", "data", "graph", "optimizers", "providers", "training", "cli", "python")
BENCH = ROOT / "cli/bench"  # its cases are no part of an op


def places(pattern):
    """The source files that contain the pattern."""
    return sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in (".h", ".cc", ".cu", ".inc") and BENCH not in path.parents and
                  re.search(pattern, path.read_text()))


@pytest.mark.parametrize("pattern, expected", [
    # Its facts, the kernel of both providers, the rule.
    (r'"DepthToSpace"', ["graph/op_facts.cc", "providers/ops/movement.h", "training/gradients/movement.cc"]),
    # Its facts, two kernels, which the build finds by their Register functions, the rule. It moves what it reads along an
    # axis: the pass that asks for tokens that only attention joins knows it, too.
    (r'"CumProd"|RegisterScan\b',
     ["graph/op_facts.cc", "graph/passes/token_places.cc", "providers/cpu/ops/scan.cc", "providers/cuda/ops/scan.cu",
      "training/gradients/gather.cc"]),
    # The schema with its body and facts, the pass that makes it, two kernels, the rule.
    (r'"Rotary"|RegisterRotary\b',
     ["graph/passes/fuse_rotary.cc", "graph/schemas/rotary.cc", "providers/cpu/ops/rotary.cc",
      "providers/cuda/ops/rotary.cu", "training/gradients/attention.cc"]),
    # The same. (Its transport is in collectives/.)
    (r'"AllReduce"',
     ["graph/schemas/collectives.cc", "providers/cpu/ops/collectives.cc", "providers/cuda/collectives/collectives.cc",
      "training/gradients/collectives.cc", "training/ranks/over_ranks.cc"]),
    # The row, with the functions of the loss; its test.
    (r"bce_with_logits", ["training/step/loss.cc"]),
    # The schema with its body, the update with its row, two kernels.
    (r'"Adam"|"adam"|AppendAdam\b',
     ["graph/schemas/optimizers.cc", "optimizers/adam.cc", "providers/cpu/ops/optimizer.cc",
      "providers/cuda/ops/optimizer.cu"]),
    # The row and the function.
    (r'"mxfp8"|Mxfp8', ["onnx_fp8/recipe.cc"]),
    # The pass that rewrites the graph, the field, the row.
    (r"fast_accum_dgrad", ["graph/fp8/fp8_rewrite.cc", "onnx_fp8/recipe.h", "onnx_fp8/recipe_text.cc"]),
    # The row, the code that reads it.
    (r"max_plans|max-plans", ["onnx_fp8/session_options.inc", "training/session/session.cc"]),
], ids=["op", "op of two kernels", "fused op", "collective", "loss", "optimizer", "recipe", "setting", "option"])
def test_places_of(pattern, expected):
    assert places(pattern) == expected
