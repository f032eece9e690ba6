# SPDX-License-Identifier: Apache-2.0
"""Five steps of Llama-3-8B, all of it, one sequence of 8192 tokens, with the
flags by which docs/memory_and_time.md fits it into an H100. The memory that the
GPU's driver counts is held against the plan's. The model is a graph without
weights, which --init draws, and the state of 60 GiB is not saved."""
import json
import pathlib
import resource
import shutil
import statistics
import tempfile

from gpu import end_to_end, llama, report, runs

SIZE = "llama3_8b"
STEPS = 5
WARM_UP = 2  # plans, then records
FLAGS = ("--loss", "cross_entropy", "--optimizer", "adamw", "--dtype",
         "bfloat16", "--recipe", "tensorwise", "--recompute", "blocks",
         "--release-gradients", "--moments", "bfloat16")
MOST_OFF = 3  # %: the driver's bytes beside the plan's
# Of each file that the run writes. Its graph and its metrics are smaller, its
# checkpoint is larger: the program reports that the last step is not saved.
FILES = 64 << 20
QUICK_FILES = 96 << 10
NOT_SAVED = "the last step is not saved"


def gpu_memory():
    """The bytes of the GPU: all, and those that programs hold now. None without
    nvidia-smi."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    done = runs.run([smi, "--query-gpu=memory.total,memory.used",
                     "--format=csv,noheader,nounits"], 10, errors=False)
    counts = done.out.replace(",", " ").split()
    if done.code or not all(word.isdigit() for word in counts[:2]):
        return None
    return tuple(int(word) << 20 for word in counts[:2])


def kind(gpu):
    """The GPU whose data sheet `plan` takes."""
    return "h200" if "h200" in gpu else "h100"


def planned(section, task, binary, provider, gpu):
    """The bytes of the plan by what they hold, or None."""
    done = runs.run(
        [binary, "plan", task.file, "--batch-size", task.batch, "--shape",
         f"seq={task.seq}", "--gpu", kind(gpu), *FLAGS,
         *(("--provider", provider) if provider == "cuda" else ()), "--json"],
        section.left(), errors=False)
    if done.cut:
        section.cut("the plan")
    elif done.code:
        section.fail(f"the plan: {done.tail(3)}")
    else:
        return json.loads(done.out)["memory"]
    return None


def trained(section, task, binary, provider, files):
    """The figures of the steps, or None."""
    out = pathlib.Path(tempfile.mkdtemp(dir=task.folder)) / "run"

    def limit():
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (files, most))

    with end_to_end.GpuMemory() as memory:
        done = runs.run(
            [binary, "train", task.file, "--provider", provider, "--init",
             "normal:0.02", "--data", task.tokens, "--token-dtype", "uint16",
             "--seq-len", task.seq, "--batch-size", task.batch, "--no-shuffle",
             "--lr", end_to_end.LR, "--steps", STEPS, "--out", out, *FLAGS,
             "--json"], max(1, section.left()), preexec_fn=limit)
    printed, metrics = end_to_end.summary(done), out / "metrics.jsonl"
    if done.cut:
        section.cut("the steps")
        return None
    if (done.code and NOT_SAVED not in done.out) or not printed:
        section.fail(f"the steps: {done.tail(3)}")
        return None
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {"losses": [step["loss"] for step in steps],
            "update_amax": printed.get("update_amax"),
            "tokens_per_second": statistics.median(
                step["tokens_per_second"] for step in steps[WARM_UP:]),
            "arena_bytes": printed["arena_bytes"],
            "state_bytes": printed["state_bytes"],
            "gpu_bytes": memory.peak_bytes}


def compare(section, figures):
    """Fails if the driver's bytes, less those of other programs, are not the
    plan's. Returns the difference as a share of the plan, or None."""
    if figures["gpu_bytes"] is None:
        return None
    own = figures["gpu_bytes"] - figures["gpu_bytes_before"]
    plan = figures["plan"]["total"]
    off = (own - plan) / plan
    if 100 * abs(own - plan) > MOST_OFF * plan:
        section.fail(f"expected the {mib(plan)} MiB of the plan within "
                     f"{MOST_OFF} %, the driver counts {mib(own)} MiB "
                     f"({off:+.1%})")
    return off


def require_numbers(section, figures):
    """Fails if a loss or an update is none: JSON has no NaN."""
    if None in figures["losses"]:
        section.fail("expected losses, got "
                     + ", ".join(map(str, figures["losses"])))
    if figures["update_amax"] is None:
        section.fail("expected updates that are numbers, got an infinite one")


def mib(count):
    return "?" if count is None else count // 2**20


def check(section, binary, provider, quick, gpu):
    figures = dict(section.before.get("run", {}))
    with tempfile.TemporaryDirectory() as folder:
        if not figures:
            figures = measure(section, llama.Task(
                pathlib.Path(folder), section, quick, SIZE), binary, provider,
                gpu, QUICK_FILES if quick else FILES)
    if not figures:
        return
    section.data["run"] = figures
    require_numbers(section, figures)
    off = compare(section, figures)
    section.add("Flags: `" + " ".join(FLAGS) + "`. The plan is "
                f"`plan --gpu {kind(gpu)}`; the driver's bytes are without "
                "those that were in use before, and with CUDA's own.")
    section.add(report.table(
        ["", "plan MiB", "run MiB", "driver MiB", "off", "tokens per second",
         "first loss", "last loss", "largest update"],
        [["parameters and moments", mib(figures["plan"]["parameters"]
                                        + figures["plan"]["optimizer"]),
          mib(figures["state_bytes"]), *6 * [""]],
         ["arena", mib(figures["plan"]["arena"]), mib(figures["arena_bytes"]),
          *6 * [""]],
         ["all", mib(figures["plan"]["total"]), "",
          "?" if figures["gpu_bytes"] is None else
          mib(figures["gpu_bytes"] - figures["gpu_bytes_before"]),
          "?" if off is None else f"{off:+.1%}",
          f"{figures['tokens_per_second']:.0f}", figures["losses"][0],
          figures["losses"][-1], figures["update_amax"]]]))


def measure(section, task, binary, provider, gpu, files):
    """Plans, then trains if the GPU has the memory. None: cut off or failed."""
    data = task.file.with_name(task.file.name + ".data")
    if data.exists() or task.file.stat().st_size > FILES:
        section.fail(f"{task.file.name}: expected a graph without weights")
        return None
    plan = planned(section, task, binary, provider, gpu)
    if not plan:
        return None
    memory = gpu_memory() if provider == "cuda" else None
    if memory and plan["total"] > memory[0] - memory[1]:
        raise report.LeftOut(
            f"the plan takes {mib(plan['total'])} MiB, of {mib(memory[0])} MiB "
            f"of the GPU {mib(memory[1])} MiB are in use")
    figures = trained(section, task, binary, provider, files)
    if not figures:
        return None
    return {**figures, "plan": plan,
            "gpu_bytes_before": memory[1] if memory else 0}
