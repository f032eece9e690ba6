# SPDX-License-Identifier: Apache-2.0
"""The tables of a study of loss parity."""
from bench import report
from bench.parity_runs import SIZES
from bench.parity_stats import BASE, NO, OPEN

FORMATS = "Gradients in e4m3 against e5m2"
BOTH = "All these recipes and dtypes together against off"
TYPES = "bfloat16 against float32"

METHOD = """\
For one seed, all recipes start from the same weights and see the same batches
in the same order. A difference is `loss(recipe) / loss(off) - 1` of the same
seed and dtype. In brackets is its 95 % confidence interval (Student's t over
seeds). The band is the standard deviation of the final loss between seeds of
`off`, for each model and dtype. Parity holds if the whole interval lies inside
the band, on both sides: on average the recipe then changes the loss by less
than another seed typically does. It does not hold if the whole interval lies
outside. Between the two, this number of seeds does not decide.
"""


def percent(value, sign="+"):
    return f"{100 * value:{sign}.2f}"


def shown(found):
    """The mean and the interval, in percent."""
    if found is None:
        return "diverged"
    if found["low"] is None:
        return percent(found["mean"])
    return (f"{percent(found['mean'])} [{percent(found['low'])}, "
            f"{percent(found['high'])}]")


def why(judged, of):
    """Why parity does not hold, after the name of a recipe."""
    if "diverged" in judged:
        return f"diverged with {judged['diverged']} of the seeds"
    text = f"is {shown(judged['relative'])} % off"
    band = of[BASE]["band"]
    if band is None:
        return text + ", and one seed has no interval"
    text += f", the band is ±{percent(band, '')} %"
    if judged["holds"] == OPEN:
        text += (": that does not decide, "
                 f"{needed(judged['seeds_needed'])} seeds would")
    return text


def needed(seeds):
    if seeds is None:
        return "more"
    return "more than 500" if seeds > 500 else f"about {seeds}"


def _judged_rows(of_model):
    for dtype, judged in of_model.items():
        for recipe, j in judged.items():
            name = f"{dtype}, {recipe}"
            if recipe == BASE:
                band = ("-" if j["band"] is None
                        else f"band ±{percent(j['band'], '')}")
                yield [name, f"{j['mean_loss']:.4f}", "", band, "", "", ""]
                continue
            if "diverged" in j:
                yield [name, "diverged", "", "", "", "", f"**{NO}**"]
                continue
            holds = {NO: f"**{NO}**",
                     OPEN: f"{OPEN}; {needed(j['seeds_needed'])} seeds"}
            deviation = j["relative"]["deviation"]
            yield [name, f"{j['mean_loss']:.4f}", f"{j['nats']['mean']:+.4f}",
                   shown(j["relative"]),
                   "-" if deviation is None else percent(deviation, ""),
                   shown(j["training"]), holds.get(j["holds"], j["holds"])]


def _compared(compared):
    text = ""
    for group, rows in compared.items():
        models = [name for name in next(iter(rows.values())) if name != "both"]
        text += f"### {group}: change of the loss, %\n\n" + report.table(
            ["", *models, "both models"],
            [[what, *(shown(of[name]) for name in (*models, "both"))]
             for what, of in rows.items()]) + "\n"
    return text


def markdown(result):
    settings, wanted = result["settings"], result["wanted"]
    done = {size: len(result["sizes"].get(size, {"seeds": []})["seeds"])
            for size in wanted["sizes"]}
    text = (f"# Loss parity: {result['machine']['isa']}\n\n"
            f"- {result['machine']['cpu']}; commit {result['commit']}; "
            f"program {settings['program']}; report of {result['date']}\n"
            f"- {settings['steps']} steps of AdamW on English text, bytes as "
            "tokens; loss: validation, in nats per byte on "
            f"{settings['held_out'] // 1024} KiB of held-out text, after the "
            "last step; training loss: mean of the last tenth of the steps\n"
            "- Seeds that have ended: "
            + ", ".join(f"{size} {n} of {wanted['seeds']}"
                        for size, n in done.items()) + "\n\n" + METHOD)
    for size, of in result["sizes"].items():
        s = SIZES[size]
        title = (f"{s['LAYERS']} layers, width {s['WIDTH']}, {s['BATCH']} x "
                 f"{s['SEQ']} tokens; seeds: {len(of['seeds'])}")
        for model, judged in of["judged"].items():
            text += f"\n## {size} {model}: {title}\n\n" + report.table(
                ["", "mean loss", "against off, nats", "%",
                 "deviation of a pair, %", "training loss, %", "parity"],
                list(_judged_rows(judged)))
        if of["compared"]:
            text += (f"\n## {size}, pairs of the same seed\n\n"
                     + _compared(of["compared"]))
    return text.rstrip() + "\n"
