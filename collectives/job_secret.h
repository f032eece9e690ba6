// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/launcher.h"

namespace onnx_fp8 {

struct SecretChoice {
  std::string given = {};   // the person's own; "": none
  std::string folder = {};  // that the ranks share; "": none
  bool insecure = false;    // the ranks need none
};

// The secret by which the ranks of a job know each other: the person's own, or
// one that rank 0 leaves in the folder for the others, or none.
class JobSecret {
 public:
  // Rank 0 draws a new secret and writes it to a file that its user alone may
  // read. Errors: the ranks meet on a network, and there is neither a secret
  // nor a folder; a secret that is too short; the file can't be written.
  JobSecret(const Launcher& launcher, const SecretChoice& choice);
  JobSecret(const JobSecret&) = delete;
  JobSecret& operator=(const JobSecret&) = delete;
  // Rank 0 removes the file, and the folder if it is its own and empty.
  ~JobSecret();

  // "" if the ranks need none. Nothing: rank 0 has not left it yet.
  std::optional<std::string> Read() const;
  // The file of the secret; "" if it has none.
  const std::string& file() const { return file_; }

 private:
  void Leave(const std::string& folder);

  std::string secret_, file_;
  bool ours_ = false;              // file_, to remove
  std::vector<std::string> made_;  // folders, the innermost first
};

// `text` without white space at its end. Errors: fewer than 16 characters:
// "[source] expected …".
std::string CheckedSecret(const std::string& source, std::string_view text);

}  // namespace onnx_fp8
