# SPDX-License-Identifier: Apache-2.0
"""What scripts/mutate.py is made of. Each module uses the ones above it:

tokens     C++ text as tokens, and which brackets belong together
units      the expressions and statements in function bodies
operators  the ways to break a unit, and the draw of some by a seed
render     a file with its drawn mutants, which a switch chooses among
workspace  the copy of the tree: which mutants compile, and the build
suites     the suites of the tests: which mutants each one reaches, and kills
"""
