# SPDX-License-Identifier: Apache-2.0
"""A file with its mutants: one build holds them all, and the environment
variable ONNX_FP8_MUTANT chooses one. Lines keep their numbers."""

# The compiler includes this ahead of each file. A process appends the numbers
# of the mutants that it reaches to the file ONNX_FP8_MUTANT_REACHED.
HEADER = """\
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <type_traits>
#include <unistd.h>

namespace onnx_fp8_mutation {

inline const char* const reached_file = std::getenv("ONNX_FP8_MUTANT_REACHED");
inline const int chosen =
    reached_file ? -1
    : std::getenv("ONNX_FP8_MUTANT")
        ? std::atoi(std::getenv("ONNX_FP8_MUTANT"))
        : 0;
inline bool seen[1 << 16];

[[gnu::noinline]] inline void Reached(int id) {
  if (seen[id]) return;
  seen[id] = true;
  int before = errno;
  char line[16];
  int size = std::snprintf(line, sizeof line, "%d\\n", id);
  int file = ::open(reached_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0) {
    if (::write(file, line, static_cast<size_t>(size)) < 0) std::abort();
    ::close(file);
  }
  errno = before;
}

}  // namespace onnx_fp8_mutation

[[gnu::always_inline]] inline bool onnx_fp8_mutant(int id) {
  if (onnx_fp8_mutation::chosen < 0) [[unlikely]]
    onnx_fp8_mutation::Reached(id);
  return onnx_fp8_mutation::chosen == id;
}

// In a function that is constexpr. The compiler's own runs of it are not broken.
constexpr bool onnx_fp8_constant_mutant(int id) {
  if (__builtin_is_constant_evaluated()) return false;
  return onnx_fp8_mutant(id);
}
"""


def rendered(source, numbered):
    """The text of a file with some of its mutants, [(number, mutant)]."""
    by_unit = {}
    for number, mutant in numbered:
        unit = mutant.unit
        by_unit.setdefault((unit.begin, -unit.end), (unit, []))[1].append(
            (number, mutant.text))
    units = [by_unit[key] for key in sorted(by_unit)]
    return _range(source, 0, len(source.text), units)


def _range(source, begin, end, units):
    """The text from `begin` to `end` with all units in it."""
    out = []
    while units:
        unit, mutants = units[0]
        first = source.tokens[unit.begin].begin
        last = source.tokens[unit.end - 1].end
        inner = [u for u in units[1:] if u[0].begin < unit.end]
        units = units[1 + len(inner):]
        out.append(source.text[begin:first])
        out.append(_unit(unit, mutants, _range(source, first, last, inner)))
        begin = last
        if unit.kind in ("statement", "return"):
            begin = source.tokens[unit.end].end  # the semicolon
    return "".join(out) + source.text[begin:end]


def _unit(unit, mutants, original):
    switch = "::onnx_fp8_constant_mutant" if unit.constant else \
        "::onnx_fp8_mutant"
    if unit.kind in ("statement", "return"):
        broken = " ".join(f"if ({switch}({number})) {{ {text}; }} else"
                          for number, text in mutants)
        return f"{{ {broken} {{ {original}; }} }}"
    cast = "bool" if unit.kind == "condition" else ""
    broken = " ".join(f"{switch}({number}) ? {cast}({text}) :"
                      for number, text in mutants)
    return f"({broken} {cast}({original}))"
