# SPDX-License-Identifier: Apache-2.0
"""Whether FP8 learns what high precision learns, and whether gradients are
better in e5m2 or in e4m3: every recipe on the same text, from the same weights,
on the same batches, with many seeds. Each run is kept in a file, so a study
that was stopped goes on where it stopped.

  ./dev bench parity [--json FILE] [--markdown FILE] [...]
  ./dev bench parity --report-only [--study ID] [...]
"""
from bench import parity_report, parity_runs
from bench import parity_stats as stats
from bench import studies

TIMED = False  # losses do not depend on other programs
# The default of each recipe, then the same with gradients in e4m3.
E4M3 = {"tensorwise": "tensorwise,go:dyn_ten_e4m3",
        "delayed": "delayed,go:del16_ten_e4m3"}
RECIPES = tuple(label for pair in E4M3.items() for label in pair)
SEEDS, STEPS = 10, 300


def arguments(words, names):
    parser = studies.parser("parity", __doc__, SEEDS, STEPS, names)
    parser.add_argument(
        "--sizes", type=names(parity_runs.SIZES),
        default=tuple(parity_runs.SIZES),
        help="some of " + ",".join(parity_runs.SIZES) + ", in this order")
    parser.add_argument("--recipes", nargs="+", default=RECIPES,
                        metavar="RECIPE",
                        help=f"beside {stats.BASE} ({' '.join(RECIPES)})")
    chosen = studies.parse(parser, words)
    recipes = (stats.BASE, *chosen.recipes)
    chosen.recipes = tuple(dict.fromkeys(recipes))
    return chosen


def measure(chosen, binary, python, scripts, work):
    runs = parity_runs.plan(chosen.sizes, chosen.seeds, chosen.dtypes,
                            chosen.recipes)
    results, facts = studies.run(chosen, runs, work / "parity", STEPS,
                                 (binary, python, scripts))
    return {**evaluate(results, chosen), **facts,
            "wanted": {"sizes": chosen.sizes, "seeds": chosen.seeds}}


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
