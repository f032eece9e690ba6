# SPDX-License-Identifier: Apache-2.0
"""The short form of a benchmark's figures, for files that people read and keep:
long lists of measured numbers become the few numbers that tables and
comparisons need. Needs only the standard library."""
import json
import statistics

WIDTH = 140
RECORD = 540  # characters of a contestant, product or node, which has one line
OPS = 10  # of a profile, as many as its table has
# A node's work and bytes follow from its speeds and its time.
LEFT_OUT = {"nodes": ("flops", "bytes", "runs")}


def _seconds(measured):
    """Statistics of steps, or of turns of steps."""
    turns = measured if isinstance(measured[0], list) else [measured]
    steps = [s for turn in turns for s in turn]
    found = {"steps": len(steps), "least": min(steps),
             "median": statistics.median(steps), "most": max(steps)}
    if len(turns) > 1:
        found["medians_of_turns"] = [statistics.median(t) for t in turns]
    return found


def _losses(of_steps):
    return {"steps": len(of_steps), "first": of_steps[0], "last": of_steps[-1]}


def _profile(of):
    """The slowest ops; the sum stays."""
    if len(of) <= OPS + 1:
        return of
    ops = sorted(of, key=of.get, reverse=True)
    return {**{op: of[op] for op in ops[:OPS]},
            "others": sum(of[op] for op in ops[OPS:])}


def _without(item, names):
    if not isinstance(item, dict):
        return item
    return {name: x for name, x in item.items() if name not in names}


def short(tree):
    """`tree` without raw samples:

    - `seconds` of steps: their number, least, median, most, each turn's median;
    - `losses` of steps: their number, the first and the last;
    - `profiles`: the ten slowest ops, and the sum of the others;
    - left out: `turns` (of ./dev bench busy, which has means and intervals),
      `losses` of seeds (of ./dev bench parity, whose study keeps them), work and
      bytes of `nodes`.
    """
    if isinstance(tree, list):
        return [short(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    kept = {}
    for key, value in tree.items():
        if key == "turns" or key == "losses" and isinstance(value, dict):
            continue
        if value and isinstance(value, list):
            if key == "seconds":
                value = _seconds(value)
            elif key in ("losses", "cpu_losses"):
                value = _losses(value)
            elif key in LEFT_OUT:
                value = [_without(item, LEFT_OUT[key]) for item in value]
            else:
                value = short(value)
        elif key == "profiles":
            value = {title: _profile(of) for title, of in value.items()}
        else:
            value = short(value)
        kept[key] = value
    return kept


def _nesting(value):
    """How many dictionaries lie in each other."""
    if isinstance(value, list):
        return max(map(_nesting, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(_nesting, value.values()), default=0)
    return 0


def _lines(value, depth, used):
    """JSON in lines of WIDTH, but a record in one line; `used` characters are
    before it in its line."""
    line = json.dumps(value)
    if (not isinstance(value, (dict, list)) or depth + used + len(line) < WIDTH
            or isinstance(value, dict) and len(line) <= RECORD
            and _nesting(value) <= 2):
        return line
    if isinstance(value, dict):
        items, ends = [(json.dumps(k) + ": ", v) for k, v in value.items()], "{}"
    else:
        items, ends = [("", v) for v in value], "[]"
    pad, lines, alone = " " * (depth + 1), [], True
    for number, (name, item) in enumerate(items, 1):
        part = name + _lines(item, depth + 1, len(name))
        part += "," if number < len(items) else ""
        # Numbers and texts share lines, dictionaries have lines of their own.
        after, alone = alone, isinstance(item, dict) or "\n" in part
        if after or alone or len(lines[-1]) + 1 + len(part) > WIDTH:
            lines.append(pad + part)
        else:
            lines[-1] += " " + part
    return "\n".join([ends[0], *lines, " " * depth + ends[1]])


def text(tree):
    """The file's text."""
    return _lines(tree, 0, 0) + "\n"
