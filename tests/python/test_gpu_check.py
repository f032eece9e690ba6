# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check.sh on a CPU, so that it works on the day when there is a GPU."""
import collections
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time

import pytest
from program import BIN, leave_out

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import short_json  # noqa: E402
from gpu import check as gpu_check  # noqa: E402
from gpu import compile_cache, end_to_end, gtest, history, llama_8b, report, runs  # noqa: E402


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
        "Machine", "Kernels and training beside the CPU", "Three steps as the GPU runs them", "Training steps beside PyTorch and torchao",
        "Four layers of Llama-3-8B's width", "All of Llama-3-8B, and its memory beside the plan's", "Nodes alone, beside the roofline", "Attention alone, in one call and in slices", "Layers in FP8 beside torchao's published speed-ups",
        "Loss curves beside the CPU's", "compute-sanitizer memcheck", "compute-sanitizer racecheck"]
    assert all(f"## {title}\n" in text for title in figures)
    _, kernels, timeline, steps, llama, whole, nodes, attention, layers, curves, *sanitizers = figures.values()
    for section in (kernels, *sanitizers):
        assert section["left_out"] == "the provider is cpu"
    assert timeline["left_out"] == "the provider is cpu, whose nodes run one after the other"
    steps, llama, whole, nodes, attention, layers, curves = (
        section["figures"] for section in (steps, llama, whole, nodes, attention, layers, curves))
    assert nodes["failed"] == 0 and len(nodes["nodes"]) > 80
    assert all(row["copy_share"] > 0 for row in nodes["nodes"] if "us" in row and row["group"] == "norms")
    name = "T 32, D 16, H 2, B 4; slices"
    assert list(attention["rows"]) == [f"{name} {count}" for count in (1, 2, 8)]
    assert attention["rows"][f"{name} 2"]["backward_ms"] > 0
    assert f"| {name} 8: a batch of 4 has no 8 equal slices |" in text
    assert [x["recipe"] for x in layers["linear"]] == ["rowwise", "tensorwise"]
    assert list(steps["rows"]) == ["onnx-fp8, off", "onnx-fp8, tensorwise"]
    assert "PyTorch is left out: a quick run" in text
    assert list(llama["rows"]) == ["onnx-fp8, off", "onnx-fp8, tensorwise"]
    assert all(row["arena_bytes"] > 0 and row["state_bytes"] > 0 for row in llama["rows"].values())
    # Its checkpoint was larger than files may be, and it ended all the same.
    assert whole["run"]["losses"]["steps"] == llama_8b.STEPS and whole["run"]["update_amax"] > 0
    assert whole["run"]["plan"]["total"] > whole["run"]["plan"]["arena"] > 0 and whole["run"]["gpu_bytes"] is None
    assert len(curves["curves"]) == 4
    for curve in curves["curves"]:
        # Both sides are the CPU here.
        assert curve["difference"] == 0 and curve["losses"] == curve["cpu_losses"] and curve["losses"]["steps"] == 3


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
    for name, program in (("onnx-fp8", BIN), ("libonnx_fp8_cuda.so", "/bin/true"), ("test_cuda_device", "/bin/true")):
        shutil.copy(program, built / name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "scripts"], cwd=tmp_path, check=True)
    done = subprocess.run([script, "--pack"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"build/release/pack: \d+ MiB; files of the tree: 1 MiB\n", done.stdout)
    pack = built / "pack"
    assert (pack / "onnx-fp8.gz").stat().st_size < 2 / 3 * pathlib.Path(BIN).stat().st_size
    assert not {"libc.so.6", "libm.so.6", "libstdc++.so.6"} & {file.name for file in (pack / "libraries").iterdir()}
    # The history travels, but not from a place that is removed.
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen/gpu.json").write_text("{}")
    subprocess.run([script, "--pack", "--history", tmp_path / "seen"], check=True, capture_output=True)
    assert (pack / "history/gpu.json").read_text() == "{}"
    done = subprocess.run([script, "--pack", "--history", pack / "history"], capture_output=True, text=True)
    assert done.returncode == 2 and "expected a folder outside of build/release/pack" in done.stderr
    assert (pack / "history/gpu.json").exists()
    # What a check does first.
    subprocess.run([script, tmp_path / "report.md", "--budget", "1"], capture_output=True)
    assert (pack / "libonnx_fp8_cuda.so").exists()
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
    program.write_text(f"#!{sys.executable}\nprint(1 / 0)")
    assert "ZeroDivisionError" in gtest.run(program, lambda: 60).failed["the list of tests"]


def test_memory_beside_the_plan():
    for own, outside in ((100, False), (103, False), (97, False), (104, True), (96, True)):
        section = Section()
        off = llama_8b.compare(section, {"gpu_bytes": (own + 7) << 20, "gpu_bytes_before": 7 << 20, "plan": {"total": 100 << 20}})
        assert off == pytest.approx(own / 100 - 1) and bool(section.failures) == outside, own
    assert section.failures == ["expected the 100 MiB of the plan within 3 %, the driver counts 96 MiB (-4.0%)"]
    assert llama_8b.compare(Section(), {"gpu_bytes": None}) is None


def test_a_large_model_that_diverges_fails():
    for losses, update, failures in (([12, 11.5], 1.5, []), ([12, None], 1.5, ["expected losses, got 12, None"]),
                                     ([12, 11.5], None, ["expected updates that are numbers, got an infinite one"])):
        section = Section()
        llama_8b.require_numbers(section, {"losses": losses, "update_amax": update})
        assert section.failures == failures


def test_a_model_that_does_not_fit_is_left_out(monkeypatch, tmp_path):
    class Task:
        file = tmp_path / "llama.onnx"

    Task.file.write_text("")
    plan = {"total": 75 << 30}
    monkeypatch.setattr(llama_8b, "planned", lambda *_: plan)
    monkeypatch.setattr(llama_8b, "trained", lambda *_: {"losses": [2]})
    monkeypatch.setattr(llama_8b, "gpu_memory", lambda: (80 << 30, 6 << 30))
    with pytest.raises(report.LeftOut, match="the plan takes 76800 MiB, of 81920 MiB of the GPU 6144 MiB are in use"):
        llama_8b.measure(Section(), Task, None, "cuda", "nvidia-h100", 0)
    monkeypatch.setattr(llama_8b, "gpu_memory", lambda: (80 << 30, 1 << 30))
    assert llama_8b.measure(Section(), Task, None, "cuda", "nvidia-h100", 0) == {
        "losses": [2], "plan": plan, "gpu_bytes_before": 1 << 30}
    (tmp_path / "llama.onnx.data").write_text("weights")
    section = Section()
    assert llama_8b.measure(section, Task, None, "cuda", "nvidia-h100", 0) is None
    assert section.failures == ["llama.onnx: expected a graph without weights"]


TIMELINE = {"steps": 3, "ms": 30, "idle_ms": 1, "host_ms": 0.5, "gpu": "h200", "notes": ["CUPTI lost 1 records"], "roles": [
    {"role": "forward", "calls": 49, "least_ms": 2.5, "ms": 3, "gap_ms": 0.25, "beside_ms": 0},
    {"role": "norm", "calls": 99, "least_ms": 1.5, "ms": 2, "gap_ms": 0.5, "beside_ms": 0}]}


class FakeMachine:
    """Answers all programs of a check at once, by a clock of its own. It can be taken away at the start of a section,
    or in its n-th program: then no second is left."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.now, self.lock = folder, 0.0, threading.Lock()
        self.title, self.begun, self.measured = "", 0, []
        (folder / "program").write_text("")
        monkeypatch.setattr(report.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(history.time, "time", lambda: self.now)
        monkeypatch.setattr(runs, "run", self.run)
        monkeypatch.setattr(end_to_end.subprocess, "Popen", self.no_driver)
        monkeypatch.setattr(gpu_check.shutil, "which", lambda name: name)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        for name in compile_cache.environment(folder):
            monkeypatch.setenv(name, "")
        begin = report.Report.section

        def section(whole, title, seconds, body):
            self.title, self.begun = title, 0
            if self.taken_at == (title, "at its start"):
                self.now = self.end
            begin(whole, title, seconds, body)

        monkeypatch.setattr(report.Report, "section", section)

    def check(self, taken_at=None):
        """The figures, the report, and the history."""
        self.taken_at, self.end = taken_at, self.now + gpu_check.BUDGET
        files = [self.folder / name for name in ("figures.json", "report.md", "nvidia-h200.json")]
        assert gpu_check.main([str(word) for word in (
            files[1], "--json", files[0], "--history", self.folder, "--compile-cache", self.folder / "compiled",
            "--binary", self.folder / "program", "--tests", self.folder / "program")]) == 0, files[1].read_text()
        entries = json.loads(files[2].read_text())["entries"] if files[2].exists() else []
        return json.loads(files[0].read_text()), files[1].read_text(), {entry["section"]: entry for entry in entries}

    def no_driver(self, command, **kwargs):
        raise FileNotFoundError(command[0])

    def run(self, command, seconds, errors=True, **kwargs):
        words = [str(word) for word in command]
        with self.lock:
            self.begun += 1
            if self.taken_at == (self.title, self.begun):
                self.now = self.end
            cut = self.now >= self.end
            self.now += 0 if cut else 0.1
            # A fresh machine exports the models again.
            if not cut and words[1] in ("bench", "train", "gpu_peers.py") and "export" not in words:
                self.measured.append((self.title, *(word for word in words if str(self.folder) not in word and "/tmp" not in word)))
        return runs.Done(-2 if cut else 0, self.answer(words, cut), cut)

    def answer(self, words, cut):
        def after(flag):
            return words[words.index(flag) + 1]

        few = 1 if cut else 2  # of what comes one after the other
        if "--query-gpu=name" in words:
            return "NVIDIA H200\n"
        if "--query-gpu=memory.total,memory.used" in words:
            return "143771, 0\n"
        if words[1] == "plan":
            return json.dumps({"memory": {"parameters": 1, "optimizer": 1, "arena": 1, "total": 3}})
        if "--gtest_list_tests" in words:
            return "" if cut else "A.\n  One\n  Two\n"
        if words[-1].startswith("--gtest_filter"):
            return "".join(f"[ RUN      ] A.{name}\n[       OK ] A.{name} (0 ms)\n" for name in ("One", "Two")[:few])
        if words[1:] == ["version", "--json"]:
            return "{}"
        if words[1:3] == ["bench", "nodes"]:
            pathlib.Path(after("--save")).write_text(json.dumps({"nodes": ["a", "b"][:few]}))
        elif words[1:3] == ["bench", "attention"]:
            counts = [int(count) for count in after("--slices").split(",")]
            speed = {f"{way}_{what}": 1 for way in ("forward", "backward") for what in ("ms", "gflops", "share")}
            return json.dumps({"cases": [{"slices": count, **speed} for count in counts[:1 if cut else None]]})
        elif words[1] == "bench":
            times = {"high_precision_ms": {"median": 1}, "recipe_ms": {"median": 1}, "speedup": 1}
            return json.dumps({"layers": [{"m": 1, "k": 1, "n": n, **times} for n in range(few)]})
        elif words[1] == "train":
            steps = 1 if cut else int(after("--steps"))
            out = pathlib.Path(after("--out"))
            out.mkdir(parents=True)
            (out / "metrics.jsonl").write_text(steps * (json.dumps({"loss": 2, "tokens_per_second": 1}) + "\n"))
            summary = {"arena_bytes": 1 << 20, "state_bytes": 1 << 20, "update_amax": 1}
            if "--timeline" in words:
                summary["timeline"] = TIMELINE
            return f"\n{json.dumps(summary)}\n"
        elif "export" in words or "bench.graphs" in words:
            pathlib.Path(words[-1]).write_text("")
        elif "gpu_peers.py" in words and not cut:
            return json.dumps({"milliseconds": 1, "losses": 30 * [2]})
        return ""


def without_seconds(outcome):
    """What a whole section has in each call."""
    if "curves" in outcome["figures"]:
        outcome["figures"]["curves"].sort(key=json.dumps)
    return {key: outcome[key] for key in ("failures", "cut_off", "left_out", "figures")}


TITLES = [getattr(gpu_check.Checks, name).__doc__.strip() for name, _ in gpu_check.SECTIONS]


@pytest.mark.parametrize("cut", TITLES)
def test_a_machine_that_is_taken_away_in_a_section(cut, tmp_path, monkeypatch):
    def machine(name):
        (tmp_path / name).mkdir()
        return FakeMachine(tmp_path / name, monkeypatch)

    original = report.Report.section  # each machine wraps it
    full = machine("full")
    expected, text, _ = full.check()
    assert list(expected) == TITLES and "cut off" not in text and "left out" not in text
    assert "| forward | 49 | 2.500 | 3.000 | 2.9 | 0.250 | 0.000 |" in text and "- CUPTI lost 1 records" in text
    assert "| all | 148 | 4.000 | 5.000 | 24.5 | 0.750 | 0.000 |" in text
    for at in ("at its start", 1, 2, 5):
        monkeypatch.setattr(report.Report, "section", original)
        taken = machine(str(at))
        figures, text, entries = taken.check((cut, at))
        assert list(figures) == TITLES
        if not figures[cut]["cut_off"]:
            assert at in (2, 5)  # it needs fewer programs
            continue
        k = TITLES.index(cut)
        for title in TITLES[:k]:
            assert without_seconds(figures[title]) == without_seconds(expected[title])
        for title in TITLES[k + 1:]:
            assert figures[title]["cut_off"] == ["all of it"]
        for what in figures[cut]["cut_off"]:
            assert f"cut off by the time budget: {what}" in text
        assert list(entries) == TITLES[:k + (at != "at its start")]
        for title, entry in entries.items():
            assert without_seconds(figures[title]) == without_seconds(short_json.short(entry))
        # The next call goes on with the rest.
        again, text, entries = taken.check()
        assert list(again) == list(entries) == TITLES and "cut off by" not in text
        assert text.count("It was measured in this window before.") == k
        for title in TITLES:
            assert without_seconds(again[title]) == without_seconds(expected[title])
        if cut != "Loss curves beside the CPU's":  # both sides of a curve run again
            assert collections.Counter(taken.measured) == collections.Counter(full.measured)


def test_what_pytorch_compiled_travels(tmp_path):
    def cache(name, **kwargs):
        return compile_cache.CompileCache(tmp_path / name, tmp_path / "a/gpu.tar.gz", **kwargs)

    def files(name):
        return {str(path.relative_to(tmp_path / name)): path.read_bytes()
                for path in (tmp_path / name).rglob("*") if path.is_file()}

    one = cache("one")
    assert one.unpack() == "" and one.pack() == ""  # there is nothing yet
    old, new = tmp_path / "one/inductor/old", tmp_path / "one/triton/x/new"
    for path, age in ((old, 1000), (new, 2000)):
        path.parent.mkdir(parents=True)
        path.write_bytes(os.urandom(2 << 20))
        os.utime(path, (age, age))
    assert one.pack() == "gpu.tar.gz: 2 files, 4.0 MiB." and one.pack() == ""  # nothing new
    two = cache("two")
    assert two.unpack() == "" and files("two") == files("one")
    assert two.pack() == ""  # still what is in the archive
    # The newest files come first, and the others are named.
    small = cache("one", most=4 << 20)
    assert small.pack() == ("gpu.tar.gz: 1 files, 2.0 MiB. 1 older or larger files are left out, because an archive has "
                            "at most 4 MiB.")
    assert cache("three").unpack() == "" and list(files("three")) == ["triton/x/new"]
    environment = one.environment()
    assert {str(tmp_path / "one/inductor"), str(tmp_path / "one/triton")} < set(environment.values())


def test_bad_archives_are_named(tmp_path):
    archive = tmp_path / "gpu.tar.gz"
    cache = compile_cache.CompileCache(tmp_path / "folder/cache", archive)
    with tarfile.open(archive, "w:gz") as members:
        for name in ("../outside", "/tmp/absolute", "inside"):
            member = tarfile.TarInfo(name)
            member.size = 200000
            members.addfile(member, io.BytesIO(os.urandom(200000)))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/"
        members.addfile(link)
    assert cache.unpack() == "gpu.tar.gz: refused ../outside, /tmp/absolute, link"
    assert [path.name for path in (tmp_path / "folder").rglob("*")] == ["cache", "inside"]
    whole = archive.read_bytes()
    broken = whole[:-9] + bytes(9), whole[:300000], b"no archive", b""
    for i, content in enumerate(broken):
        archive.write_bytes(content)
        cache = compile_cache.CompileCache(tmp_path / f"folder/{i}", archive)
        assert cache.unpack().startswith("gpu.tar.gz is ignored: ")
        assert not (tmp_path / f"folder/{i}").exists()


def test_tests_that_never_passed_come_first(tmp_path, monkeypatch):
    folder = tmp_path / "history"
    known = history.History(folder, "gpu", "build")
    section = report.Section("kernels", 60)
    section.data["passed"] = 2
    known.add("kernels", section.outcome(), ["A.One", "A.Last"])
    assert known.before("kernels")["figures"] == {"passed": 2}
    section.left_out = "no GPU"
    known.add("other", section.outcome())
    again = history.History(folder, "gpu", "another build")
    assert again.tests() == {"A.One", "A.Last"} and not again.before("kernels") and not again.before("other")
    later = time.time() + history.WINDOW
    with monkeypatch.context() as clock:
        clock.setattr(history.time, "time", lambda: later)
        assert not known.before("kernels")  # another window
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
