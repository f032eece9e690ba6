# SPDX-License-Identifier: Apache-2.0
"""The ways to break a unit, and the draw of some mutants by a seed."""
import hashlib
import re
from dataclasses import dataclass

from .units import Unit, units_of

# Operator → what takes its place, and how the report calls that.
SWAPS = {
    "+": (("-", "arithmetic"),), "-": (("+", "arithmetic"),),
    "*": (("/", "arithmetic"),), "/": (("*", "arithmetic"),),
    "%": (("*", "arithmetic"),),
    "<<": ((">>", "arithmetic"),), ">>": (("<<", "arithmetic"),),
    "&": (("|", "arithmetic"),), "|": (("&", "arithmetic"),),
    "^": (("&", "arithmetic"),),
    "<": (("<=", "boundary"), (">=", "comparison")),
    "<=": (("<", "boundary"), (">", "comparison")),
    ">": ((">=", "boundary"), ("<=", "comparison")),
    ">=": ((">", "boundary"), ("<", "comparison")),
    "==": (("!=", "comparison"),), "!=": (("==", "comparison"),),
    "&&": (("||", "logical"),), "||": (("&&", "logical"),),
    "+=": (("-=", "arithmetic"),), "-=": (("+=", "arithmetic"),),
    "*=": (("/=", "arithmetic"),), "/=": (("*=", "arithmetic"),),
    "|=": (("&=", "arithmetic"),), "&=": (("|=", "arithmetic"),),
}
INTEGER = re.compile(r"(0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*)([uUlLzZ]*)$")
# Statements whose loss no test can or should notice: left out as a whole.
NO_LOSS = re.compile(r"^[\w.>\[\]()-]*(?:\.|->)(?:reserve|shrink_to_fit)\(|"
                     r"^\(void\)|^\w*prefetch\w*\(|^\w+$")
NOTHING = {"{}", "nullptr", "0", "false", "true", '""', "*this", "std::nullopt"}


@dataclass(frozen=True, eq=False)
class Mutant:
    file: str
    line: int
    column: int
    operator: str  # arithmetic, boundary, deleted, …
    original: str  # the unit in one line; if that is one word, its line
    mutated: str
    unit: Unit
    text: str  # in place of the unit
    change: str  # `< → <=`: what a reader looks for

    @property
    def key(self):
        """What scripts/equivalent_mutants.txt knows a mutant by."""
        return self.file, self.original, self.mutated

    def __str__(self):
        return (f"{self.file}:{self.line}:{self.column}: {self.operator}: "
                f"{self.change}")


def flat(source, begin, end, replaced=None):
    """Tokens in one line; `replaced` is (index, new text)."""
    words = []
    for i in range(begin, end):
        if words and not source.adjacent(i):
            words.append(" ")
        words.append(replaced[1] if replaced and replaced[0] == i else source[i])
    return "".join(words).strip()


def constants(text):
    """The numbers that take a number's place."""
    found = INTEGER.match(text)
    if not found:
        return []
    digits = found[1].replace("'", "")
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    value = int(digits, 8 if octal else 0)
    others = dict.fromkeys([value + 1, max(value - 1, 0), 0])
    return [f"{n}{found[2]}" for n in others if n != value]


def swaps(source, unit, i):
    """(new text, name) of each token that can take the place of token i."""
    text, kind = source[i], source.kind(i)
    if kind == "number":
        # -1 often says "none", and -2 would say it as well.
        negative = source[i - 1] == "-" and source.adjacent(i)
        return [(n, "constant") for n in constants(text)[negative:]]
    if text in ("true", "false"):
        return [("false" if text == "true" else "true", "constant")]
    if kind != "mark":
        return []
    if text == "!":
        return [("", "negation")]
    if text in ("++", "--") and unit.kind == "statement":
        return [("--" if text == "++" else "++", "arithmetic")]
    strings = any(source.kind(k) == "text" and source[k][-1] == '"'
                  for k in range(unit.begin, unit.end))
    if strings and text in ("+", "+=", "<<"):
        return []  # strings are joined or printed
    if text in ("<<", ">>") and "number" not in (
            source.kind(i - 1), source.kind(i - 2), source.kind(i + 1)):
        return []  # seldom a shift
    return SWAPS.get(text, ()) if source.is_binary(i) and i > unit.begin else ()


def mutants_of_unit(source, unit):
    original = flat(source, unit.begin, unit.end)

    def mutant(i, operator, text, change, shown=None):
        return Mutant(source.path, source.line(i), source.column(i), operator,
                      *(shown or (original, text)), unit, text, change)

    for i in unit.own:
        for new, name in swaps(source, unit, i):
            text = flat(source, unit.begin, unit.end, (i, new))
            shown = (original, text) if text != new else (
                source.line_with(i, source[i]), source.line_with(i, new))
            yield mutant(i, name, text, f"{source[i]} → {new or 'nothing'} "
                                        f"in `{shown[0][:90]}`", shown)
    first = unit.begin
    if unit.kind == "condition" and not (source[first] == "!" and not any(
            source[i] in SWAPS for i in unit.own)):
        yield mutant(first, "negation", f"!({original})",
                     f"not `{original[:90]}`")
    value = original.removeprefix("return").strip()
    if unit.kind == "return" and value and value not in NOTHING and \
            not INTEGER.match(value.lstrip("-")):
        empty = f"std::remove_cvref_t<decltype({value})>" * unit.deduced + "{}"
        yield mutant(first, "return", f"return {empty}",
                     f"{{}} instead of `{value[:90]}`")
    if unit.kind == "statement":
        yield mutant(first, "deleted", "", f"without `{original[:90]}`")


def mutants_of(source):
    """All mutants of a file."""
    found, end = [], 0  # of the last statement that is left out
    for unit in units_of(source):
        if unit.kind == "statement" and NO_LOSS.search(
                flat(source, unit.begin, unit.end)):
            end = max(end, unit.end)
        if unit.end > end:
            found += mutants_of_unit(source, unit)
    return found


def draw(mutants, count, seed):
    """Some of the mutants, by a hash of the seed and of what each one changes:
    each machine draws the same ones. A line has a second one only if there are
    too few lines."""
    order = sorted(mutants, key=lambda m: hashlib.sha256(
        f"{seed}\0{m.file}\0{m.line}\0{m.column}\0{m.text}".encode()
    ).digest())
    lines, first, more = set(), [], []
    for m in order:
        (more if (m.file, m.line) in lines else first).append(m)
        lines.add((m.file, m.line))
    return sorted((first + more)[:count], key=lambda m: (
        m.file, m.line, m.column, m.text))
