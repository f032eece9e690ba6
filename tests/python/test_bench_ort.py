# SPDX-License-Identifier: Apache-2.0
"""What ./dev bench ort concludes from its figures."""
import pathlib
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from bench import ort, task  # noqa: E402


def figures(speed, losses=(2.0, 1.5)):
    return {"tokens_per_second": speed, "seconds": [[task.TOKENS / speed] * 3] * 2, "losses": list(losses),
            "peak_rss": 100 * 2**20}


def result(**changes):
    rows = {"train, fp32": figures(1000), "ep, fp32": figures(950), "bodies, fp32": figures(600, (2.0, 1.6)),
            "onnxruntime-training, fp32": figures(300, (2.0, 1.6))}
    rows.update(changes.pop("rows", {}))
    machine = {"isa": "avx2", "cpu": "a CPU", "cores": 2, "threads": 2, "foreign_cpus": 0.1}
    return {"ort": rows, "left_out": {}, "rounds": 2, "steps": 3, "seed": 0, "onnxruntime": "1.31.1",
            "machine": machine, "date": "2026-01-01", "commit": "abc", **changes}


def test_goals_are_those_of_our_provider():
    assert ort.outside(result()) == []
    slow, = ort.outside(result(rows={"ep, fp32": figures(890)}))
    assert "0.89 of train's speed" in slow
    other, = ort.outside(result(rows={"ep, fp32": figures(990, (2.0, 1.4999))}))
    assert "other losses" in other
    left, = ort.outside(result(left_out={"bodies, fp32": "it ended"}))
    assert left == "bodies, fp32 is left out: it ended"
