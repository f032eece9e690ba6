# SPDX-License-Identifier: Apache-2.0
"""`train --mesh dp=N` with torchrun's variables, over TCP, against one process; a small script stands in for torchrun."""
import os
import subprocess

import numpy as np
import pytest
from program import BIN, FIXTURES, losses, metrics, run, write_random
from rank_jobs import TORCHRUN, Job, free_port, job_of, torchrun_variables

MLP = FIXTURES / "mlp" / "d18.onnx"


def flags_of(tmp_path):
    return [MLP, "--data", write_random(tmp_path / "d.npz", 40), "--loss", "cross_entropy", "--batch-size", 8]


@pytest.mark.parametrize("mesh,n,shard", [("dp=3", 3, "none"), ("dp=3", 3, "parameters"), ("dp=2,tp=2", 4, "parameters")])
def test_losses_are_those_of_one_process(tmp_path, mesh, n, shard):
    flags = ["train", *flags_of(tmp_path), "--save-every", 3]
    run(*flags, "--steps", 8, "--out", tmp_path / "one")
    out = tmp_path / "many"
    for steps in (4, 8):
        words = [*flags, "--steps", steps, "--out", out, "--shard", shard, "--resume"]
        codes, text = job_of(n, *words, mesh=mesh, launcher="variables").end()
        assert codes == [0] * n, text
        assert text.count("trained 4 steps") == 1
    one, many = losses(tmp_path / "one"), losses(out)
    assert list(one) == list(many) == list(range(1, 9))
    np.testing.assert_allclose(list(many.values()), list(one.values()), rtol=1e-6)


def test_torchrun_itself_holds_the_port(tmp_path):
    words = [TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", 2, BIN, "train", *flags_of(tmp_path), "--steps", 5,
             "--out", tmp_path / "run", "--threads", 1, "--mesh"]
    subprocess.run([*map(str, words), "dp=2"], check=True, capture_output=True)
    assert len(metrics(tmp_path / "run")) == 5
    done = subprocess.run([*map(str, words), "dp=3"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "[torchrun] expected 3 ranks, the product of the mesh, got WORLD_SIZE 2" in done.stderr


def test_errors(tmp_path):
    flags = ["train", *flags_of(tmp_path), "--steps", 2, "--out", tmp_path / "run"]

    def error(mesh, **changed):
        variables = torchrun_variables(0, 2, free_port()) | changed
        env = os.environ | {name: str(value) for name, value in variables.items() if value is not None}
        return run(*flags, *mesh, code=1, env=env).stderr

    dp2 = ["--mesh", "dp=2"]
    assert "expected --mesh dp=2 for the 2 processes that torchrun has launched, got no mesh" in error([])
    assert "[MASTER_ADDR] expected where rank 0 listens, as WORLD_SIZE is 2, got nothing" in error(dp2, MASTER_ADDR=None)
    assert "[RANK] expected a number below WORLD_SIZE, 2, got 2" in error(dp2, RANK=2)
    assert "[WORLD_SIZE] expected a number, got 'two'" in error(dp2, WORLD_SIZE="two")


def test_a_rank_that_fails_ends_the_others(tmp_path):
    """Rank 1 has no data."""
    flags = flags_of(tmp_path)
    words = [BIN, "train", *flags, "--steps", 2, "--out", tmp_path / "run", "--mesh", "dp=2"]
    other = [tmp_path / "none.npz" if word == flags[2] else word for word in words]
    codes, text = Job([words, other], launcher="variables").end()
    assert codes == [1, 1]
    assert text.count("rank 1 of 2 (") == 2 and text.count("none.npz") >= 2, text
