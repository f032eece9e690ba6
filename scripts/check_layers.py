#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the folders: folders are layers, includes point down, and
no two folders include each other. Also checks the spelling, and that no two
headers define a type of the same name, which a linker would mix up. Last, it
counts phrases such as "those of", which stand for a noun: all files together
may hold at most MAX_VAGUE of them.

Prints `file:line: message` for each finding and exits 1, or prints one line of
praise. Reads tracked and new (not ignored) files of the git checkout.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = {".cc": 1000, ".cu": 1000}  # of other files 600
MAX_FUNCTION = 80  # lines of a function in C++

# Folder -> folders whose headers it may include, besides its own. A folder
# that is not named here belongs to the closest named folder above it.
_DATA = {"base", "onnx_fp8"}
_GRAPH = _DATA | {"graph"}
_PROVIDERS = _GRAPH | {"collectives", "providers", "providers/ops",
                       "providers/passes", "providers/plan",
                       "providers/report", "providers/run"}
_BELOW = _PROVIDERS | {"data", "optimizers"}  # of training
_ALL = _BELOW | {"training", "training/artifacts", "training/ranks",
                 "training/run", "training/session", "training/state",
                 "training/step"}
MAY_INCLUDE = {
    "base": set(),
    "onnx_fp8": {"base"},
    "data": _DATA,
    "collectives": _DATA,
    "graph": _DATA,
    "optimizers": _GRAPH,
    "providers": _GRAPH | {"collectives"},
    "providers/ops": _GRAPH | {"providers"},
    "providers/passes": _GRAPH | {"providers", "providers/ops"},
    "providers/plan": _GRAPH | {"providers", "providers/passes"},
    "providers/report": _GRAPH | {"collectives", "providers",
                                  "providers/plan"},
    "providers/run": _GRAPH | {"collectives", "providers", "providers/plan",
                               "providers/report"},
    "providers/cpu": _GRAPH | {"collectives", "providers", "providers/ops",
                               "providers/run"},
    "providers/cuda": _GRAPH | {"collectives", "providers", "providers/ops"},
    "providers/ort": _ALL | {"providers/cpu"},
    "training": _BELOW,
    "training/ranks": _BELOW | {"training"},
    "training/state": _BELOW | {"training", "training/ranks"},
    "training/step": _BELOW | {"training", "training/ranks", "training/state"},
    "training/gradients": _BELOW | {"training/ranks", "training/step"},
    "training/session": _BELOW | {"training", "training/ranks",
                                  "training/state", "training/step"},
    "training/run": _BELOW | {"training", "training/state", "training/step"},
    "training/artifacts": _BELOW | {"training", "training/step"},
    "cli": _ALL,
    "cli/report": _ALL | {"cli"},
    "cli/report_page": _ALL,
    "cli/bench": _ALL | {"cli", "cli/report"},
    "cli/commands": _ALL | {"cli", "cli/report", "cli/report_page",
                            "cli/bench"},
    "python": _ALL | {"cli", "cli/report", "cli/commands"},
    "samples": _ALL,
    "tests": _ALL | {"providers/cpu", "providers/cuda", "providers/ort", "cli",
                     "cli/bench", "cli/report", "cli/report_page", "cli/commands",
                     "python"},
}
# Other files ask the provider, whichever it is.
MAY_NAME_PROVIDERS = {
    "training/make_provider.cc": {"providers/cpu", "providers/cuda"},
    "training/load_cuda.cc": {"providers/cuda"},
    "cli/bench/gemm_speed.cc": {"providers/cpu"},
}
TOP_FOLDERS = {layer.split("/")[0] for layer in MAY_INCLUDE}

# ONNX's protobuf types stay inside the files that read and write ONNX.
PROTOBUF = re.compile(r"(onnx|google/protobuf)/|.*\.pb\.h$")
MAY_USE_PROTOBUF = re.compile(
    r"graph/.*\.cc$|graph/.*_internal\.h$|providers/ort/|tests/")

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
# A flag in a message of the library, which must name options as the API does.
FLAG = re.compile(r'[^/]*"[^"]*(?<!/dev build )--[a-z]')
MAY_NAME_FLAGS = ("cli", "python", "tests")

# The spelling is American, as that of the operators.
BRITISH = re.compile(
    r"(?i)(general|initial|normal|quant|recogn|serial|special|summar|vector)is"
    r"(e|ing)|behaviour|centred|colour|favour|flavour|neighbour")

# Phrases that stand for a noun. A reader must search the text for that noun.
VAGUE = re.compile(r"(?i)\b(?:those of|that of|those that)\b")
MAX_VAGUE = 120

SPDX = "SPDX-License-Identifier: Apache-2.0"


def source_files(*more):
  """The C++ and Python files of the checkout, relative to its root, and the
  files that match `more` patterns."""
  listed = subprocess.run(
      ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
       "--", "*.h", "*.cc", "*.cu", "*.py", *more],
      cwd=ROOT, check=True, capture_output=True, text=True).stdout
  files = sorted(set(filter(None, listed.split("\0"))))
  return [f for f in files if (ROOT / f).is_file()]


def layer_of(path):
  """The layer of the file `path` (from the root), or None."""
  for folder in pathlib.PurePosixPath(path).parents:
    if str(folder) in MAY_INCLUDE:
      return str(folder)
  return None


def include_error(path, layer, quote, target):
  """The fault of `#include <target>` in `path`, or None."""
  if PROTOBUF.match(target) and not MAY_USE_PROTOBUF.match(path):
    return f"{target}: protobuf types stay inside graph/*.cc"
  if target.split("/")[0] not in TOP_FOLDERS:
    beside = (ROOT / path).parent / target
    if quote == '"' and beside.is_file():
      return f"{target}: write the path from the repository root"
    return None
  other = layer_of(target)
  may_include = MAY_INCLUDE[layer] | MAY_NAME_PROVIDERS.get(path, set())
  if other != layer and other not in may_include:
    return f"{layer}/ must not include {target}"
  return None


def findings(path):
  """Yields (line number, message) for one file."""
  lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
  most = MAX_LINES.get(pathlib.PurePath(path).suffix, 600)
  if len(lines) > most:
    yield len(lines), f"more than {most} lines: split it"
  if not any(SPDX in line for line in lines[:3]):
    yield 1, f"the line `{SPDX}` is missing"
  for number, line in enumerate(lines, 1):
    match = BRITISH.search(line)
    if match and path != "scripts/check_layers.py":
      yield number, f"'{match[0]}': the spelling is American"
  if path.endswith(".py"):
    return
  for number, length in long_functions(lines):
    yield number, (f"a function of {length} lines: expected at most "
                   f"{MAX_FUNCTION}")
  layer = layer_of(path)
  if layer is None:
    yield 1, "C++ source outside of the layers"
    return
  for number, line in enumerate(lines, 1):
    match = INCLUDE.match(line)
    error = match and include_error(path, layer, *match.groups())
    if error:
      yield number, error
    if layer.split("/")[0] not in MAY_NAME_FLAGS and FLAG.match(line):
      yield number, "a flag: refer to the option, as in `batch_size`"


# The last line of a function's head. The head may begin some lines earlier.
HEAD_END = re.compile(r"[^;]*\).*\{$|[^;]*\}\} \{$")
NO_FUNCTION = re.compile(
    r" *(?:namespace|class|struct|enum|union|extern|if|for|while|switch|"
    r"\} else|do|try)\b|.*= \{$")
MAX_HEAD = 12  # lines


def long_functions(lines):
  """(line number, lines) of each function with too many lines. Its body ends
  with a brace that is as deep as its head. Kernels of a GPU are exempt: a
  compiler keeps the registers of one function as it is written."""
  for number, line in enumerate(lines):
    if not HEAD_END.match(line):
      continue
    begin = number
    while (lines[begin].startswith("   ") and
           number - begin < MAX_HEAD and begin > 0):
      begin -= 1
    head = lines[begin]
    depth = len(head) - len(head.lstrip())
    if depth > 2 or NO_FUNCTION.match(head) or head.endswith((";", "}")) or \
        "__global__" in head:
      continue
    end = " " * depth + "}"
    length = next((i for i, other in enumerate(lines[begin:], 1)
                   if other.startswith(end)), 0)
    if length > MAX_FUNCTION:
      yield begin + 1, length


def included_folders(files):
  """{folder: {included folder: "file includes file"}}."""
  held = set(files)
  edges = {}
  for path in files:
    if path.endswith(".py") or path.startswith("tests/"):
      continue
    folder = str(pathlib.PurePosixPath(path).parent)
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
      match = INCLUDE.match(line)
      target = match and match[2]
      other = target and str(pathlib.PurePosixPath(target).parent)
      if target in held and other != folder:
        edges.setdefault(folder, {}).setdefault(
            other, f"{path} includes {target}")
  return edges


def cycles(edges):
  """Pairs of folders that include each other, directly or through others."""
  def reached(start):
    seen, todo = set(), [start]
    while todo:
      for other in edges.get(todo.pop(), {}):
        if other not in seen:
          seen.add(other)
          todo.append(other)
    return seen

  below = {folder: reached(folder) for folder in edges}
  for folder, others in sorted(edges.items()):
    for other, example in sorted(others.items()):
      if folder in below.get(other, ()):
        yield f"{folder}/ and {other}/ include each other: {example}"


def types_of(path):
  """(name with its namespace, line) of each type that a header defines."""
  namespace = ""
  for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
    if match := re.match(r"namespace ([\w:]+) {", line):
      namespace = match[1]
    elif match := re.match(r"(?:struct|class|enum(?: class)?) (\w+)[^;]*$", line):
      yield f"{namespace}::{match[1]}", number


def twins(headers):
  """Types that two headers define."""
  defined = {}
  for path in headers:
    for name, number in types_of(path):
      other = defined.setdefault(name, path)
      if other != path:
        yield f"{path}:{number}: {name} is defined in {other}, too"


def vague(files):
  """An error if the files hold more than MAX_VAGUE matches of VAGUE. A match may
  go on in the next line of a comment."""
  counts = {}
  for path in files:
    text = re.sub(r"\n[\s/#*]*", " ", (ROOT / path).read_text(encoding="utf-8"))
    if path != "scripts/check_layers.py":
      counts[path] = len(VAGUE.findall(text))
  total = sum(counts.values())
  if total <= MAX_VAGUE:
    return []
  most = sorted(counts, key=lambda path: (-counts[path], path))[:10]
  return [f"expected at most {MAX_VAGUE} phrases such as \"those of\" in all "
          f"files, got {total}: say the noun. Most phrases are in "
          + ", ".join(f"{path} ({counts[path]})" for path in most)]


def main():
  files = source_files()
  errors = [f"{path}:{number}: {message}"
            for path in files for number, message in findings(path)]
  errors += cycles(included_folders(files))
  errors += twins(path for path in files if str(path).endswith(".h"))
  errors += vague(source_files("*.md"))
  if errors:
    print("\n".join(errors))
    return 1
  print(f"layers: {len(files)} files OK")
  return 0


if __name__ == "__main__":
  sys.exit(main())
