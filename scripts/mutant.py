# SPDX-License-Identifier: Apache-2.0
"""The mutants of scripts/mutate.py: the line to break, and tests to notice it.

They lie in scripts/mutants/, in the module of the folder that they break.
M(name, file, old, new, tests...): `old` occurs exactly once in the file. Each
test is one of ctest's, narrowed to the cases that check the mutant's line."""
import importlib
import pathlib
from functools import partial
from typing import NamedTuple


class Test(NamedTuple):
    ctest: str
    only: str = ""  # a gtest filter; for pytest an expression of -k

    def __str__(self):
        return f"{self.ctest} ({self.only})" if self.only else self.ctest


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: tuple


def M(name, file, old, new, *tests):
    assert tests and all(isinstance(test, Test) for test in tests), name
    return Mutant(name, file, old, new, tests)


def load():
    """All mutants."""
    folder = pathlib.Path(__file__).parent / "mutants"
    return [mutant for path in sorted(folder.glob("*.py")) for mutant in
            importlib.import_module(f"mutants.{path.stem}").MUTANTS]


base = partial(Test, "test_base")
vocabulary = partial(Test, "test_onnx_fp8")
data = partial(Test, "test_data")
collectives = partial(Test, "test_collectives")
ranks = partial(Test, "test_ranks")
graph = partial(Test, "test_graph")
optimizers = partial(Test, "test_optimizers")
providers = partial(Test, "test_providers")
cuda = partial(Test, "test_cuda_plain")
cuda_checked = partial(Test, "test_cuda_checked")
cudnn = partial(Test, "test_cudnn")
training = partial(Test, "test_training")
training_slow = partial(Test, "test_training_slow")
cli = partial(Test, "test_cli")
fuzz = partial(Test, "test_fuzz")
python = partial(Test, "test_python")
ort = partial(Test, "test_ort")
ort_newest = partial(Test, "test_ort_newest")
bad_input = partial(Test, "test_bad_input")
step_files = partial(Test, "test_step_files")
package = partial(Test, "test_python_package")
