// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// What graph/upgrade.cc does to a node whose op changed at some opset. Each
// function takes a node of the form before that opset and returns the node of
// the form since; all but the types of a few small constants comes from the
// node alone. Errors: a use that has no newer form.

// The attribute, if it is there, becomes operand `index`: integers a list,
// a float a number of the type of operand 0 (of float, where that is unknown).
void AttributeToOperand(Graph& graph, Node* node, const std::string& attribute,
                        size_t index);

// 9: `spatial` went. Without it each element of a sample has statistics of its
// own.
Node* BatchNormOfElements(Graph& graph, Node* node);
// 9: the batch axis and the lengths went.
Node* ScanOfBatches(Graph& graph, Node* node);
// 10: the mask is of bool, and of the data's type before.
Node* DropoutMask(Graph& graph, Node* node);
// 11: Upsample and Resize of the opset before it do what Resize does with
// asymmetric coordinates; nearest ones are rounded down where an axis grows
// and up where it shrinks (ONNX Runtime's reading of the old text, which is
// silent).
Node* UpsampleToResize(Graph& graph, Node* node);
Node* ResizeAsymmetric(Graph& graph, Node* node);
// 11: Scatter is called ScatterElements.
Node* ScatterElements(Graph& graph, Node* node);
// 13: `axis` is one axis, and the first of several taken as one before.
Node* SoftmaxOfMatrix(Graph& graph, Node* node);
// 13: tf_half_pixel_for_nn went.
Node* ResizeHalfPixel(Graph& graph, Node* node);
// 14: a training mode, told by the number of outputs before; the statistics of
// the batch are no outputs any more.
Node* BatchNormMode(Graph& graph, Node* node);
// 16: half_pixel is the default, and output_half_pixel was.
Node* RoiAlignDefault(Graph& graph, Node* node);
// 18: Split without sizes takes their number from an attribute.
Node* SplitCount(Graph& graph, Node* node);
// 20: the axis is an operand, and another one by default.
Node* DftAxis(Graph& graph, Node* node);
// 20: modes were renamed.
Node* GridSampleModes(Graph& graph, Node* node);
// 21: scale and bias have one element per channel, one per group before.
Node* GroupNormPerChannel(Graph& graph, Node* node);

}  // namespace onnx_fp8
