# SPDX-License-Identifier: Apache-2.0
"""Draws the validation losses of runs, as SVG. Usage: python scripts/
draw_losses.py OUT.svg NAME=metrics.jsonl..."""
import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 16, 44
COLORS = ("#1b6ca8", "#c8553d", "#4f772d", "#7b5ea7")
DASHES = ("", "7 4", "2 4", "9 3 2 3")


def losses(file):
    """[(step, validation loss)]"""
    entries = map(json.loads, pathlib.Path(file).read_text().splitlines())
    return [(e["step"], e["val_loss"]) for e in entries
            if e.get("val_loss") is not None]


def ticks(low, high):
    """Round numbers between the two, at most seven."""
    step = next(factor * 10.0 ** power for power in range(-9, 10)
                for factor in (1, 2, 5)
                if high - low <= 6 * factor * 10.0 ** power)
    return [i * step for i in range(math.ceil(low / step),
                                    math.floor(high / step) + 1)]


def draw(curves, out):
    """`curves`: {name: metrics.jsonl}. Errors: a run without validation."""
    points = {name: losses(file) for name, file in curves.items()}
    for name, line in points.items():
        if not line:
            sys.exit(f"draw_losses: {curves[name]} has no val_loss")
    steps = [step for line in points.values() for step, _ in line]
    values = [loss for line in points.values() for _, loss in line]
    most, margin = max(steps), 0.05 * (max(values) - min(values)) or 1
    low, high = min(values) - margin, max(values) + margin

    def x(step):
        return LEFT + step / most * (WIDTH - LEFT - RIGHT)

    def y(loss):
        return TOP + (high - loss) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def text(at_x, at_y, words, anchor="middle"):
        return (f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}">'
                f"{html.escape(words)}</text>")

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for value in ticks(low, high):
        svg.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" '
                   'stroke="#ddd"/>')
        svg.append(text(LEFT - 8, y(value) + 4, f"{value:.4g}", "end"))
    for step in ticks(0, most):
        svg.append(text(x(step), HEIGHT - BOTTOM + 18, f"{step:.0f}"))
    svg.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "steps"))
    svg.append(text(LEFT, TOP - 4, "validation loss", "start"))
    for i, (name, line) in enumerate(points.items()):
        color, dash = COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]
        path = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in line)
        style = f'fill="none" stroke="{color}" stroke-width="2"'
        svg.append(f'<polyline points="{path}" {style} '
                   f'stroke-dasharray="{dash}"/>')
        at = TOP + 20 + 20 * i
        svg.append(f'<path d="M{WIDTH - RIGHT + 12} {at}h30" {style} '
                   f'stroke-dasharray="{dash}"/>')
        svg.append(text(WIDTH - RIGHT + 48, at + 4, name, "start"))
    pathlib.Path(out).write_text("\n".join([*svg, "</svg>"]) + "\n")


if __name__ == "__main__":
    draw(dict(word.split("=", 1) for word in sys.argv[2:]), sys.argv[1])
