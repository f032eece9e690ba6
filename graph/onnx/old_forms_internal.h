// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// The rewrites that graph/onnx/upgrade.cc makes when an op changed at some
// opset. Each function takes a node in the form before that opset and returns
// the node in the form since. Only the types of a few small constants depend on
// more than the node itself. Errors: a use that has no newer form.

// Makes the attribute, if it is there, operand `index`: integers become a list,
// a float becomes a number of the type of operand 0 (float, if that is
// unknown).
void AttributeToOperand(Graph& graph, Node* node, const std::string& attribute,
                        size_t index);

// 9: `spatial` was removed. With spatial 0 each element of a sample had
// statistics of its own.
Node* BatchNormOfElements(Graph& graph, Node* node);
// 9: the batch axis and the lengths were removed.
Node* ScanOfBatches(Graph& graph, Node* node);
// 10: the mask is of bool; before, it had the type of the data.
Node* DropoutMask(Graph& graph, Node* node);
// 11: Upsample, and Resize of opset 10, behave as Resize with asymmetric
// coordinates. In mode nearest, coordinates are rounded down if an axis grows
// and up if it shrinks (ONNX Runtime's reading; the old text does not say).
Node* UpsampleToResize(Graph& graph, Node* node);
Node* ResizeAsymmetric(Graph& graph, Node* node);
// 11: Scatter was renamed ScatterElements.
Node* ScatterElements(Graph& graph, Node* node);
// 13: `axis` is one axis; before, it was the first of several taken as one.
Node* SoftmaxOfMatrix(Graph& graph, Node* node);
// 13: tf_half_pixel_for_nn was removed.
Node* ResizeHalfPixel(Graph& graph, Node* node);
// 14: training mode is an attribute; before, the number of outputs told it. The
// statistics of the batch are no longer outputs.
Node* BatchNormMode(Graph& graph, Node* node);
// 16: the default is half_pixel; before, it was output_half_pixel.
Node* RoiAlignDefault(Graph& graph, Node* node);
// 18: Split without sizes takes the number of its outputs from an attribute.
Node* SplitCount(Graph& graph, Node* node);
// 20: the axis is an operand, with another default.
Node* DftAxis(Graph& graph, Node* node);
// 20: modes were renamed.
Node* GridSampleModes(Graph& graph, Node* node);
// 21: scale and bias have one element per channel; before, one per group.
Node* GroupNormPerChannel(Graph& graph, Node* node);

}  // namespace onnx_fp8
