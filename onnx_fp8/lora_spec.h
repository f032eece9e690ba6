// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8 {

// First values of an adapter's matrices, by PEFT's names.
enum class LoraInit {
  kTrue,      // A uniform in ±1/sqrt(in), B zeros
  kGaussian,  // A normal with deviation 1/r, B zeros
  kFalse,  // A and B as torch.nn.Linear: uniform in ±1/sqrt(in), ±1/sqrt(r)
};

// The words of PEFT for them, by LoraInit.
inline constexpr const char* kLoraInits[] = {"true", "gaussian", "false"};

// Low-rank adapters beside linear layers (Hu et al. 2021), by PEFT's formulas
// and defaults: y = W x + b + scaling · B(A(dropout(x))), with A (r, in) and
// B (out, r).
struct LoraSpec {
  int64_t rank = 8;
  double alpha = 8;
  // Globs, or names as PEFT takes them: a module's path, or the end of one.
  std::vector<std::string> targets;
  double dropout = 0;
  LoraInit init = LoraInit::kTrue;
  bool rslora = false;
  // A folder in PEFT's format, whose adapters are the first values; "": they
  // are drawn.
  std::string folder;

  // alpha / r, or alpha / sqrt(r) with rslora.
  double scaling() const;
};

inline constexpr int64_t kMaxLoraRank = 65536;

// Errors: OptionError about a number out of range, or about missing targets.
void CheckLora(const LoraSpec& spec);

// Reads "r=16,alpha=32,targets=*q_proj*,*v_proj*". A text that does not begin
// with a key and = is a folder; the result has no targets then. A run keeps
// the folder's settings in this form, and the folder as the key `from`. Errors:
// OptionError about unknown or missing words; CheckLora's.
LoraSpec ParseLora(const std::string& text);

// A text that ParseLora reads back.
std::string LoraText(const LoraSpec& spec);

// Whether the target chooses the module of that path, or the weight of that
// name.
bool IsLoraTarget(const std::string& target, const std::string& name);

}  // namespace onnx_fp8
