# SPDX-License-Identifier: Apache-2.0
"""Training steps of four layers of Llama-3-8B's width, one sequence of 8192
tokens, beside PyTorch with torch.compile and torchao. The model is a graph
without weights, which --init draws."""
import pathlib
import random
import sys
import tempfile

from gpu import end_to_end, losses, report, runs

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
SIZE = "llama3_8b_4"
PACK = SCRIPTS.parent / "build/release/pack"
OURS = (("off",), ("tensorwise",), ("rowwise",), ("blockwise",),
        ("tensorwise", "--grad-accum", "2"))
PEERS = ("bfloat16", "tensorwise", "rowwise")
STEPS = 8
LIMIT = 90  # seconds of a peer, which compiles


class Task:
    """As end_to_end.Task, for one of bench.graphs.LLAMA3."""

    def __init__(self, folder, section, quick, size=SIZE):
        self.folder, self.steps = folder, 2 if quick else STEPS
        self.batch, self.seq = 1, 32 if quick else 8192
        packed = PACK / f"{size}.onnx"
        self.file, self.tokens = packed, folder / "tokens.bin"
        if quick or not packed.exists():
            self.file = folder / "llama.onnx"
            name = "tiny" if quick else size
            done = runs.run([sys.executable, "-m", "bench.graphs", name,
                             self.file], section.left(), cwd=SCRIPTS)
            if done.cut:
                raise report.OutOfTime("the graph of the model")
            if done.code:
                raise report.LeftOut(
                    f"there is no {packed}, which --pack writes, and "
                    f"bench.graphs says: {done.tail(1)}")
        draw, below = random.Random(0), 64 if quick else 1 << 16
        count = self.batch * self.seq * 4 + 1
        losses.write_numbers(self.tokens,
                             [draw.randrange(below) for _ in range(count)])

    def per_step(self):
        return self.batch * self.seq


def check(section, binary, provider, quick, predicted):
    with tempfile.TemporaryDirectory() as folder:
        task = Task(pathlib.Path(folder), section, quick)
        rows = dict(section.before.get("rows", {}))
        for way in OURS[:2] if quick else OURS:
            end_to_end.measure(
                section, rows, f"onnx-fp8, {' '.join(way)}",
                lambda: end_to_end.ours(
                    task, binary, provider, way[0], section.left(), *way[1:],
                    "--init", "normal:0.02"))
        if provider == "cuda" and end_to_end.imports("torch"):
            peers = PEERS if end_to_end.imports("torchao.float8") else PEERS[:1]
            for name in peers:
                end_to_end.measure(
                    section, rows, f"PyTorch, {name}",
                    lambda: end_to_end.theirs(
                        task, name, min(section.left(), LIMIT), SIZE, "llama"))
        section.data.update(tokens=task.per_step(), rows=rows)
        section.add(f"Batches of {task.per_step()} tokens, bfloat16 but for "
                    "FP8. The plan counts results, workspaces and state; GPU "
                    "memory is what the driver counts, with CUDA's own. Weights "
                    "are not PyTorch's.")
        section.add(report.table(
            ["program", "ms per batch", "predicted", "tokens per second",
             "plan MiB", "GPU MiB", "first loss", "last loss"],
            [line(name, row, task, predicted) for name, row in rows.items()]))


def line(name, row, task, predicted):
    def mib(*counts):
        return sum(counts) // 2**20 if all(counts) else "?"
    return [name, f"{row['milliseconds']:.2f}", predicted.get(name, ""),
            f"{1e3 * task.per_step() / row['milliseconds']:.0f}",
            mib(row.get("arena_bytes"), row.get("state_bytes")),
            mib(row["gpu_bytes"]),
            f"{row['losses'][0]:.4f}", f"{row['losses'][-1]:.4f}"]
