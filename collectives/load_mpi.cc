// SPDX-License-Identifier: Apache-2.0
#include "collectives/load_mpi.h"

#include <dlfcn.h>

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
  MpiRanks(const MpiModule& module, size_t message_bytes)
      : Communicator(message_bytes),
        module_(module),
        exceptions_(std::uncaught_exceptions()) {
    if (module.size > 1) heartbeat_.emplace(*this);
  }
  ~MpiRanks() override {
    if (std::uncaught_exceptions() != exceptions_) return;
    module_.barrier();  // its wait leaves the core to the others
    if (heartbeat_) heartbeat_->Finish();
    module_.finalize();
  }

  int rank() const override { return module_.rank; }
  int size() const override { return module_.size; }
  void Barrier() override { CheckMpi("the barrier", module_.barrier()); }
  void Abort(const std::string& reason) override {
    if (heartbeat_) heartbeat_->Abort(reason);
    module_.abort();
  }

 protected:
  void Gather(const void* send, void* receive, size_t bytes) override {
    CheckMpi("the all-gather", module_.gather(send, receive, bytes));
  }
  void Exchange(const void* send, void* receive, size_t bytes) override {
    CheckMpi("the all-to-all", module_.exchange(send, receive, bytes));
  }
  void Send(void* data, size_t bytes, int root) override {
    CheckMpi("the broadcast", module_.broadcast(data, bytes, root));
  }

 private:
  MpiModule module_;
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
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::vector<std::string> MpiFolders() {
  const std::string folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  return {folder, folder + "/../" ONNX_FP8_LIBRARIES};
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
  Check(!launcher ||
            (launcher->size == module.size && launcher->rank == module.rank),
        "[MPI] expected rank ", launcher ? launcher->rank : 0, " of ",
        launcher ? launcher->size : 0, ", as ", launcher ? launcher->name : "",
        " has launched, got rank ", module.rank, " of ", module.size, " from ",
        library, ": launch with its own mpirun");
  Check(module.size == ranks, "[MPI] expected ", ranks,
        " ranks, the product of the mesh, got ", module.size, " from ", library,
        ": launch with mpirun -n ", ranks);
  return std::make_unique<MpiRanks>(module, message_bytes);
}

}  // namespace onnx_fp8
