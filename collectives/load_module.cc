// SPDX-License-Identifier: Apache-2.0
#include "collectives/load_module.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace onnx_fp8 {

std::vector<std::string> ModuleFolders() {
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string folder = program.parent_path().string();
  std::vector<std::string> folders = {folder,
                                      folder + "/../" ONNX_FP8_LIBRARIES};
  // In a library, whose program is another's: beside the library.
  static const char here = 0;
  Dl_info file = {};
  if (dladdr(&here, &file) != 0 && file.dli_fname &&
      std::filesystem::exists(file.dli_fname, error) &&
      !std::filesystem::equivalent(file.dli_fname, program, error)) {
    folders = {std::filesystem::path(file.dli_fname).parent_path().string()};
  }
  return folders;
}

void* LoadModule(const Module& module,
                 const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + module.file;
    if (!PathExists(path)) continue;
    void* library = dlopen(
        path.c_str(), RTLD_NOW | (module.global ? RTLD_GLOBAL : RTLD_LOCAL));
    Check(library != nullptr, "[", module.name, "] cannot open ", path, ": ",
          library ? "" : dlerror());
    void* function = dlsym(library, module.function);
    Check(function != nullptr, "[", path, "] expected the function ",
          module.function, ", got none");
    return function;
  }
  std::string places;
  for (const std::string& folder : folders) {
    places += (places.empty() ? "" : " or ") + folder;
  }
  throw NoModule(Concat("[", module.name, "] expected ", module.file, " in ",
                        places, ", got none: ", module.remedy));
}

}  // namespace onnx_fp8
