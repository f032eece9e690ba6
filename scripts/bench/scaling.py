# SPDX-License-Identifier: Apache-2.0
"""How cost grows: with the number of nodes, with the size of a file, with
batch, sequence and width.

  ./dev bench scaling [--markdown FILE] [--quick] [--only nodes,file,sizes]
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

from bench import graphs, report, task
from bench.machine import environment, say

TIMED = True  # figures depend on other programs
PARTS = ("nodes", "file", "sizes")
NODES = (1000, 2000, 5000, 10000, 20000, 50000)
SHAPES = {"llama": graphs.llama, "mlp": graphs.mlp,
          "shared": graphs.shared}

# One axis varies at a time.
BATCH, SEQ, WIDTH = 8, 256, 256
BATCHES, SEQS, WIDTHS = (1, 2, 4, 8, 16), (64, 128, 256, 512, 1024), (
    128, 256, 384, 512)
RECIPES = {"fp32": "off", "tensorwise": "tensorwise"}
WARM_UP = 2


def run(*command):
    """The output, the seconds and the peak resident bytes. Linux counts these
    from this process on, so they are at least what Python takes."""
    begin = time.monotonic()
    child = subprocess.Popen([*map(str, command)], env=environment(),
                             stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"bench: {command[1]} {command[2]} ended with exit "
                         f"code {child.returncode}")
    return printed, time.monotonic() - begin, usage.ru_maxrss * 1024


class Measurement:
    def __init__(self, binary, python, scripts, work, quick):
        self.binary, self.python, self.scripts = binary, python, scripts
        self.work, self.quick = work / "scaling", quick
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def nodes(self):
        """Rows of seconds for each shape and number of nodes."""
        rows = []
        for name, make in SHAPES.items():
            for nodes in NODES[:3] if self.quick else NODES:
                path = self.work / f"{name}_{nodes}.onnx"
                make(path, nodes)
                sizes = "batch=1,seq=16" if name == "llama" else "batch=1"
                text, seconds, peak = run(
                    self.binary, "inspect", path, "--json", "--shape", sizes,
                    "--recipe", "tensorwise", "--optimizer", "adamw")
                inspected = json.loads(text)
                if "memory" not in inspected:
                    raise SystemExit(f"bench: no plan of {path}: "
                                     f"{inspected['notes']}")
                _, rewrite, _ = run(
                    self.binary, "rewrite", path, "-o",
                    path.with_suffix(".fp8.onnx"), "--recipe", "tensorwise")
                spent, special = inspected["seconds"], inspected["specialize"]
                spent["step_graph"] -= special["seconds"]
                row = {"shape": name, "nodes": special["nodes_before"],
                       **spent, "specialize": special["seconds"],
                       "inspect": seconds, "rewrite": rewrite, "peak": peak}
                say(f"{name}, {nodes} nodes: inspect {seconds:.2f} s, "
                    f"rewrite {rewrite:.2f} s")
                rows.append(row)
                for file in self.work.glob(f"{name}_{nodes}.*"):
                    file.unlink()
        return rows

    def file(self):
        """The model of 7 billion parameters: the command, seconds, peak, and
        the bytes that it added on the disk."""
        folder = self.work / "llama_7b"
        (folder / "other").mkdir(parents=True)
        model = folder / "model.onnx"
        graphs.llama_7b(model)
        data = folder / "model.onnx.data"
        rows = []

        def measure(what, *command):
            before = disk_bytes(folder)
            _, seconds, peak = run(self.binary, *command)
            rows.append({"what": what, "seconds": seconds, "peak": peak,
                         "disk": disk_bytes(folder) - before})
            say(f"7B, {what}: {seconds:.2f} s, {peak / 2**20:.0f} MiB")

        try:
            if disk_bytes(folder) > data.stat().st_size / 2:
                raise SystemExit(f"bench: {folder} does not keep files sparse")
            rewrite = ("rewrite", model, "--recipe", "tensorwise", "-o")
            measure("inspect", "inspect", model)
            measure("inspect --shape", "inspect", model, "--shape",
                    "batch=1,seq=128", "--recipe", "tensorwise")
            measure("rewrite, same folder", *rewrite, folder / "fp8.onnx")
            measure("rewrite, other folder", *rewrite,
                    folder / "other/fp8.onnx")
            size = data.stat().st_size
        finally:
            shutil.rmtree(folder)
        return {"bytes": size, "rows": rows}

    def sizes(self):
        widths = WIDTHS[:2] if self.quick else WIDTHS
        say(f"exporting {len(widths)} widths")
        with open(self.work / "export.log", "w") as log:
            subprocess.run(
                [self.python, "-m", "bench.torch_sizes", self.work,
                 str(max(SEQS)), *map(str, widths)], cwd=self.scripts,
                env=environment(), check=True, stdout=log, stderr=log)
        random_tokens(self.work / "tokens.bin", max(BATCHES) * max(SEQS) * 16)
        settings = [(b, SEQ, WIDTH) for b in BATCHES]
        settings += [(BATCH, s, WIDTH) for s in SEQS]
        settings += [(BATCH, SEQ, w) for w in widths]
        if self.quick:
            settings = [(1, 64, 128), (2, 128, 256)]
        return [self.train(*setting) for setting in dict.fromkeys(settings)]

    def train(self, batch, seq, width):
        model = self.work / f"gpt_{width}.onnx"
        steps = 2 if self.quick else max(4, 16384 // (batch * seq))
        shape = f"batch={batch},seq={seq}"
        row = {"batch": batch, "seq": seq, "width": width}
        for name, recipe in RECIPES.items():
            text, _, _ = run(self.binary, "inspect", model, "--json",
                             "--loss", "cross_entropy", "--recipe", recipe,
                             "--shape", open_axes(model, batch, seq))
            inspected = json.loads(text)
            row["parameters"], flops = work_of_step(inspected)
            folder = self.work / "run"
            run(self.binary, "train", model, "--data",
                self.work / "tokens.bin", "--token-dtype", "uint16",
                "--seq-len", seq, "--batch-size", batch, "--no-shuffle",
                "--loss", "cross_entropy", "--optimizer", "adamw", "--lr",
                task.LR, "--recipe", recipe, "--steps", WARM_UP + steps,
                "--out", folder)
            lines = (folder / "metrics.jsonl").read_text().splitlines()
            speed = statistics.median(json.loads(line)["tokens_per_second"]
                                      for line in lines[WARM_UP:])
            shutil.rmtree(folder)
            row[name] = {"tokens_per_second": speed,
                         "flops": flops * speed / (batch * seq)}
            say(f"{shape}, width {width}, {name}: {speed:.0f} tokens/s")
        return row


def disk_bytes(folder):
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*"))


def random_tokens(path, count):
    random = task.numpy.random.default_rng(0)
    random.integers(0, task.VOCABULARY, count + 1).astype("<u2").tofile(path)


def open_axes(model, batch, seq):
    """--shape for the two axes of input_ids, whatever the exporter calls
    them."""
    import onnx
    file = onnx.load(model, load_external_data=False)
    axes = file.graph.input[0].type.tensor_type.shape.dim
    return f"{axes[0].dim_param}={batch},{axes[1].dim_param}={seq}"


def work_of_step(inspected):
    """Parameters of the linear layers, and floating-point operations of all
    products of a step; attention is causal, so half of its products count."""
    parameters, flops = 0, 0
    for gemm in inspected["gemms"]:
        size = gemm["m"] * gemm["k"] * gemm["n"]
        flops += size if gemm["role"] == "none" else 2 * size
        if gemm["role"] == "forward":
            parameters += gemm["k"] * gemm["n"]
    return parameters, flops


def nodes_markdown(rows):
    text = ("## Nodes\n\nSeconds. `inspect` reads the model, specializes it, "
            "builds its training step (forward, backward, FP8, AdamW) and "
            "plans that. `llama`: narrow decoder layers; `mlp`: linear layers "
            "and ReLU, 20,000 parameters in 50,000 nodes; `shared`: a chain "
            "of which every node reads the same parameter or the same "
            "constant.\n\n")
    cells = [[f"{r['shape']}, {r['nodes']}",
              *(f"{r[name]:.2f}" for name in
                ("read", "specialize", "step_graph", "plan", "inspect")),
              f"{1e6 * r['inspect'] / r['nodes']:.0f}",
              f"{r['rewrite']:.2f}", f"{r['peak'] / 2**20:.0f}"]
             for r in rows]
    return text + report.table(
        ["nodes", "read", "specialize", "step graph", "plan",
         "`inspect` in all", "µs per node", "forward `rewrite`", "peak MiB"],
        cells)


def file_markdown(file):
    cells = [[r["what"], f"{r['seconds']:.2f}", f"{r['peak'] / 2**20:.0f}",
              f"{r['disk'] / 2**20:.1f}"] for r in file["rows"]]
    return ("## A large file\n\nA LLaMA-shaped model of 32 layers, width 4096, "
            f"with {file['bytes'] / 1e9:.1f} GB of external data that are one "
            "hole, which copies keep.\n\n"
            + report.table(["", "seconds", "peak MiB", "MiB written"], cells))


def sizes_markdown(rows):
    cells = []
    for r in rows:
        row = [f"{r['batch']} x {r['seq']}, {r['width']}",
               f"{r['parameters'] / 1e6:.2f}"]
        for name in RECIPES:
            speed = r[name]["tokens_per_second"]
            row += [f"{speed:.0f}", f"{speed * r['parameters'] / 1e9:.1f}",
                    f"{r[name]['flops'] / 1e9:.0f}"]
        cells.append(row)
    header = ["batch x sequence, width", "parameters, millions"]
    for name in RECIPES:
        header += [f"{name}: tokens/s", "x parameters / 1e9", "GF/s"]
    return ("## Batch, sequence and width\n\nThe GPT of `./dev bench`. "
            "Parameters are those of linear layers. GF/s counts the products "
            "of a step, those of attention by half, for it is causal.\n\n"
            + report.table(header, cells))


def markdown(result):
    facts = result["machine"]
    parts = [f"# Scaling: {facts['isa']}\n",
             f"- CPU: {facts['cpu']}, {facts['cores']} cores, "
             f"{facts['memory_bytes'] / 2**30:.0f} GiB\n"
             f"- Products: {facts['gemm']}; threads: {facts['threads']}\n"
             f"- Date: {result['date']}; commit {result['commit']}; load "
             f"average at the start {facts['load_before']:.1f}\n"]
    tables = {"nodes": nodes_markdown, "file": file_markdown,
              "sizes": sizes_markdown}
    parts += [tables[part](result[part]) for part in PARTS if part in result]
    return "\n".join(parts)


def outside(result):
    """There is no goal to reach."""
    return []


def arguments(words, names):
    parser = argparse.ArgumentParser(
        prog="./dev bench scaling", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=pathlib.Path,
                        help="write the tables too")
    parser.add_argument("--quick", action="store_true",
                        help="the small end of each table")
    parser.add_argument("--only", type=names(PARTS), default=PARTS,
                        help="some of " + ",".join(PARTS))
    chosen = parser.parse_args(words)
    if chosen.markdown and not chosen.markdown.parent.is_dir():
        parser.error(f"there is no folder {chosen.markdown.parent}")
    return chosen


def measure(chosen, *where):
    measurement = Measurement(*where, chosen.quick)
    return {part: getattr(measurement, part)() for part in PARTS
            if part in chosen.only}
