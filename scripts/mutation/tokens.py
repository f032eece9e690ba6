# SPDX-License-Identifier: Apache-2.0
"""C++ text as tokens. Comments are left out.

The text is formatted by clang-format: its spaces tell `a < b` from `f<b>` and
`a * b` from `T* b`."""
import re
from typing import NamedTuple

PATTERN = re.compile(r"""
  (?P<comment>//[^\n]*|/\*.*?\*/)
| (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
| (?P<text>(?:u8|[uUL])?R"(?P<mark_of_raw>[^()\\\s]*)\(.*?\)(?P=mark_of_raw)"
          |(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
          |(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
| (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
| (?P<word>[A-Za-z_]\w*)
| (?P<mark><<=|>>=|<=>|->\*|\.\.\.|->|::|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\|
          |[-+*/%&|^]=|\S)
""", re.X | re.S | re.M)
CLOSERS = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    kind: str  # directive, text, number, word or mark
    text: str
    begin: int  # offsets in the file
    end: int


class Source:
    """The tokens of a file, and for each opening bracket the index of its
    closing one: also for the `<` of a template's arguments."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.tokens = [
            Token(m.lastgroup if m.lastgroup != "mark_of_raw" else "text",
                  m[0], m.start(), m.end())
            for m in PATTERN.finditer(text) if not m["comment"]]
        self.close = {}
        self._match_brackets()
        for i in range(len(self.tokens) - 1, -1, -1):
            self._match_angle(i)

    def __getitem__(self, i):
        """The text of a token; "" outside the file."""
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def kind(self, i):
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else ""

    def adjacent(self, i):
        """Whether no space is between a token and the one before."""
        return 0 < i < len(self.tokens) and \
            self.tokens[i - 1].end == self.tokens[i].begin

    def is_binary(self, i):
        """Whether an operator has two operands: spaces on both sides."""
        return not self.adjacent(i) and not self.adjacent(i + 1)

    def line(self, i):
        return self.text.count("\n", 0, self.tokens[i].begin) + 1

    def column(self, i):
        begin = self.tokens[i].begin
        return begin - self.text.rfind("\n", 0, begin)

    def line_with(self, i, new):
        """The token's line with another text in its place."""
        _, _, begin, end = self.tokens[i]
        first = self.text.rfind("\n", 0, begin) + 1
        rest = self.text[end:].split("\n", 1)[0]
        return (self.text[first:begin] + new + rest).strip()

    def _match_brackets(self):
        stack = []
        for i, token in enumerate(self.tokens):
            if token.kind != "mark":
                continue
            if token.text in CLOSERS:
                stack.append(i)
            elif token.text in (")", "]", "}"):
                # `#if` and `#else` can both open what is closed once.
                if stack and CLOSERS[self[stack[-1]]] == token.text:
                    self.close[stack.pop()] = i

    def _match_angle(self, i):
        """From the last to the first, so that inner ones are known."""
        before = self[i - 1]
        if self[i] != "<" or self.kind(i) != "mark" or before == "operator":
            return
        if before != "template" and not (self.adjacent(i) and (
                self.kind(i - 1) == "word" or before == "]")):
            return
        k, opened = i + 1, 1
        while k < len(self.tokens):
            text = self[k] if self.kind(k) == "mark" else ""
            if text in (">", ">>"):
                opened -= len(text)
                if opened <= 0:
                    self.close[i] = k
                    return
            elif text == "<" and k in self.close and self[self.close[k]] == ">":
                k = self.close[k]
            elif text == "<" and k in self.close:
                opened += 1  # `>>` closes it and this one
            elif text in CLOSERS and k in self.close:
                k = self.close[k]
            elif text in (";", ")", "]", "}", "{"):
                return
            k += 1
