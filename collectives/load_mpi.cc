// SPDX-License-Identifier: Apache-2.0
#include "collectives/load_mpi.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "collectives/heartbeat.h"
#include "collectives/mpi_module.h"

namespace onnx_fp8 {
namespace {

void CheckMpi(const char* call, const char* error) {
  Check(error == nullptr, "[MPI] ", call, " failed: ", error ? error : "");
}

class MpiRanks : public Communicator {
 public:
  MpiRanks(const MpiModule& module, const MpiGroup& group, size_t message_bytes)
      : Communicator(message_bytes), group_(group), module_(module) {}

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  void Barrier() override { CheckMpi("the barrier", module_.barrier(group_)); }
  void Abort(const std::string&) override { module_.abort(); }

 protected:
  void Gather(const void* send, void* receive, size_t bytes) override {
    CheckMpi("the all-gather", module_.gather(group_, send, receive, bytes));
  }
  void Exchange(const void* send, void* receive, size_t bytes) override {
    CheckMpi("the all-to-all", module_.exchange(group_, send, receive, bytes));
  }
  void Send(void* data, size_t bytes, int root) override {
    CheckMpi("the broadcast", module_.broadcast(group_, data, bytes, root));
  }
  std::unique_ptr<Communicator> MakeGroup(int color) override {
    MpiGroup part = {};
    CheckMpi("the split", module_.split(group_, color, &part));
    return std::make_unique<MpiRanks>(module_, part, message_bytes());
  }

 private:
  MpiGroup group_;

 protected:
  MpiModule module_;
};

// All ranks of the job.
class MpiJob : public MpiRanks {
 public:
  MpiJob(const MpiModule& module, size_t message_bytes)
      : MpiRanks(module, module.world, message_bytes),
        exceptions_(std::uncaught_exceptions()) {
    if (size() > 1) heartbeat_.emplace(*this);
  }
  ~MpiJob() override {
    if (std::uncaught_exceptions() != exceptions_) return;
    module_.barrier(module_.world);  // its wait leaves the core to the others
    if (heartbeat_) heartbeat_->Finish();
    module_.finalize();
  }

  void Abort(const std::string& reason) override {
    if (heartbeat_) heartbeat_->Abort(reason);
    module_.abort();
  }

 private:
  int exceptions_;
  std::optional<Heartbeat> heartbeat_;
};

// The module stays for the rest of the process.
OpenMpiModule FindModule(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + kMpiModuleFile;
    if (!std::filesystem::exists(path)) continue;
    // Global: plug-ins of Open MPI look for its functions there.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    Check(library != nullptr, "[MPI] cannot open ", path, ": ",
          library ? "" : dlerror());
    void* open = dlsym(library, kOpenMpiModule);
    Check(open != nullptr, "[", path, "] expected the function ",
          kOpenMpiModule, ", got none");
    return reinterpret_cast<OpenMpiModule>(open);
  }
  std::string places;
  for (const std::string& folder : folders) {
    places += (places.empty() ? "" : " or ") + folder;
  }
  Fail("[MPI] expected ", kMpiModuleFile, " in ", places,
       ", got none: a build makes it if it finds MPI (Debian's libmpich-dev)");
}

std::string FirstLine(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  std::ranges::replace(line, '\t', ' ');
  return line;
}

}  // namespace

std::vector<std::string> MpiFolders() {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe");
  const std::string folder = program.parent_path().string();
  std::vector<std::string> folders = {folder,
                                      folder + "/../" ONNX_FP8_LIBRARIES};
  // In a library, whose program is another's: beside the library.
  static const char here = 0;
  Dl_info file = {};
  std::error_code error;
  if (dladdr(&here, &file) != 0 && file.dli_fname &&
      std::filesystem::exists(file.dli_fname, error) &&
      !std::filesystem::equivalent(file.dli_fname, program, error)) {
    folders = {std::filesystem::path(file.dli_fname).parent_path().string()};
  }
  return folders;
}

std::unique_ptr<Communicator> LoadMpi(int ranks,
                                      const std::optional<Launcher>& launcher,
                                      const std::vector<std::string>& folders,
                                      size_t message_bytes) {
  MpiModule module = {};
  CheckMpi("its start", FindModule(folders)(&module));
  const std::string library = FirstLine(module.library);
  // If another MPI's mpirun started the processes, this MPI sees one rank in
  // each. Every process would train alone, and all would write into one folder.
  Check(!launcher || (launcher->size == module.world.size &&
                      launcher->rank == module.world.rank),
        "[MPI] expected rank ", launcher ? launcher->rank : 0, " of ",
        launcher ? launcher->size : 0, ", as ", launcher ? launcher->name : "",
        " has launched, got rank ", module.world.rank, " of ",
        module.world.size, " from ", library, ": launch with its own mpirun");
  Check(module.world.size == ranks, "[MPI] expected ", ranks,
        " ranks, the product of the mesh, got ", module.world.size, " from ",
        library, ": launch with mpirun -n ", ranks);
  return std::make_unique<MpiJob>(module, message_bytes);
}

}  // namespace onnx_fp8
