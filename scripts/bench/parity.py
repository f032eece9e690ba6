# SPDX-License-Identifier: Apache-2.0
"""Whether FP8 learns what high precision learns, and whether gradients are
better in e5m2 or in e4m3: every recipe on the same text, from the same weights,
on the same batches, with many seeds. Each run is kept in a file, so a study
that was stopped goes on where it stopped.

  ./dev bench parity [--json FILE] [--markdown FILE] [...]
  ./dev bench parity --report-only [--study ID] [...]
"""
import argparse
import datetime
import pathlib

from bench import machine, parity_report, parity_runs
from bench import parity_stats as stats
from bench.machine import say

TIMED = False  # losses do not depend on other programs
# The default of each recipe, then the same with gradients in e4m3.
E4M3 = {"tensorwise": "tensorwise,go:dyn_ten_e4m3",
        "delayed": "delayed,go:del16_ten_e4m3"}
RECIPES = tuple(label for pair in E4M3.items() for label in pair)
SEEDS, STEPS = 10, 300


def arguments(words, names):
    parser = argparse.ArgumentParser(
        prog="./dev bench parity", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--json", type=pathlib.Path, help="write the figures of the tables")
    add("--markdown", type=pathlib.Path, help="write the tables too")
    add("--sizes", type=names(parity_runs.SIZES),
        default=tuple(parity_runs.SIZES),
        help="some of " + ",".join(parity_runs.SIZES) + ", in this order")
    add("--dtypes", type=names(parity_runs.DTYPES), default=parity_runs.DTYPES,
        help="some of " + ",".join(parity_runs.DTYPES))
    add("--recipes", nargs="+", default=RECIPES, metavar="RECIPE",
        help=f"beside {stats.BASE} ({' '.join(RECIPES)})")
    add("--seeds", type=int, default=SEEDS, help=f"of each run ({SEEDS})")
    add("--steps", type=int, help=f"of each run ({STEPS})")
    add("--threads", type=int, help="of each run (all CPUs); losses are the "
        "same with any number")
    add("--folder", type=pathlib.Path,
        help="where studies are kept (build/bench/parity)")
    add("--study", metavar="ID",
        help="go on with this study and its own copy of the program, not with "
        "that of the program as it is built now")
    add("--report-only", action="store_true",
        help="train nothing, report on the runs that are there")
    chosen = parser.parse_args(words)
    for path in (chosen.json, chosen.markdown):
        if path and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent}")
    for name in ("seeds", "steps", "threads"):
        value = getattr(chosen, name)
        if value is not None and value < 1:
            parser.error(f"--{name}: expected at least 1, got {value}")
    if chosen.steps and (chosen.study or chosen.report_only):
        parser.error("--steps: expected only with a study of the program as "
                     "it is built now: another study has its own steps")
    recipes = (stats.BASE, *chosen.recipes)
    chosen.recipes = tuple(dict.fromkeys(recipes))
    return chosen


def measure(chosen, binary, python, scripts, work):
    folder = chosen.folder or work / "parity"
    if chosen.study or chosen.report_only:
        study = parity_runs.find(folder, chosen.study)
    else:
        study = parity_runs.begin(
            folder, binary, chosen.steps or STEPS, scripts,
            {"commit": machine.commit(), "cpu": machine.cpu()["cpu"],
             "date": datetime.date.today().isoformat()})
    runs = parity_runs.plan(chosen.sizes, chosen.seeds, chosen.dtypes,
                            chosen.recipes)
    if chosen.report_only:
        results = study.results(runs)
    else:
        say(f"study {study.folder}")
        results = study.go_on(runs, chosen.threads, python, scripts)
    return {**evaluate(results, chosen), "study": study.folder.name,
            "settings": study.settings,
            "wanted": {"sizes": chosen.sizes, "seeds": chosen.seeds},
            "commit": study.facts["commit"],
            "machine": {"cpu": study.facts["cpu"],
                        "isa": study.settings["isa"]}}


def complete(results, size, chosen):
    """The seeds of which all runs of this size are there."""
    return [seed for seed in range(chosen.seeds)
            if all(run in results for run in
                   parity_runs.plan((size,), chosen.seeds, chosen.dtypes,
                                    chosen.recipes) if run.seed == seed)]


def evaluate(results, chosen):
    """For each size the seeds that count, their losses, the judgment of each
    recipe and the comparisons."""
    sizes = {}
    for size in chosen.sizes:
        seeds = complete(results, size, chosen)
        if not seeds:
            continue
        losses = {model: {dtype: {recipe: [
            {name: results[parity_runs.Run(size, seed, model, dtype,
                                           recipe)][name]
             for name in parity_runs.LOSSES}
            for seed in seeds] for recipe in chosen.recipes}
            for dtype in chosen.dtypes} for model in parity_runs.MODELS}
        sizes[size] = {
            "seeds": seeds, "losses": losses,
            "judged": {model: {dtype: stats.judge(of_dtype)
                               for dtype, of_dtype in of_model.items()}
                       for model, of_model in losses.items()},
            "compared": compared(losses, chosen)}
    return {"sizes": sizes}


def compared(losses, chosen):
    """{question: {what: {model, or both: interval}}}. What is compared is a list
    of pairs of sides, and a side is a dtype and a recipe."""
    dtypes, groups = chosen.dtypes, {}
    e5m2 = [recipe for recipe, e4m3 in E4M3.items()
            if {recipe, e4m3} <= set(chosen.recipes)]
    if e5m2:
        of = {f"{recipe}, {dtype}": [((dtype, E4M3[recipe]), (dtype, recipe))]
              for recipe in e5m2 for dtype in dtypes}
        of["all of these"] = [pair for pairs in of.values() for pair in pairs]
        groups[parity_report.FORMATS] = of
        groups[parity_report.BOTH] = {
            f"gradients in {name}": [((dtype, recipe), (dtype, stats.BASE))
                                     for recipe in recipes for dtype in dtypes]
            for name, recipes in (("e5m2", e5m2),
                                  ("e4m3", [E4M3[r] for r in e5m2]))}
    if set(parity_runs.DTYPES) <= set(dtypes):
        groups[parity_report.TYPES] = {
            recipe: [(("bfloat16", recipe), ("float32", recipe))]
            for recipe in chosen.recipes}

    def pairs(model, of):
        return [tuple([f["loss"] for f in losses[model][dtype][recipe]]
                      for dtype, recipe in pair) for pair in of]

    return {group: {what: {
        **{model: stats.compare(pairs(model, of)) for model in losses},
        "both": stats.compare([p for model in losses
                               for p in pairs(model, of)])}
        for what, of in rows.items()} for group, rows in groups.items()}


def outside(result):
    """What keeps the default labels from parity, for the exit code."""
    complaints = []
    for size, of_size in result["sizes"].items():
        for model, of_model in of_size["judged"].items():
            for dtype, judged in of_model.items():
                for recipe, j in judged.items():
                    if (recipe == stats.BASE or "," in recipe
                            or j["holds"] == stats.YES):
                        continue
                    complaints.append(f"{size} {model}, {dtype}: {recipe} "
                                      + parity_report.why(j, judged))
    wanted = result["wanted"]
    for size in wanted["sizes"]:
        done = len(result["sizes"].get(size, {"seeds": []})["seeds"])
        if done < wanted["seeds"]:
            complaints.append(
                f"{size}: expected {wanted['seeds']} seeds, found {done} that "
                f"have ended: go on with --study {result['study']}")
    return complaints


markdown = parity_report.markdown
