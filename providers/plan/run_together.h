// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "providers/kernel.h"
#include "providers/plan/arena.h"

namespace onnx_fp8 {

// Finds steps that one call of KernelTraits::many can run, such as the updates
// of all parameters, and moves them side by side. A step moves forward to the
// first one that it can join: with the same `many`, and behind all steps for
// which it waits. It stays if its results, which then live longer, would raise
// the most bytes in use at a step. Workspaces of steps that run together may
// raise it by a mebibyte: most kernels of many nodes need little.
//
// `order`: the steps. `many`: one per step; null: it runs alone. `edges`
// (from, to): steps in the order in which they must stay. `buffers`: the arena
// in that order, with places in it as times. Returns for each place in the new
// order the place of the first step that runs together with it.
std::vector<int> RunTogether(std::vector<int>& order,
                             const std::vector<KernelOfMany>& many,
                             const std::vector<std::pair<int, int>>& edges,
                             const std::vector<Buffer>& buffers);

}  // namespace onnx_fp8
