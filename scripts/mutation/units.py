# SPDX-License-Identifier: Apache-2.0
"""The units of a file: expressions and statements in function bodies that can
be written twice, once broken, with a switch between the two.

This is no parser of C++: it knows brackets, statements and lambdas. A unit that
it gets wrong does not compile with the switch, and is dropped then."""
import re
from dataclasses import dataclass, field

ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
CLASSES = {"struct", "class", "union"}
# Statements without units of their own; a lambda in them has some.
LEFT_OUT = {"using", "typedef", "static_assert", "goto", "asm", "break",
            "continue", "friend", "template", "enum", "namespace", "extern",
            "static", "thread_local", "constexpr", "consteval", "constinit",
            "concept", "throw", "delete", "co_return", "co_yield", "__shared__"}
# What stands in their brackets is not computed at run time.
NOT_RUN = {"sizeof", "alignof", "alignas", "decltype", "noexcept", "typeid",
           "requires", "__attribute__", "assert", "static_assert"}
# Their arguments are the words of a message; the first of Check() is not.
MESSAGES = {"Fail", "FailSystem", "Concat", "Warn", "Note"}
CHECKS = {"Check"}
MACRO = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*$")


@dataclass
class Unit:
    kind: str  # expression, condition, statement or return
    begin: int  # indexes of tokens; the end is not included
    end: int
    constant: bool  # in a function that is constexpr
    deduced: bool  # in a function whose result's type is not written
    own: list = field(default_factory=list)  # indexes, without inner units'


def units_of(source):
    """The units of a file, outer ones before inner ones."""
    finder = _Finder(source)
    finder.declarations(0, len(source.tokens))

    def can_switch(u):
        return not any(source.kind(i) == "directive" or "\n" in source[i] or
                       source[i] in ("...", "<<<")
                       for i in range(u.begin, u.end)) and (
            u.kind not in ("statement", "return") or source[u.end] == ";")

    return sorted(filter(can_switch, finder.units),
                  key=lambda u: (u.begin, -u.end))


class _Finder:
    def __init__(self, source):
        self.s = source
        self.units = []
        self.constant = self.deduced = False

    def find(self, marks, i, end):
        """The index of the first of the marks that is in no bracket; or end."""
        while i < end:
            if self.s[i] in marks and self.s.kind(i) == "mark":
                return i
            i = self.s.close.get(i, i) + 1
        return end

    def parts(self, begin, end):
        """Splits at commas: yields (begin, end)."""
        while begin < end:
            comma = self.find((",",), begin, end)
            yield begin, comma
            begin = comma + 1

    # ---- outside of functions

    def declarations(self, i, end):
        """Finds the function bodies among declarations."""
        head = i
        while i < end:
            text = self.s[i]
            if self.s.kind(i) == "directive" or text == ";" or (
                    text == ":" and self.s[i - 1] in
                    ("public", "private", "protected")):
                head = i + 1
            elif text == "{" and i in self.s.close:
                if self.braces(head, i):
                    head = self.s.close[i] + 1
                i = self.s.close[i]
            else:
                i = self.s.close.get(i, i)
            i += 1

    def braces(self, head, i):
        """Reads what the braces at i hold, which the tokens from `head` on say.
        Returns whether a declaration ends with them."""
        top, k = [], head
        while k < i:
            top.append(self.s[k])
            k = self.s.close.get(k, k) + 1
        inner = i + 1, self.s.close[i]
        if "enum" in top:
            return True
        if "namespace" in top or (CLASSES & set(top) and "=" not in top):
            self.declarations(*inner)
            return True
        if "(" in top and ("operator" in top or
                           "=" not in top[:top.index("(")]):
            if self.s.adjacent(i) and self.s[i - 1] != ")":
                return False  # a member's initializer
            self.body(i, "constexpr" in top or "consteval" in top,
                      "auto" in top and "->" not in top)
            return True
        if top[:1] == ["extern"]:
            self.declarations(*inner)
            return True
        self.lambdas(head, inner[1])
        return False

    def lambdas(self, i, end):
        """Reads only the lambdas among these tokens."""
        while i < end:
            after = self.lambda_at(i, end)
            i = after or i + 1

    def lambda_at(self, i, end):
        """Reads the lambda at i. Returns the index after it, or None."""
        if self.s[i] != "[" or i not in self.s.close or self.s[i + 1] == "[":
            return None
        before = self.s[i - 1]
        if before in (")", "]") or (self.s.kind(i - 1) in ("word", "text") and
                                    before != "return"):
            return None
        k = self.s.close[i] + 1
        constant, deduced = self.constant, True
        while k < end and self.s[k] != "{":
            if self.s[k] in (";", ",", ")", "}", "="):
                return None
            constant |= self.s[k] in ("constexpr", "consteval")
            deduced &= self.s[k] != "->"
            k = self.s.close.get(k, k) + 1
        if k >= end or k not in self.s.close:
            return None
        self.body(k, constant, deduced)
        return self.s.close[k] + 1

    # ---- statements

    def body(self, i, constant, deduced):
        """Reads the function's body, whose braces open at i."""
        outer = self.constant, self.deduced
        self.constant, self.deduced = constant, deduced
        self.block(i + 1, self.s.close[i])
        self.constant, self.deduced = outer

    def block(self, i, end):
        while i < end:
            i = self.statement(i, end)

    def statement(self, i, end):
        """Reads one statement, or the part before an inner one. Returns the
        index after it."""
        text, close = self.s[i], self.s.close
        if self.s.kind(i) == "directive" or text in (";", "else", "do", "try"):
            return i + 1
        if MACRO.match(text) and self.s.kind(i + 1) == "word":
            return i + 1  # a pragma
        if text == "{" and i in close:
            self.block(i + 1, close[i])
            return close[i] + 1
        if text == "[" and self.s[i + 1] == "[" and i in close:
            return close[i] + 1
        if text in ("if", "while", "switch", "for", "catch"):
            return self.control(i)
        if text in ("case", "default") or self.s[i + 1] == ":":
            return self.find((":",), i, end) + 1
        stop = self.find((";",), i, end)
        if text in CLASSES:
            brace = self.find(("{",), i, stop)
            if brace < stop:
                self.declarations(brace + 1, close[brace])
        elif text in LEFT_OUT:
            self.lambdas(i, stop)
        elif text == "return":
            self.unit("return", i, stop)
        elif self.is_declaration(i, stop):
            self.declaration(i, stop)
        else:
            self.unit("statement", i, stop)
        return stop + 1

    def control(self, i):
        """Reads the brackets after `if` and others."""
        k = self.s.close.get(i + 1)
        if self.s[i + 1] != "(" or k is None:  # if constexpr (…)
            after = i + 1
            while self.s[after] in ("constexpr", "consteval", "!"):
                after += 1
            return self.s.close.get(after, after) + 1 \
                if self.s[after] == "(" else after
        begin = i + 2
        if self.s[i] == "catch":
            return k + 1
        first = self.find((";",), begin, k)
        if self.s[i] == "for":
            if first < k:
                second = self.find((";",), first + 1, k)
                self.simple(begin, first)
                self.unit("condition", first + 1, second)
                self.unit("expression", second + 1, k)
            else:
                self.brackets(self.find((":",), begin, k) + 1, k)
            return k + 1
        if first < k:
            self.simple(begin, first)
            begin = first + 1
        if self.is_declaration(begin, k):
            self.declaration(begin, k)
        else:
            kind = "expression" if self.s[i] == "switch" else "condition"
            self.unit(kind, begin, k)
        return k + 1

    def simple(self, begin, end):
        if self.is_declaration(begin, end):
            self.declaration(begin, end)
        else:
            self.unit("expression", begin, end)

    def is_declaration(self, i, end):
        """Whether a type and a name come first: two words side by side."""
        if self.s[i] in ("auto", "const", "alignas"):
            return True
        shape, k = "", i
        while k < end:
            if self.s.kind(k) == "word":
                shape += "w"
            elif self.s[k] == "::":
                shape += "c"
            elif self.s[k] in ("*", "&", "&&"):
                shape += "p"
            elif not (self.s[k] == "<" and k in self.s.close):
                break
            k = self.s.close.get(k, k) + 1
        return re.match(r"c?w(cw)*p*w", shape) is not None

    def declaration(self, begin, end):
        for first, last in self.parts(begin, end):
            equal = self.find(("=",), first, last)
            if self.s[equal - 1] != "]" and self.s[first] != "auto":
                self.brackets(first, equal, skip="[")
            if equal < last:
                self.unit("expression", equal + 1, last)

    # ---- expressions

    def unit(self, kind, begin, end):
        """Adds the unit, and reads the units in its brackets."""
        if begin >= end:
            return
        unit = Unit(kind, begin, end, self.constant, self.deduced)
        self.units.append(unit)
        i = begin
        while i < end:
            after = self.lambda_at(i, end)
            if after:
                i = after
            elif i in self.s.close:
                if self.s[i] != "<":
                    self.inside(i)
                i = self.s.close[i] + 1
            else:
                unit.own.append(i)
                i += 1
                if self.s[i - 1] in ASSIGNMENTS:
                    # What is assigned can be written twice on its own.
                    self.unit("expression", i, end)
                    return

    def brackets(self, i, end, skip=""):
        """Reads what the brackets among these tokens hold."""
        while i < end:
            after = self.lambda_at(i, end)
            if not after and i in self.s.close and self.s[i] not in ("<", skip):
                self.inside(i)
            i = after or self.s.close.get(i, i) + 1

    def inside(self, i):
        """Reads the arguments, the index or the elements in the brackets."""
        name = self.s[i - 1] if self.s.adjacent(i) else ""
        if name in NOT_RUN or MACRO.match(name):
            return
        if name in MESSAGES and self.s[i] == "(":
            return
        for begin, end in self.parts(i + 1, self.s.close[i]):
            self.unit("expression", begin, end)
            if name in CHECKS:
                return
