// SPDX-License-Identifier: Apache-2.0
//
// Adapters in PEFT's format: a folder with adapter_config.json and
// adapter_model.safetensors, whose tensors are
// base_model.model.MODULE.lora_A.weight (r, in), lora_B.weight (out, r), and
// base_model.model.NAME of parameters that were trained whole.
#pragma once

#include <string>
#include <vector>

#include "onnx_fp8/lora_spec.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

struct AdapterFolder {
  // Its targets are the modules that have adapters.
  LoraSpec spec;
  std::string file;  // of the tensors
  // Parts of adapters, MODULE.lora_A.weight and MODULE.lora_B.weight, and
  // parameters, by their names in the module.
  SourceMap adapters, parameters;
};

// Errors: a file that is missing or damaged; a config of another method than
// LoRA; a setting of LoRA that changes the formula and that this program lacks;
// CheckLora's; a tensor without its counterpart, or of another rank.
AdapterFolder ReadAdapterFolder(const std::string& folder);

// What a folder says beside its tensors.
struct AdapterLayers {
  std::vector<std::string> modules;  // with adapters
  std::vector<std::string> saved;    // modules that were trained whole
  bool fan_in_fan_out = false;       // their matrices are (in, out)
};

// Writes such a folder, which may exist. `tensors`: by names in the module.
// Errors: the disk.
void WriteAdapterFolder(const std::string& folder, const LoraSpec& spec,
                        const AdapterLayers& layers, const SourceMap& tensors);

}  // namespace onnx_fp8
