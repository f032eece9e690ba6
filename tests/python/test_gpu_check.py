# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check.sh on a CPU, so that it works on the day when there is a GPU."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from program import BIN, leave_out

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from gpu import end_to_end, gtest, history, report, runs  # noqa: E402


def check(folder, *arguments, code=0):
    """The report and the figures."""
    words = [ROOT / "scripts/gpu_check.sh", folder / "report.md", "--json", folder / "figures.json", "--binary", BIN,
             "--provider", "cpu", "--quick", *arguments]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run([str(word) for word in words], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    text = (folder / "report.md").read_text() if (folder / "report.md").exists() else ""
    assert done.returncode == code, f"{done.stderr}\n{text}"
    return text, json.loads((folder / "figures.json").read_text())


def test_all_sections(tmp_path):
    text, figures = check(tmp_path, "--budget", "3000")  # a busy machine cuts nothing off
    assert "FAILED" not in text and "cut off" not in text
    assert list(figures) == [
        "Machine", "Kernels and training beside the CPU", "Training steps beside PyTorch and torchao",
        "Four layers of Llama-3-8B's width", "Nodes alone, beside the roofline", "Layers in FP8 beside torchao's published speed-ups",
        "Loss curves beside the CPU's", "compute-sanitizer memcheck", "compute-sanitizer racecheck"]
    assert all(f"## {title}\n" in text for title in figures)
    _, kernels, steps, llama, nodes, layers, curves, *sanitizers = figures.values()
    for section in (kernels, *sanitizers):
        assert section["left_out"] == "the provider is cpu"
    assert nodes["failed"] == 0 and len(nodes["nodes"]) > 80
    assert [x["recipe"] for x in layers["linear"]] == ["rowwise", "tensorwise"]
    assert list(steps["rows"]) == ["onnx-fp8, off", "onnx-fp8, tensorwise"]
    assert "PyTorch is left out: a quick run" in text
    assert list(llama["rows"]) == ["onnx-fp8, off", "onnx-fp8, tensorwise"]
    assert all(row["arena_bytes"] > 0 for row in llama["rows"].values())
    assert len(curves["curves"]) == 4
    for curve in curves["curves"]:
        # Both sides are the CPU here.
        assert curve["difference"] == 0 and curve["losses"] == curve["cpu_losses"] and len(curve["losses"]) == 3


def test_failures_and_cut_sections_are_named(tmp_path):
    text, figures = check(tmp_path, "--binary", "/bin/false", "--only", "nodes", code=1)
    assert "**FAILED**: some nodes failed, are wrong, or none ran" in text
    text, figures = check(tmp_path, "--only", "nodes", "--budget", "1")
    assert "cut off by the time budget: all of it" in text
    assert figures["Nodes alone, beside the roofline"]["cut_off"] == ["all of it"]


class Section:
    def __init__(self):
        self.failures = []

    def left(self):
        return 1

    def fail(self, text):
        self.failures.append(text)


def test_losses_that_differ_are_failures(monkeypatch):
    section, figures = Section(), {"losses": [2.5, 2.25]}
    for losses in [2.5, 2.25], [2.5, 2.125]:
        ran = runs.run(["true"], 60), {"losses": losses}
        monkeypatch.setattr(end_to_end, "ours", lambda *_, ran=ran: ran)
        end_to_end.run_again(section, figures, None, None, None)
    assert section.failures == ["onnx-fp8, off: expected the same losses in a second run, got [2.5, 2.125] after [2.5, 2.25]"]
    section = Section()
    for losses in [2.5, 2.3125], [2.5, 2.5]:
        end_to_end.compare_losses(section, {"onnx-fp8, off": figures, "PyTorch, bfloat16": {"losses": losses}})
    assert section.failures == ["onnx-fp8, off: expected losses within 0.1 of PyTorch's, got 0.2500"]
    assert end_to_end.difference(figures, {"losses": [float("nan"), 2.25]}) == float("inf")


def test_pack_holds_programs_and_libraries(tmp_path):
    script, built = tmp_path / "scripts/gpu_check.sh", tmp_path / "build/release"
    for folder in (script.parent, built):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "scripts/gpu_check.sh", script)
    for name in ("onnx-fp8", "test_cuda_device"):
        shutil.copy(BIN, built / name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "scripts"], cwd=tmp_path, check=True)
    done = subprocess.run([script, "--pack"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"build/release/pack: \d+ MiB; files of the tree: 1 MiB\n", done.stdout)
    pack = built / "pack"
    assert (pack / "onnx-fp8.gz").stat().st_size < 2 / 3 * pathlib.Path(BIN).stat().st_size
    assert not {"libc.so.6", "libm.so.6", "libstdc++.so.6"} & {file.name for file in (pack / "libraries").iterdir()}
    # What a check does first.
    subprocess.run([script, tmp_path / "report.md", "--budget", "1"], capture_output=True)
    subprocess.run([pack / "onnx-fp8", "version"], check=True, capture_output=True,
                   env={**os.environ, "LD_LIBRARY_PATH": str(pack / "libraries")})


def test_programs_are_interrupted_and_then_killed(monkeypatch):
    program = ("import signal, sys, time\n"
               "signal.signal(signal.SIGINT, lambda *_: {})\n"
               "print('begun', flush=True)\n"
               "time.sleep(60)\n")
    polite = runs.run([sys.executable, "-c", program.format("sys.exit(print('half'))")], 1)
    assert polite.cut and not polite.failed and polite.out == "begun\nhalf\n"
    monkeypatch.setattr(runs, "KILLED_AFTER", 0.2)
    stubborn = runs.run([sys.executable, "-c", program.format("time.sleep(60)")], 1)
    assert stubborn.cut and stubborn.out == "begun\n" and stubborn.code == -9
    done = runs.run([sys.executable, "-c", "import sys; sys.exit(3)"], 60)
    assert done.failed and not done.cut and done.code == 3


# A program of GoogleTest's that aborts in A.Two and fails in B/C.Three/1. After this failure
# all tests of the process fail, as after an error of a GPU.
GTEST_PROGRAM = f"""#!{sys.executable}
import os, sys
if "--gtest_list_tests" in sys.argv:
    sys.exit(print("Running main\\nA.\\n  One\\n  Two\\n  Last\\nB/C.\\n  Three/0  # GetParam() = 3\\n  Three/1\\n  Four/0"))
wanted, broken = sys.argv[1].removeprefix("--gtest_filter=").split(":"), False
for test in wanted:
    print(f"[ RUN      ] {{test}}", flush=True)
    if test == "A.Two":
        os.abort()
    broken |= test == "B/C.Three/1"
    print(f"wrong\\n[  FAILED  ] {{test}}" if broken else f"left out: some\\n[       OK ] {{test}} (0 ms)")
sys.exit(broken)
"""


def test_failed_tests_run_again_alone(tmp_path):
    program = tmp_path / "tests"
    program.write_text(GTEST_PROGRAM)
    program.chmod(0o755)
    outcome = gtest.run(program, lambda: 60, known={"A.One"}, workers=1)
    assert outcome.passed == {"A.One", "A.Last", "B/C.Three/0", "B/C.Four/0"} and not outcome.cut
    assert list(outcome.failed) == ["A.Two", "B/C.Three/1"]
    assert "wrong" in outcome.failed["B/C.Three/1"] and "Four" not in outcome.failed["B/C.Three/1"]
    assert outcome.left_out == {"left out: some"}


def test_all_that_programs_print_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "LOGS", tmp_path)
    runs.run([sys.executable, "-c", "print('a' * 9)"], 60)
    (log,) = tmp_path.iterdir()
    assert "aaaaaaaaa\n" in log.read_text() and "exit code 0" in log.read_text()


def test_seconds_that_a_section_does_not_need_go_on(tmp_path):
    whole = report.Report("title", 100, tmp_path / "r.md", None)
    seconds = []
    for _ in range(3):
        whole.section("s", 40, lambda section: seconds.append(round(section.left())))
    assert seconds == [40, 80, 100]


class Window:
    """Calls of three sections with two rows of ten seconds each, by a clock of their own."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.now, self.measured = folder, 0, []
        monkeypatch.setattr(report.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(history.time, "time", lambda: self.now)

    def call(self, budget, program="build"):
        """Rows of this build by section, and the report."""
        whole = report.Report("title", budget, self.folder / "r.md", None, history.History(self.folder, "gpu", program))
        for title in ("one", "two", "three"):
            whole.section(title, budget / 3, lambda section, title=title: self.check(section, title))
        file = self.folder / "gpu.json"
        entries = json.loads(file.read_text())["entries"] if file.exists() else []
        rows = {entry["section"]: entry["rows"] for entry in entries if entry["program"] == program}
        return rows, (self.folder / "r.md").read_text()

    def check(self, section, title):
        rows = dict(section.before.get("rows", {}))
        for name in ("a", "b"):
            if name in rows:
                continue
            if section.left() < 10:
                section.cut(name)
            else:
                self.now += 10
                rows[name] = self.now
                self.measured.append(title + name)
        section.data["rows"] = rows


def test_a_second_call_goes_on_where_the_first_was_cut_off(tmp_path, monkeypatch):
    rows = [title + name for title in ("one", "two", "three") for name in "ab"]
    for budget in range(0, 70, 3):
        folder = tmp_path / str(budget)
        folder.mkdir()
        window = Window(folder, monkeypatch)
        sections, text = window.call(budget)
        kept = [title + name for title, section in sections.items() for name in section]
        assert kept == window.measured and len(kept) == min(6, budget // 10)
        assert ("cut off" in text) == (kept != rows)
        sections, text = window.call(1000)
        assert sorted(window.measured) == sorted(rows) and "cut off" not in text  # none twice
        assert all(list(section) == ["a", "b"] for section in sections.values())
        # Another build, and another window, begin anew.
        window.call(1000, "another")
        assert len(window.measured) == 12
        window.now += history.WINDOW
        window.call(1000, "another")
        assert len(window.measured) == 18
        assert len(json.loads((folder / "gpu.json").read_text())["entries"]) == 9  # nothing is lost


def test_tests_that_never_passed_come_first(tmp_path, monkeypatch):
    folder = tmp_path / "history"
    known = history.History(folder, "gpu", "build")
    known.add("kernels", {"failures": [], "cut_off": [], "passed_tests": ["A.One", "A.Last"]})
    known.add("other", {"left_out": "no GPU"})
    again = history.History(folder, "gpu", "another build")
    assert again.tests() == {"A.One", "A.Last"} and not again.before("kernels") and not again.before("other")
    program = tmp_path / "tests"
    program.write_text(GTEST_PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr(runs, "LOGS", tmp_path / "logs")
    runs.LOGS.mkdir()
    gtest.run(program, lambda: 60, known=again.tests(), workers=1)
    first = sorted(runs.LOGS.iterdir())[1].read_text()
    assert first.splitlines()[0].endswith("A.Two:B/C.Three/0:B/C.Three/1:B/C.Four/0:A.One:A.Last")


def test_peers_without_a_gpu(tmp_path):
    if not importlib.util.find_spec("torch"):
        leave_out("scripts/gpu_peers.py, which needs PyTorch")
        return
    (tmp_path / "tokens").write_bytes(bytes(2 * (8 * 256 + 1)))
    done = subprocess.run([sys.executable, ROOT / "scripts/gpu_peers.py", "--device", "cpu", "train", "bfloat16",
                           tmp_path / "tokens", "1"], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["milliseconds"] > 0 and facts["losses"][-1] < facts["losses"][0]
