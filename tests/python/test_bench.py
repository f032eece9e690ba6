# SPDX-License-Identifier: Apache-2.0
"""The parts of ./dev bench that need no PyTorch."""
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy
import onnx
import onnxruntime
import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import short_json  # noqa: E402
from bench import busy, contest, gemm, graphs, machine, report, scaling, task  # noqa: E402

LIBRARIES = ("openblas", "mkl", "torch_bf16")


def result(speed, losses, **more):
    return {"tokens_per_second": speed, "best_tokens_per_second": 2 * speed,
            "seconds": [[task.TOKENS / speed]], "losses": losses, "peak_rss": 2**20 * speed, "threads": 2,
            "fp8_gemms": 0, **more}


def make_report(ours=100.0):
    models = {"gpt": {"fp32": result(ours, [2.0, 1.0]),
                      "tensorwise": result(150.0, [2.1, 1.0], gemms=3),
                      "torch_eager_fp32": result(50.0, [2.0, 1.0])}}
    rows = [{**p, "fp32": 10.0, "openblas": 20.0, "mkl": 5.0, "fp8": 40.0, "torch_bf16": 50.0}
            for p in gemm.products()]
    return {
        "date": "2026-01-01", "commit": "abc", "versions": {"torch": "2"},
        "machine": {"cpu": "A CPU", "cores": 2, "memory_bytes": 2**30,
                    "flags": ["avx2"], "isa": "avx2", "gemm": "packed",
                    "threads": 2, "load_before": 0.0, "foreign_cpus": 0.0,
                    "kernel": "6.18.0", "session_groups": True},
        "settings": {"rounds": 1, "steps": 2, "seed": 7}, "warnings": [],
        "models": models, "left_out": {"gpt": {"ort_training": "no wheel"}},
        "ratios": report.ratios(models), "ratio_intervals": report.ratio_intervals(models),
        "peak_rss": {"gpt": {"fp32": 2**20 * ours}},
        "loss_differences": report.loss_differences(models),
        "profiles": {"gpt, fp32": {"Gemm": 3.0, "Add": 1.0}},
        "gemm": {"products": rows, "peak": {"fp32": 100.0, "fp8": 100.0},
                 "kernels": "packed", "versions": {},
                 "step_ms": gemm.step_sums(rows, ("fp32", "fp8", *LIBRARIES))},
    }


def test_ratios_are_ours_by_theirs():
    models = make_report()["models"]
    assert report.ratios(models) == {"gpt": {
        "fp32": {"torch_eager_fp32": 2.0},
        "tensorwise": {"torch_eager_fp32": 3.0}}}
    best = report.ratios(models, "best_tokens_per_second")
    assert best["gpt"]["fp32"]["torch_eager_fp32"] == 2.0


@pytest.mark.parametrize("loss,fails", [(1.0, False), (1.01, True), (float("nan"), True)])
def test_another_loss_of_an_fp32_peer_fails(loss, fails):
    made = make_report()
    made["models"]["gpt"]["torch_eager_fp32"]["losses"][1] = loss
    made["loss_differences"] = report.loss_differences(made["models"])
    assert bool(report.failures(made)) == fails


def test_only_a_missing_recipe_of_ours_fails():
    made = make_report()
    assert not report.failures(made)
    made["left_out"]["gpt"]["delayed"] = "it ended"
    assert report.failures(made) == ["gpt, delayed: it ended"]


def test_compare(tmp_path):
    old, new = make_report(), make_report(ours=110.0)
    new["machine"]["cpu"] = "Another"
    new["warnings"] = ["not idle"]
    del new["ratios"]["gpt"]["tensorwise"]
    del old["ratio_intervals"]  # as in files of older versions
    for name, made in (("old", old), ("new", new)):
        (tmp_path / name).write_text(json.dumps(made))
    done = subprocess.run(
        [sys.executable, SCRIPTS / "bench.py", "compare", tmp_path / "old", tmp_path / "new"],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("Not the same cpu: A CPU and Another", "Warning of the new run: not idle",
                 "| ratios.gpt.fp32.torch_eager_fp32 | 2.00 | 2.20 [2.20, 2.20] | +10.0 % |",
                 "| peak_rss.gpt.fp32 | 100 | 110 | +10.0 % |", "step_ms.llama.mkl",
                 "only in the old run: ratios.gpt.tensorwise.torch_eager_fp32"):
        assert part in done.stdout, part


def test_step_sums_count_all_layers():
    rows = [{**p, **dict.fromkeys(("fp32", "fp8", *LIBRARIES), 1.0)} for p in gemm.products()]
    operations = {model: sum(3 * 2 * task.TOKENS * i * o * n for (i, o), n in layers.items())
                  for model, layers in task.LINEARS.items()}
    assert operations["gpt"] == 51_539_607_552  # of 16 layers and lm_head
    for model, of in gemm.step_sums(rows, ("fp32", "fp8", *LIBRARIES)).items():
        assert of["fp32"] == pytest.approx(operations[model] / 1e6)


def test_batches_go_round(tmp_path):
    task.write_tokens(tmp_path / "tokens.bin", 2)
    tokens = numpy.fromfile(tmp_path / "tokens.bin", "<u2")
    batches = task.Batches(tmp_path / "tokens.bin")
    first = batches.next()
    assert (first[0].ravel() == tokens[:task.TOKENS]).all()
    assert (first[1].ravel() == tokens[1:task.TOKENS + 1]).all()
    second = batches.next()
    assert (second[0].ravel() == tokens[task.TOKENS:-1]).all()
    assert (batches.next()[0] == first[0]).all()


def test_openblas_variables_do_not_reach_children(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    made = machine.environment(MORE="1")
    assert "OPENBLAS_CORETYPE" not in made and made["MORE"] == "1"
    assert "PATH" in made


PEER = """
import itertools
from bench import turns
count = itertools.count(1)
def step():
    print("noise on stdout")
    n = next(count)
    if n > 12: raise SystemExit("peer: the disk is full")
    return n
turns.serve(lambda: (step, {"fp8_gemms": 7}))
"""


class Fixed:
    """A contestant whose steps take the given times."""

    def __init__(self, *seconds):
        self.facts, self._seconds, self.turns = {"gemms": 1}, seconds, 0

    def start(self):
        pass

    def turn(self, steps):
        self.turns += 1
        warm_up = [99.0] * contest.WARM_UP
        return {"losses": [self.turns] * steps, "seconds": [*warm_up, *self._seconds]}

    def stop(self):
        pass


def test_turns_of_processes(tmp_path):
    (tmp_path / "peer.py").write_text(PEER)
    peer = contest.Peer([sys.executable, tmp_path / "peer.py"], SCRIPTS, tmp_path / "log",
                        PYTHONPATH=os.fspath(SCRIPTS))
    fixed = Fixed(2.0, 1.0, 4.0)
    results, left = contest.run({"fixed": fixed, "peer": peer}, [["fixed", "peer"], ["peer", "fixed"]], 3)
    assert not left and fixed.turns == 2
    assert results["fixed"]["tokens_per_second"] == task.TOKENS / 2
    assert results["fixed"]["best_tokens_per_second"] == task.TOKENS
    assert results["fixed"]["losses"] == [1] * 5  # of the first turn
    assert results["peer"]["losses"] == [1, 2, 3, 4, 5]
    assert results["peer"]["fp8_gemms"] == 7
    assert results["peer"]["peak_rss"] >= results["peer"]["rss_before_training"] > 0
    assert [len(turn) for turn in results["peer"]["seconds"]] == [3, 3]


def test_a_peer_that_ends_is_left_out(tmp_path):
    (tmp_path / "peer.py").write_text(PEER)
    peer = contest.Peer([sys.executable, tmp_path / "peer.py"], SCRIPTS, tmp_path / "log",
                        PYTHONPATH=os.fspath(SCRIPTS))
    missing = contest.Peer([tmp_path / "no-python"], SCRIPTS, tmp_path / "log2")
    fixed = Fixed(2.0, 1.0, 4.0)
    results, left = contest.run({"peer": peer, "missing": missing, "fixed": fixed},
                                [["missing", "fixed", "peer"]] * 3, 3)
    assert left["peer"] == "peer: the disk is full" and "no-python" in left["missing"]
    assert list(results) == ["fixed"] and fixed.turns == 3


def test_intervals_are_of_pairs():
    slow_and_fast = [[3.0] * 5, [1.0] * 5, [2.0] * 5]
    assert report.interval(slow_and_fast, [[2 * s for s in turn] for turn in slow_and_fast]) == [2.0, 2.0]
    low, high = report.interval([[1.0], [1.0], [1.0], [1.0]], [[1.0], [2.0], [2.0], [3.0]])
    assert 1.0 <= low < 2.0 < high <= 3.0
    low, high = report.interval([[1.0, 1.2, 0.8, 1.1, 0.9]], [[2.0] * 5])  # one round: draws its steps
    assert 1.6 < low < 2.0 < high < 2.6
    assert report.interval(slow_and_fast, [[1.0], [1.0], [9.0]]) == report.interval(
        slow_and_fast, [[1.0], [1.0], [9.0]])


def test_a_busy_run_is_not_kept(tmp_path):
    made, files = make_report(), (tmp_path / "x.json", tmp_path / "x.md")
    made["machine"]["foreign_cpus"] = 0.2
    complaint, = report.keep(made, "text", *files)
    assert "0.20 CPUs busy" in complaint and not any(f.exists() for f in files)
    assert report.keep(made, "text", None, None) == []
    made["machine"]["foreign_cpus"] = 0.05
    assert report.keep(made, "text", *files) == []
    assert json.loads(files[0].read_text()) == short_json.short(made) and files[1].read_text() == "text"


def test_a_kept_run_is_short_and_compares_alike():
    made = make_report()
    of, ops = made["models"]["gpt"]["fp32"], {f"op{i}": 20.0 - i for i in range(14)}
    of.update(seconds=[[3.0, 1.0, 2.0], [5.0, 4.0, 6.0]], losses=[3.0, 2.5, 2.0])
    made["profiles"] = {"gpt, fp32": ops}
    text = short_json.text(short_json.short(made))
    kept = json.loads(text)
    assert kept["models"]["gpt"]["fp32"]["seconds"] == {
        "steps": 6, "least": 1.0, "median": 3.5, "most": 6.0, "medians_of_turns": [2.0, 5.0]}
    assert kept["models"]["gpt"]["fp32"]["losses"] == {"steps": 3, "first": 3.0, "last": 2.0}
    profile = kept["profiles"]["gpt, fp32"]
    assert list(profile) == [f"op{i}" for i in range(10)] + ["others"] and sum(profile.values()) == sum(ops.values())
    assert kept["ratio_intervals"] == made["ratio_intervals"] and kept["gemm"] == made["gemm"]
    new = make_report(ours=110.0)
    assert report.compare(kept, short_json.short(new)) == report.compare(made, new)
    assert report.markdown(kept) == report.markdown(made)
    assert len(text.splitlines()) < 60 and max(map(len, text.splitlines())) < short_json.RECORD + short_json.WIDTH


@pytest.mark.parametrize("tree", [
    {}, [], 1.5, {"a": []}, {"seconds": 2.0, "losses": []}, {"a": [[1, {"b": None}]] * 100},
    {f"key {i}": {"text": "x\n" * i, "list": list(range(i)), "deep": {"a": {"b": [i]}}} for i in range(90)}])
def test_lines_of_json_lose_nothing(tree):
    assert json.loads(short_json.text(tree)) == tree == short_json.short(tree)


def test_busy_loops_have_sessions_of_their_own_and_end():
    def loops():
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[1:4]
                command = (folder / "cmdline").read_text()
            except OSError:
                continue  # it has ended
            if int(parent) == os.getpid() and "while :" in command:
                found.append((folder.name, session))
        return found

    with busy.busy_loops(2):
        for _ in range(6000):  # a child has our command line at first
            if len(loops()) == 2:
                break
            time.sleep(0.01)
        assert len(loops()) == 2 and all(pid == session for pid, session in loops())
    assert not loops()


def run_in_stock(path, feeds):
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize("name", scaling.SHAPES)
def test_made_graphs_are_models(name, tmp_path):
    path = tmp_path / "m.onnx"
    scaling.SHAPES[name](path, 300)
    assert 300 <= len(onnx.load(path).graph.node) < 400
    feed = ({"input_ids": numpy.arange(6).reshape(2, 3)} if name == "llama" else
            {"x": numpy.ones((2, 16), "f4")})
    y = run_in_stock(path, feed)
    assert numpy.isfinite(y).all() and y.std() > 0


def test_made_external_data_are_a_hole(tmp_path):
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    graphs.Llama(graphs.Writer(data), 2, 64, 96, 4, 50).write(path)
    assert data.stat().st_size > 4 * (2 * 50 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 96))
    assert scaling.disk_bytes(tmp_path) < 2**16
    assert (run_in_stock(path, {"input_ids": numpy.zeros((1, 3), "i8")}) == 0).all()
