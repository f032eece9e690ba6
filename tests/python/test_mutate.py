# SPDX-License-Identifier: Apache-2.0
"""scripts/mutate.py: what it breaks, and which tests notice, on a tiny tree of C++ files."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from mutation.operators import draw, mutants_of  # noqa: E402
from mutation.render import HEADER, rendered  # noqa: E402
from mutation.tokens import Source  # noqa: E402
from mutation.workspace import suspected  # noqa: E402

# One line of each kind.
EVERY_KIND = """\
// a + b in a comment, 1 < 2
#include <vector>
#define LIMIT (3 + 4)
#if LIMIT > 5
#endif
static_assert(sizeof(int) >= 2 + 2);
namespace tiny {
enum Color { kRed = 1, kBlue = 2 };
constexpr int kTable[] = {1, 2, 3};
template <int kSize = 8>
struct Box {
  int values[kSize];
  int first() const { return values[0]; }
};
template <typename T>
void Check(bool condition, const T& message);
[[noreturn]] void Fail(const char* message, int number);

int Sum(const std::vector<int>& values, int most) {
  std::vector<int> copy;
  copy.reserve(values.size() + 1);
  int sum = 0;
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    sum += values[i] * 2;  // 3 - 4
  }
  if (sum > most && most != 7) {
    copy.push_back(sum);
    return sum - most;
  } else if (!copy.empty())
    copy.clear();
  else
    copy.push_back(sum / 2);
  Check(sum >= 10, "1 + 2 < 3");
  if (sum == 11) Fail("a" "b", 1 + 2);
  auto larger = [&](int x) { return x <= most; };
  const char* text = R"(7 + 8
  9)";
  bool found = larger(4) || text == nullptr;
  switch (sum) {
    case 5:
      return -1;
    default:
      break;
  }
  while (sum > 0) --sum;
  return found ? 1 : 0;
}

constexpr int Twice(int x) { return x * 2; }
}  // namespace tiny
"""


def mutants(text):
    return mutants_of(Source("data/a.cc", text))


def test_each_kind_and_no_text_that_is_not_run():
    found = mutants(EVERY_KIND)
    assert {m.operator for m in found} == {"arithmetic", "boundary", "comparison", "logical", "constant", "negation", "return", "deleted"}
    changes = {(m.original, m.mutated) for m in found}
    assert {("sum > most && most != 7", "sum > most || most != 7"), ("sum > most && most != 7", "sum >= most && most != 7"),
            ("sum > most && most != 7", "!(sum > most && most != 7)"), ("copy.clear()", ""), ("return sum - most", "return {}"),
            ("return sum - most", "return sum + most"), ("return x <= most", "return x < most"),
            ("bool found = larger(4) || text == nullptr;", "bool found = larger(5) || text == nullptr;"),
            ("values[i] * 2", "values[i] / 2"), ("sum += values[i] * 2", "sum -= values[i] * 2"), ("!copy.empty()", "copy.empty()"),
            ("sum >= 10", "sum > 10"), ("return x * 2", "return x / 2"), ("larger(4) || text == nullptr", "larger(4) || text != nullptr")} <= changes
    assert {m.text for m in found if m.original.startswith("return -1")} == {"return -0"}
    lines = EVERY_KIND.splitlines()
    touched = {lines[m.line - 1].strip() for m in found}
    for left_out in ("comment", "#", "static_assert", "enum", "kTable", "kSize", "reserve", "case", "R\"", "9)\""):
        assert not any(left_out in line for line in touched), left_out
    assert not any("1 - 2" in m.mutated or '"' in m.mutated and m.operator != "return" and "Check" not in m.mutated for m in found)
    assert not any("Fail" in m.original and m.mutated for m in found)


def test_a_seed_draws_the_same_mutants():
    found = mutants(EVERY_KIND)
    first = [(m.line, m.text) for m in draw(found, 12, 7)]
    assert first == [(m.line, m.text) for m in draw(list(reversed(found)), 12, 7)]
    assert first != [(m.line, m.text) for m in draw(found, 12, 8)]
    assert len(first) == 12 == len({line for line, _ in first})  # a line each, while there are enough
    assert len(draw(found, 10000, 7)) == len(found)


def compiles(folder, text):
    (folder / "mutant.h").write_text(HEADER)
    (folder / "a.cc").write_text(text)
    return subprocess.run(["g++", "-std=c++20", "-w", "-fdiagnostics-column-unit=byte", "-include", folder / "mutant.h", "-fsyntax-only",
                           folder / "a.cc"], capture_output=True, text=True)


def test_all_kinds_compile_at_once_and_lines_keep_their_numbers(tmp_path):
    source = Source("data/a.cc", EVERY_KIND)
    numbered = list(enumerate(mutants_of(source), 1))
    text = rendered(source, numbered)
    done = compiles(tmp_path, text)
    assert done.returncode == 0, done.stderr
    for line, kept in zip(text.splitlines(), EVERY_KIND.splitlines(), strict=True):
        assert line == kept or "mutant(" in line or kept.strip() in line
    assert all(f"mutant({number})" in text for number, _ in numbered)
    assert rendered(source, []) == EVERY_KIND


def test_errors_name_the_mutant(tmp_path):
    source = Source("a.cc", 'struct S { int* p; };\nint* F(S s, bool b) {\n  /* … */ int* q = b ? s.p + 1 : nullptr;\n  return b ? q : s.p;\n}\n')
    numbered = list(enumerate(mutants_of(source), 1))
    text = rendered(source, numbered)
    done = compiles(tmp_path, text.replace("s.p - 1", "s - 1"))
    wrong = {n for n, m in numbered if m.mutated.endswith("s.p - 1 : nullptr")}
    assert done.returncode != 0 and wrong and wrong <= suspected(done.stderr, "a.cc", text.replace("s.p - 1", "s - 1"))


CMAKE = """\
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(GTest CONFIG REQUIRED)
enable_testing()
add_executable(test_data data/clamp.cc data/endless.cc tests/data/clamp_test.cc)
target_include_directories(test_data PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(test_data PRIVATE GTest::gtest_main)
add_test(NAME test_data COMMAND test_data WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(test_data PROPERTIES ENVIRONMENT "TINY=1;LARGE=a=b")
add_executable(onnx-fp8 data/clamp.cc data/main.cc)
target_include_directories(onnx-fp8 PRIVATE "${PROJECT_SOURCE_DIR}")
add_test(NAME test_program COMMAND "${PYTHON}" -m pytest -q -p no:cacheprovider tests/python --ignore tests/python/test_slow.py
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(test_program PROPERTIES ENVIRONMENT "ONNX_FP8_BIN=${CMAKE_BINARY_DIR}/onnx-fp8")
"""
CODE = """\
#include "data/clamp.h"

#include <string>

int Clamped(int x, int most) {
  if (x > most) return most;
  return x;
}

int Doubled(int x) { return x * 2; }

bool Unread(int x) { return x == 3; }

// Its mutant can't be compiled: no strings are subtracted.
std::string Joined(std::string a, std::string b) { return a + b; }
"""
ENDLESS = """\
#include "data/clamp.h"

#include <unistd.h>

int Endless(int x) {
  for (; x > 0; usleep(1000)) x -= 1;  // an endless mutant that sleeps takes no time from other tests
  return x;
}
"""
TEST = """\
#include "data/clamp.h"

#include <gtest/gtest.h>

TEST(Clamp, Weak) {
  EXPECT_EQ(Clamped(7, 5), 5);
  EXPECT_EQ(Clamped(3, 5), 3);
}
TEST(Double, Good) { EXPECT_EQ(Doubled(3), 6); }
TEST(Join, Good) { EXPECT_EQ(Joined("a", "b"), "ab"); }
TEST(End, Good) { EXPECT_EQ(Endless(3), 0); }
"""
MAIN = """\
#include "data/clamp.h"

int main(int argc, char**) { return Unread(argc) ? 0 : 1; }
"""
TEST_OF_PROGRAM = """\
import os
import subprocess


def test_two_words():
    assert subprocess.run([os.environ["ONNX_FP8_BIN"], "a", "b"]).returncode == 0
"""
HEADER_OF_CODE = """\
#pragma once
#include <string>
int Clamped(int x, int most);
int Doubled(int x);
bool Unread(int x);
int Endless(int x);
std::string Joined(std::string a, std::string b);
"""
EQUIVALENT = """\
# At equality both are the same.
file: data/clamp.cc
original: x > most
mutated: x >= most
reason: for x == most, most is x
"""


def git(tree, *words):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path):
    files = {"CMakeLists.txt": CMAKE, "data/clamp.cc": CODE, "data/endless.cc": ENDLESS, "data/main.cc": MAIN,
             "tests/python/test_program.py": TEST_OF_PROGRAM, "tests/python/test_slow.py": "def test_slow():\n    assert False\n",
             "data/clamp.h": HEADER_OF_CODE, "tests/data/clamp_test.cc": TEST,
             ".gitignore": "/build/\n", "scripts/equivalent_mutants.txt": "# none\n",
             "CMakePresets.json": json.dumps({"version": 6, "configurePresets": [{
                 "name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release",
                 "cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}}]})}
    tree = tmp_path / "tree"
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "all")
    return tree


def mutate(tree, *words):
    environment = os.environ | {"ONNX_FP8_CMAKE_OPTIONS": f"-DPYTHON={sys.executable}"}
    done = subprocess.run([sys.executable, ROOT / "scripts/mutate.py", "--root", tree, *words], capture_output=True, text=True, env=environment)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done


def verdicts(path):
    return {(m["original"], m["mutated"]): (m["verdict"], m["by"]) for m in json.loads(path.read_text())["mutants"]}


def test_tests_kill_and_mutants_survive(tree, tmp_path):
    out = tmp_path / "out.json"
    done = mutate(tree, "data", "--count", "100", "--json", out)
    found = verdicts(out)
    assert done.returncode == 1, done.stdout + done.stderr
    assert found["return x * 2", "return x / 2"] == ("killed", "Double.Good")
    assert found["x > most", "x <= most"] == ("killed", "Clamp.Weak")
    assert found["x > most", "x >= most"][0] == "survived"
    assert "survived: data/clamp.cc:6:9: boundary: > → >= in `x > most`" in done.stdout
    assert found["return x == 3", "return x != 3"] == ("not reached", "")
    assert found["return a + b", "return a - b"] == ("not compilable", "")
    assert found["x -= 1", ""][0] == "timed out"
    assert (tree / "data/clamp.cc").read_text() == CODE

    (tree / "scripts/equivalent_mutants.txt").write_text(EQUIVALENT + "\n" + EQUIVALENT.replace("x >= most", "x >> most"))
    done = mutate(tree, "data/clamp.cc", "--count", "100", "--json", out, "--tests", "test_data,test_program")
    assert verdicts(out)["x > most", "x >= most"] == ("equivalent", "")
    assert verdicts(out)["return x == 3", "return x != 3"] == ("killed", "tests/python/test_program.py::test_two_words")
    assert "test_slow" not in done.stdout
    assert "stale: scripts/equivalent_mutants.txt" in done.stdout
    survivors = [c for c, (verdict, _) in verdicts(out).items() if verdict == "survived"]
    assert done.returncode == (1 if survivors else 0)


def test_changed_lines_only(tree):
    assert "data/clamp.cc:" not in mutate(tree, "--changed", "HEAD", "--list").stdout
    (tree / "data/clamp.cc").write_text(CODE.replace("x * 2", "x * 2 + 1 - 1"))
    (tree / "data/new.h").write_text("inline int New(int x) { return x + 1; }\n")
    shown = mutate(tree, "--changed", "--list").stdout
    assert {line.split(": ")[0].rsplit(":", 1)[0] for line in shown.splitlines()} == {"data/clamp.cc:10", "data/new.h:1"}, shown
    assert mutate(tree, "data", "--list", "--count", "5", "--seed", "3").stdout == mutate(tree, "data", "--list", "--count", "5", "--seed", "3").stdout
