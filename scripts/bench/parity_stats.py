# SPDX-License-Identifier: Apache-2.0
"""What the losses of a study say: paired differences, their intervals, and the
band in which an interval must lie. Needs only the standard library."""
import math
import statistics

CONFIDENCE = 0.95
BASE = "off"  # high precision, from which all differences are taken
YES, NO, OPEN = "yes", "no", "undecided"


def _inside(t, freedom):
    """The probability that Student's t lies between -t and t; exact for whole
    degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def student(freedom, confidence=CONFIDENCE):
    """t such that [-t, t] holds this much of the distribution."""
    low, high = 0.0, 1.0
    while _inside(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _inside(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def half_width(deviation, count):
    return student(count - 1) * deviation / math.sqrt(count)


def interval(values):
    """The mean, its confidence interval (None of fewer than two values) and
    the standard deviation of the values."""
    mean, count = statistics.mean(values), len(values)
    if count < 2:
        return {"mean": mean, "low": None, "high": None, "deviation": None,
                "count": count}
    deviation = statistics.stdev(values)
    half = half_width(deviation, count)
    return {"mean": mean, "low": mean - half, "high": mean + half,
            "deviation": deviation, "count": count}


def relative(ours, theirs):
    """Pair by pair."""
    return [a / b - 1 for a, b in zip(ours, theirs, strict=True)]


def spread(losses):
    """The standard deviation between seeds, relative to the mean."""
    if len(losses) < 2:
        return None
    return statistics.stdev(losses) / statistics.mean(losses)


def verdict(found, band):
    if found["low"] is None or band is None:
        return OPEN
    if -band < found["low"] and found["high"] < band:
        return YES
    return NO if found["low"] > band or found["high"] < -band else OPEN


def seeds_needed(found, band):
    """About how many seeds would decide, if mean, deviation and band stay; None
    if that can't be said."""
    if found["low"] is None or band is None:
        return None
    distance = abs(abs(found["mean"]) - band)
    if distance <= found["deviation"] / 100:
        return None
    normal = (1.96 * found["deviation"] / distance) ** 2
    count = max(found["count"] + 1, math.ceil(normal))
    # With hundreds of seeds Student's t is the normal distribution.
    while count < 500 and half_width(found["deviation"], count) > distance:
        count += 1
    return count


def judge(losses):
    """Of {recipe: figures of each seed}, with BASE: for each other recipe the
    differences from BASE, the band and whether parity holds. A recipe that
    diverged with any seed has no difference and does not hold."""
    base = [f["loss"] for f in losses[BASE]]
    if None in base:
        raise SystemExit(f"bench: expected runs of `{BASE}` that end with a "
                         "loss, found one that diverged: lower the learning "
                         "rate of the study")
    band = spread(base)
    judged = {BASE: {"mean_loss": statistics.mean(base), "band": band}}
    for recipe, figures in losses.items():
        if recipe == BASE:
            continue
        own = [f["loss"] for f in figures]
        if None in own:
            judged[recipe] = {"diverged": own.count(None), "holds": NO}
            continue
        found = interval(relative(own, base))
        held = verdict(found, band)
        judged[recipe] = {
            "mean_loss": statistics.mean(own),
            "nats": interval([a - b for a, b in zip(own, base)]),
            "relative": found,
            "training": interval(relative(
                [f["train_loss"] for f in figures],
                [f["train_loss"] for f in losses[BASE]])),
            "holds": held,
            "seeds_needed": (seeds_needed(found, band) if held == OPEN
                             else None)}
    return judged


def compare(pairs):
    """The interval of the relative difference between two sides, of a list of
    (losses, losses of the other side). With several pairs of sides the mean of
    each seed counts once: runs of one seed are not independent."""
    if any(None in side for pair in pairs for side in pair):
        return None
    by_pair = [relative(ours, theirs) for ours, theirs in pairs]
    return interval([statistics.mean(of_seed)
                     for of_seed in zip(*by_pair, strict=True)])
