// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <string>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/blocks.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/pinned.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/symbols.h"

#if !defined(__x86_64__)
#error "the registers of a signal are read as those of x86-64"
#endif

namespace onnx_fp8::emulation {
namespace {

constexpr size_t kSignalStackBytes = 128 << 10;

struct sigaction old_segv, old_bus;

struct BadAccess {
  void* address;
  const void* code;
  bool writes;
  bool aligned;

  const char* verb() const { return writes ? "writes" : "reads"; }
};

BadAccess AccessIn(const siginfo_t& info, const void* context) {
  auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return {.address = info.si_addr,
          .code = reinterpret_cast<const void*>(registers[REG_RIP]),
          .writes = (registers[REG_ERR] & 2) != 0,
          // Vector instructions report what is not aligned in this way.
          .aligned = info.si_code != SI_KERNEL};
}

[[noreturn]] void EndFaultingKernel(int signal, const BadAccess& access) {
  if (InStackGuard(access.address)) {
    Report(WhereInKernel(), ": its stack overflows");
  } else if (!access.aligned) {
    Report(WhereInKernel(), ": a vector access is not aligned, ",
           SourceOf(access.code));
  } else {
    Report(WhereInKernel(), " ", access.verb(), " ", Describe(access.address),
           ", ", SourceOf(access.code));
  }
  // The handler never returns.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  Fault(access.aligned ? cudaErrorIllegalAddress : cudaErrorMisalignedAddress);
}

// Held ranges close whole pages. Opens the page if the access is to what lies
// beside such a range.
bool OpenNeighbor(const void* p) {
  const Allocation* a = Find(p);
  if (!a || a->device || !a->live() || p < a->map || p >= a->map_end) {
    return false;
  }
  auto page = reinterpret_cast<void*>(AddressOf(p) & ~(kPage - 1));
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
  return true;
}

// Returns if the access may be tried again.
void CheckHostAccess(int signal, const BadAccess& access) {
  auto lock = WaitForOtherThreads();
  std::string holder = WhoHolds(access.address, access.writes);
  if (!holder.empty()) {
    Report("the host ", access.verb(), " pinned memory that ", holder, ": ",
           Describe(access.address), ", ", SourceOf(access.code));
    std::abort();
  }
  if (OpenNeighbor(access.address)) return;
  if (Find(access.address)) {
    Report("the host ", access.verb(), " ", Describe(access.address), ", ",
           SourceOf(access.code));
    std::abort();
  }
  // The access is tried again and finds the handler that was there before us.
  sigaction(signal, signal == SIGBUS ? &old_bus : &old_segv, nullptr);
}

void OnSignal(int signal, siginfo_t* info, void* context) {
  BadAccess access = AccessIn(*info, context);
  if (OpenOnFault(access.address)) return;
  if (InKernel()) EndFaultingKernel(signal, access);
  CheckHostAccess(signal, access);
}

// The stack of a thread may be what overflowed. AddressSanitizer gives each
// thread an alternative one, and wants it back.
void SetSignalStack() {
  stack_t old = {};
  sigaltstack(nullptr, &old);
  if (!(old.ss_flags & SS_DISABLE)) return;
  void* p = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t stack = {.ss_sp = p, .ss_flags = 0, .ss_size = kSignalStackBytes};
  if (p != MAP_FAILED) sigaltstack(&stack, nullptr);
}

void SetHandler() {
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
}

}  // namespace

void CatchFaults() {
  static bool once = (SetHandler(), true);
  thread_local bool once_per_thread = (SetSignalStack(), true);
  (void)once;
  (void)once_per_thread;
}

void Fault(cudaError_t error) {
  SetStickyError(error);
  if (InKernel()) AbandonKernel();
  throw Faulted();
}

}  // namespace onnx_fp8::emulation
