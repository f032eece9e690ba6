# SPDX-License-Identifier: Apache-2.0
"""The pages of the reference, in MyST's Markdown: Python's docstrings and C++'s comments, with no import or compiler."""
import ast
import re
import textwrap


def escaped(text):
    """Prose as Markdown: only backticks and indented code mean anything in docstrings and comments."""
    lines = [line if line.startswith("    ") else "".join(
        part if part.startswith("`") else re.sub(r"([*_<\[\]|$#{])", r"\\\1", part)
        for part in re.split(r"(`[^`]*`)", line)) for line in text.split("\n")]
    return "\n".join(lines)


def entry(kind, signature, body, depth=0, options=()):
    """A directive of one of Sphinx's domains. `depth`: how many entries its body nests."""
    fence = "`" * (4 + depth)
    head = "".join(f":{option}\n" for option in options)
    return f"{fence}{{{kind}}} {signature}\n{head}\n{body.strip()}\n{fence}\n"


# ---- Python

MODULES = {"onnx_fp8": "__init__", "onnx_fp8.torch": "torch", "onnx_fp8.ort": "ort"}


def prose(node):
    return escaped(ast.get_docstring(node) or "")


def signature(function, method):
    arguments = ast.unparse(function.args)
    if method:
        arguments = re.sub(r"^self(, )?", "", arguments)
    return f"{function.name}({arguments})" + (f" -> {ast.unparse(function.returns)}" if function.returns else "")


def python_function(node, method=False):
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if "property" in decorators:
        return entry("py:property", node.name, prose(node), options=[f"type: {ast.unparse(node.returns)}"])
    more = "".join(f"\n\n`help(onnx_fp8.{node.name})` lists the options." for word in decorators
                   if word.startswith("documented"))
    return entry("py:method" if method else "py:function", signature(node, method), prose(node) + more)


def python_class(node):
    members, arguments = [], ""
    for item in node.body:
        if isinstance(item, ast.AnnAssign):
            members.append(entry("py:attribute", item.target.id, "", options=[f"type: {ast.unparse(item.annotation)}"]))
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Name):
            members.append(entry("py:attribute", item.targets[0].id, f"The same as `{item.value.id}`."))
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            arguments = signature(item, True).removeprefix("__init__")
        elif isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
            members.append(python_function(item, True))
    options = "".join(f"\n\n`help(onnx_fp8.{node.name})` lists the options." for word in node.decorator_list
                      if ast.unparse(word).startswith("documented"))
    bases = [ast.unparse(base) for base in node.bases]
    kind = "py:exception" if bases else "py:class"
    derived = f"\n\nDerived from {', '.join(f'`{base}`' for base in bases)}." if bases else ""
    return entry(kind, node.name + arguments, "\n\n".join([prose(node) + options + derived, *members]), 1)


def defined(path):
    return {node.name: node for node in ast.parse(path.read_text()).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")}


def public_names(path):
    """Public functions and classes of a module; a module with __all__ imports its names from others beside it."""
    tree = ast.parse(path.read_text())
    listed = [ast.literal_eval(node.value) for node in tree.body
              if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    if not listed:
        return list(defined(path).values())
    sources = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return [defined(path.parent / f"{sources[name]}.py")[name] for name in listed[0] if not name.startswith("__")]


def python(root):
    parts = []
    for module, file in MODULES.items():
        path = root / f"python/onnx_fp8/{file}.py"
        parts += [f"## {module}\n", prose(ast.parse(path.read_text())), f"\n```{{py:module}} {module}\n```\n"]
        parts += [python_class(node) if isinstance(node, ast.ClassDef) else python_function(node)
                  for node in public_names(path)]
    return "\n".join(parts)


# ---- C++

def public_headers(root):
    """The headers that an installation has for programs, and those in their folder that they include."""
    found = re.search(r"set\(public_headers (.*)\)", (root / "cmake/install.cmake").read_text())[1].split()
    for header in found:
        found += [name for name in re.findall(r'^#include "(onnx_fp8/\w+\.h)"', (root / header).read_text(), re.M)
                  if name not in found]
    return found


def comment(lines):
    """The text of `//` lines. A paragraph that is indented more is code."""
    text = re.sub(r"^ *// ?", "", "\n".join(lines), flags=re.M)
    return escaped("\n\n".join(textwrap.indent(textwrap.dedent(part), "    ") if part.startswith("  ") else part
                               for part in re.split(r"\n\n+", text)))


def declarations(text):
    """(comment lines, code lines) of each declaration of the namespace; empty lines and depth 0 separate them."""
    notes, code, depth = [], [], 0
    for line in text.split("\n"):
        bare = re.sub(r"//.*|\"[^\"]*\"", "", line)
        if not code and line.startswith("//"):
            notes.append(line)
        elif not code and not line.strip():
            notes = []
        elif line.strip() or depth:
            code.append(line)
            depth += sum(map(bare.count, "{(")) - sum(map(bare.count, "})"))
            if not depth and bare.rstrip().endswith((";", "}")):
                yield notes, code
                notes, code = [], []


def public_part(code):
    """Without the private members of a class."""
    for index, line in enumerate(code):
        if line.strip() == "private:":
            return [*code[:index], code[-1]]
    return code


def declared(notes, code):
    """One entry, or nothing for a declaration without meaning of its own."""
    head = " ".join(" ".join(line.split("//")[0] for line in code).split())
    if found := re.match(r"(struct|class|enum class) (\w+)[^;]*\{", head):
        shown = "```cpp\n" + "\n".join(public_part(code)) + "\n```"
        return entry(f"cpp:{found[1].replace(' ', '-')}", f"onnx_fp8::{found[2]}", comment(notes) + "\n\n" + shown)
    name = re.search(r"(\w+)\(", head)
    if not name or head.startswith(("using", "class", "struct", "template <>", "#")):
        return ""
    notes = notes + [f"//{line.split('//', 1)[1]}" for line in code if "//" in line and line.rstrip()[:1] != " "]
    signature = re.sub(r"(?<=\)) \{.*|;$", "", head)
    return entry("cpp:function", signature.replace(f"{name[0]}", f"onnx_fp8::{name[0]}", 1), comment(notes))


def cpp(root):
    parts = []
    for header in public_headers(root):
        before, _, rest = (root / header).read_text().partition("#pragma once")
        body = re.search(r"namespace onnx_fp8 \{\n(.*)\}  // namespace onnx_fp8", rest, re.S)
        about = before.partition("\n//\n")[2].strip()
        parts += [f"## {header}\n", comment(about.split("\n")) if about else "", ""]
        parts += [declared(notes, code) for notes, code in declarations(body[1])]
    return "\n".join(parts)
