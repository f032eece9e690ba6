// SPDX-License-Identifier: Apache-2.0
#include "collectives/load_mpi.h"

#include <algorithm>
#include <exception>

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

constexpr Module kMpi = {.name = "MPI",
                         .file = kMpiModuleFile,
                         .function = kOpenMpiModule,
                         .remedy =
                             "a build makes it if it finds MPI "
                             "(Debian's libmpich-dev)",
                         .global = true};

std::string FirstLine(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  std::ranges::replace(line, '\t', ' ');
  return line;
}

}  // namespace

std::unique_ptr<Communicator> LoadMpi(int ranks,
                                      const std::optional<Launcher>& launcher,
                                      const std::vector<std::string>& folders,
                                      size_t message_bytes) {
  MpiModule module = {};
  const auto open = reinterpret_cast<OpenMpiModule>(LoadModule(kMpi, folders));
  CheckMpi("its start", open(&module));
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
