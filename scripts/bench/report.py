# SPDX-License-Identifier: Apache-2.0
"""Reports on the figures: as numbers, as Markdown and as a comparison of two
runs. Needs only the standard library."""
import random
import statistics

import short_json
from bench import gemm as products
from bench.contest import OURS

# Allowed relative difference of a step's loss from this program's in fp32. The
# reasons: sums in another order, then AdamW, which amplifies small gradients.
LOSS_TOLERANCE = {"torch_eager_fp32": 1e-4, "torch_compile_fp32": 1e-4,
                  "ort_training": 1e-4}
# CPUs that other programs may keep busy in a run that is kept.
FOREIGN_CPUS = 0.1


def ratios(models, figure="tokens_per_second"):
    """{model: {row: {peer: ours / theirs}}}."""
    return {
        model: {
            row: {peer: results[row][figure] / theirs[figure]
                  for peer, theirs in results.items() if peer not in OURS}
            for row in OURS if row in results}
        for model, results in models.items()}


def interval(ours, theirs, average=statistics.median, draws=1000):
    """95 % of a bootstrap of the ratio of averages. Rounds are drawn in pairs,
    so that a round that was slow for both stays so; then steps of each turn.
    Both arguments are lists of turns, and turns are lists of seconds."""
    draw, found = random.Random(0), []
    rounds = range(min(len(ours), len(theirs)))

    def steps(turns, chosen):
        return [s for r in chosen for s in draw.choices(turns[r],
                                                        k=len(turns[r]))]

    for _ in range(draws):
        chosen = draw.choices(rounds, k=len(rounds))
        found.append(average(steps(theirs, chosen))
                     / average(steps(ours, chosen)))
    found.sort()
    return [found[round(p * (draws - 1))] for p in (0.025, 0.975)]


def ratio_intervals(models):
    """{model: {row: {peer: [low, high]}}} of ratios()."""
    return {
        model: {
            row: {peer: interval(results[row]["seconds"], theirs["seconds"])
                  for peer, theirs in results.items() if peer not in OURS}
            for row in OURS if row in results}
        for model, results in models.items()}


def _largest(values):
    """The maximum, or NaN if one is NaN: max() may skip it."""
    return next((x for x in values if x != x), max(values))


def loss_differences(models):
    """{model: {name: largest relative difference from our fp32 losses}}."""
    differences = {}
    for model, results in models.items():
        if "fp32" not in results:
            continue
        ours = results["fp32"]["losses"]
        differences[model] = {
            name: _largest([abs(a - b) / abs(b)
                            for a, b in zip(result["losses"], ours)])
            for name, result in results.items() if name != "fp32"}
    return differences


def failures(report):
    """Sentences about recipes of ours that did not train, and fp32 peers whose
    losses differ from ours (NaN always does)."""
    failures = [f"{model}, {name}: {why}"
                for model, left in report["left_out"].items()
                for name, why in left.items() if name in OURS]
    for model, names in report["loss_differences"].items():
        for name, difference in names.items():
            limit = LOSS_TOLERANCE.get(name)
            if limit is not None and not difference <= limit:
                failures.append(f"{model}: losses of {name} differ from ours "
                                f"by {difference:.1e}, more than {limit:.0e}")
    return failures


def keep(report, text, json_path, markdown_path):
    """Writes the requested files, or says why they are not worth keeping."""
    if not json_path and not markdown_path:
        return []
    busy = report["machine"]["foreign_cpus"]
    if busy > FOREIGN_CPUS:
        return [f"not kept, because other programs kept {busy:.2f} CPUs busy "
                f"(at most {FOREIGN_CPUS}): run it again when they have ended"]
    return write(report, text, json_path, markdown_path)


def write(report, text, json_path, markdown_path):
    """Writes the requested files; there is no complaint."""
    if json_path:
        json_path.write_text(short_json.text(short_json.short(report)))
    if markdown_path:
        markdown_path.write_text(text)
    return []


def table(header, rows):
    """A Markdown table whose first column is text and the others numbers."""
    cells = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, row)) + " |"
                     for row in cells) + "\n"


def _ratio(value, interval):
    if interval is None:  # of a run that had none
        return f"{value:.2f}"
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def _mib(size):
    return "-" if size is None else f"{size / 2**20:.0f}"


def _machine(report):
    machine, settings = report["machine"], report["settings"]
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    lines = [
        f"- CPU: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; "
        f"flags: {' '.join(machine['flags'])}",
        f"- Instruction set: {machine['isa']}; products: {machine['gemm']}; "
        f"threads: {machine['threads']}",
        f"- Date: {report['date']}; commit {report['commit']}",
        f"- Versions: {versions}",
        f"- Load average at the start {machine['load_before']:.1f}; other "
        f"programs kept {machine['foreign_cpus']:.2f} CPUs busy",
        f"- Rounds: {settings['rounds']}, steps of a turn that count: "
        f"{settings['steps']}; seed of the order of turns: "
        f"{settings['seed']}",
    ]
    if settings.get("size", "default") != "default":
        lines.append(f"- Size of the task: {settings['size']}")
    lines += [f"- Warning: {warning}" for warning in report["warnings"]]
    return "\n".join(lines) + "\n"


def _training(model, results, report):
    rows = [[f"**{name}**" if name in OURS else name,
             f"{r['tokens_per_second']:.0f}",
             f"{r['best_tokens_per_second']:.0f}", _mib(r.get("peak_rss")),
             _mib(r.get("rss_before_training")), r.get("threads", "-"),
             f"{r['fp8_gemms']} of {r['gemms']}" if "gemms" in r
             else r["fp8_gemms"]]
            for name, r in results.items()]
    text = f"## Training: {model}\n\n" + table(
        ["", "tokens/s", "best", "peak MiB", "before training MiB",
         "threads", "products in FP8"], rows)
    for name, why in report["left_out"].get(model, {}).items():
        text += f"\n{name} is left out: {why}\n"
    of = report["ratios"].get(model, {})
    peers = [name for name in results if name not in OURS]
    if of and peers:
        within = report["ratio_intervals"][model]
        text += ("\nOur tokens/s ÷ the peer's, and the interval in which 95 % "
                 "of the ratios lie that the same rounds could have given:"
                 "\n\n") + table(
            ["", *of], [[peer, *(_ratio(of[recipe][peer], within[recipe][peer])
                                 for recipe in of)] for peer in peers])
    return text


def _losses(differences):
    names = sorted({n for of in differences.values() for n in of})
    rows = []
    for name in names:
        limit = LOSS_TOLERANCE.get(name)
        cells = [f"{of[name]:.1e}" if name in of else "-"
                 for of in differences.values()]
        rows.append([name, *cells, f"{limit:.0e}" if limit else "-"])
    return ("## Losses\n\nLargest relative difference from our fp32 losses "
            "over the steps of the first turn:\n\n"
            + table(["", *differences, "must be below"], rows))


def _gemm(gemm):
    peak = gemm["peak"]
    first = gemm["products"][0]
    libraries = [name for name in ("openblas", "mkl", "torch_bf16")
                 if name in first]
    # Files of older runs have no products of bfloat16.
    names = [*(name for name in products.OURS if name in first), *libraries]
    shares = [("fp32", "fp32 % of peak"), ("fp8", "FP8 % of peak")]
    ratios = [("fp32", ("openblas", "mkl"), "fp32 ÷ best sgemm"),
              ("fp8", ("openblas", "mkl"), "FP8 ÷ best sgemm"),
              ("bf16", ("torch_bf16",), "bf16 ÷ torch_bf16")]
    ratios = [r for r in ratios if r[0] in names and r[1][-1] in libraries]
    rows = []
    for p in gemm["products"]:
        rows.append([
            f"{p['what']} {p['m']}x{p['k']}x{p['n']} {p['layout']}",
            *(f"{p[name]:.0f}" for name in names),
            *(f"{100 * p[name] / peak[name]:.0f}" for name, _ in shares),
            *(f"{p[name] / max(p[of] for of in others):.2f}"
              for name, others, _ in ratios)])
    text = ("## Matrix products\n\nBest GF/s. Peak, on registers alone: "
            f"{peak['fp32']:.0f} in fp32, {peak['fp8']:.0f} with the kernels "
            f"of FP8 ({gemm['kernels']}). `openblas` and `mkl` are sgemm; "
            "`bf16` and `torch_bf16` have results of bfloat16, too.\n\n")
    text += table(["M x K x N", *names, *(title for _, title in shares),
                   *(title for *_, title in ratios)], rows)
    text += "\nAll linear layers of a step, milliseconds:\n\n" + table(
        ["", *names], [[model, *(f"{of[name]:.1f}" for name in names)]
                       for model, of in gemm["step_ms"].items()])
    return text


def _profile(profiles):
    text = "## Where our steps spend their time\n\nMilliseconds per step.\n"
    for title, of in profiles.items():
        total = sum(of.values())
        rows = [[op, f"{ms:.1f}", f"{100 * ms / total:.0f} %"]
                for op, ms in list(of.items())[:10]]
        text += f"\n{title}:\n\n" + table(["", "ms", "share"], rows)
    return text


def markdown(report):
    parts = [f"# Benchmark: {report['machine']['isa']}\n", _machine(report)]
    for model, results in report["models"].items():
        parts.append(_training(model, results, report))
    if report["loss_differences"]:
        parts.append(_losses(report["loss_differences"]))
    if report.get("profiles"):
        parts.append(_profile(report["profiles"]))
    if report.get("gemm"):
        parts.append(_gemm(report["gemm"]))
    return "\n".join(parts)


def _leaves(tree, path=()):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        elif value is not None:
            yield ".".join((*path, name)), value


def figures(report):
    """All figures by which two runs can be compared. Larger is better, except
    for peak_rss and step_ms."""
    found = {}
    for name in ("ratios", "peak_rss"):
        found |= dict(_leaves(report.get(name, {}), (name,)))
    gemm = report.get("gemm") or {}
    return found | dict(_leaves(gemm.get("step_ms", {}), ("step_ms",)))


def compare(old, new):
    """Markdown, and one line for each figure that only one run has."""
    a, b = figures(old), figures(new)
    text = ""
    for what in ("cpu", "isa", "threads"):
        if old["machine"][what] != new["machine"][what]:
            text += (f"Not the same {what}: {old['machine'][what]} and "
                     f"{new['machine'][what]}\n\n")
    for side, report in (("old", old), ("new", new)):
        for warning in report["warnings"]:
            text += f"Warning of the {side} run: {warning}\n\n"

    def intervals(report):
        return {f"ratios.{model}.{recipe}.{peer}": pair
                for model, of in report.get("ratio_intervals", {}).items()
                for recipe, peers in of.items()
                for peer, pair in peers.items()}

    def shown(name, value, within):
        if name.startswith("peak_rss"):
            return _mib(value)
        return _ratio(value, within.get(name))

    of_old, of_new = intervals(old), intervals(new)
    rows = [[name, shown(name, a[name], of_old), shown(name, b[name], of_new),
             f"{100 * (b[name] / a[name] - 1):+.1f} %"]
            for name in a if name in b]
    text += table(["", "old", "new", "change"], rows)
    for side, here, there in (("old", a, b), ("new", b, a)):
        for name in here:
            if name not in there:
                text += f"\nonly in the {side} run: {name}\n"
    return text
