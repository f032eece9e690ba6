// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#include "base/temporary_folder.h"

namespace onnx_fp8 {

// The user's cache is an empty folder while this lives; in other tests there is
// none.
class UserCache {
 public:
  UserCache() { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~UserCache() { setenv("XDG_CACHE_HOME", "/dev/null", 1); }
  UserCache(const UserCache&) = delete;
  UserCache& operator=(const UserCache&) = delete;

 private:
  TemporaryFolder folder_;
};

}  // namespace onnx_fp8
