// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/access_checks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/check.h"
#include "tests/cuda/emulation/block_state.h"
#include "tests/cuda/emulation/counts.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/shared_memory.h"
#include "tests/cuda/emulation/symbols.h"

extern "C" char __executable_start[], _end[];

namespace onnx_fp8::emulation {
namespace {

bool checked = false;

// An access to some of four bytes. Two accesses of a block are in order where a
// barrier of the block, or of the warp that both are of, lies between them.
struct Touch {
  uint32_t block, epoch, warp_epoch;
  uint16_t thread;
  uint8_t bytes;  // a bit for each
  bool atomic;
};

// The last accesses to four bytes. All zero where there was none.
struct Cell {
  uint32_t run;  // the launch or the block that the rest is of
  uint8_t written;
  bool many_warps, many_blocks;  // other readers than `read`
  Touch read, write;
};

// Memory that is zero at first, and real only where it is touched.
std::shared_ptr<void> NewCells(size_t bytes_of_memory) {
  size_t bytes = (bytes_of_memory / 4 + 2) * sizeof(Cell);
  void* cells = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Check(cells != MAP_FAILED, "no memory for the checks of accesses");
  return {cells, [bytes](void* p) { munmap(p, bytes); }};
}

// A piece of memory with its cells.
struct Space {
  const char* name;
  bool shared;
  const char* begin;
  Cell* cells;
  uint32_t run;

  Cell& at(uintptr_t p) const {
    return cells[(p - (AddressOf(begin) & ~uintptr_t{3})) / 4];
  }
};

bool Once(const void* code) {
  static auto& seen = *new std::set<const void*>;
  return seen.insert(code).second;
}

bool Unordered(const Touch& a, const Touch& b) {
  if (!(a.bytes & b.bytes) || (a.atomic && b.atomic)) return false;
  if (a.block != b.block) return true;
  if (a.thread == b.thread || a.epoch != b.epoch) return false;
  return a.thread / 32 != b.thread / 32 || a.warp_epoch == b.warp_epoch;
}

void ReportRace(const Space& space, const Touch& a, const char* did,
                const Touch& b, const char* does, const void* code) {
  if (!Once(code)) return;
  Report("race on ", space.name, " memory: block ", a.block, " thread ",
         a.thread, " ", did, " and block ", b.block, " thread ", b.thread, " ",
         does, " with no barrier between, ", SourceOf(code), ", kernel ",
         FunctionName(block.grid->kernel));
}

void NoteRead(const Space& space, Cell& cell, const Touch& now,
              const void* code) {
  if (space.shared && (now.bytes & ~cell.written) && Once(code)) {
    Report(WhereInKernel(), " reads shared memory that no thread wrote, ",
           SourceOf(code));
  }
  if (Unordered(cell.write, now)) {
    ReportRace(space, cell.write, "writes", now, "reads", code);
  }
  const Touch& before = cell.read;
  bool first = before.bytes == 0 ||
               (before.block == now.block && before.epoch != now.epoch);
  bool overlaps = (before.bytes & now.bytes) != 0;
  if (first) {
    cell.many_warps = false;
  } else if (overlaps) {
    cell.many_blocks |= before.block != now.block;
    cell.many_warps |= before.thread / 32 != now.thread / 32;
  }
  cell.read = now;
}

void NoteWrite(const Space& space, Cell& cell, const Touch& now,
               const void* code) {
  if (Unordered(cell.write, now)) {
    ReportRace(space, cell.write, "writes", now, "writes", code);
  }
  const Touch& reader = cell.read;
  bool others =
      cell.many_blocks || (cell.many_warps && reader.epoch == now.epoch);
  others &= (reader.bytes & now.bytes) && !(reader.atomic && now.atomic);
  if (others || Unordered(reader, now)) {
    ReportRace(space, reader, "reads", now, "writes", code);
  }
  cell.written |= now.bytes;
  cell.write = now;
}

// Notes the access in all its cells.
void Note(const Space& space, const Access& access) {
  const uint3& b = blockIdx;
  const DeviceThread& thread = *block.current;
  Touch now = {.block = b.x + gridDim.x * (b.y + gridDim.y * b.z),
               .epoch = block.epoch,
               .warp_epoch = block.warp_of(thread).epoch,
               .thread = static_cast<uint16_t>(thread.id),
               .bytes = 0,
               .atomic = access.atomic};
  uintptr_t p = AddressOf(access.address), end = p + access.bytes;
  for (; p < end; p = (p | 3) + 1) {
    unsigned from = p & 3;
    auto to = static_cast<unsigned>(std::min<uintptr_t>(4, from + end - p));
    now.bytes = static_cast<uint8_t>((1u << to) - (1u << from));
    Cell& cell = space.at(p);
    if (cell.run != space.run) cell = {.run = space.run};
    if (access.writes) {
      NoteWrite(space, cell, now, access.code);
    } else {
      NoteRead(space, cell, now, access.code);
    }
  }
}

bool IsIn(const void* p, const void* begin, const void* end) {
  return p >= begin && p < end;
}

[[noreturn]] void EndKernel(const Access& access) {
  Report(WhereInKernel(), access.writes ? " writes " : " reads ", access.bytes,
         " bytes at ", Describe(access.address), ", ", SourceOf(access.code));
  Fault(cudaErrorIllegalAddress);
}

void CheckShared(const Access& access, const char* begin, const char* end,
                 std::shared_ptr<void>& cells) {
  if (!cells) cells = NewCells(static_cast<size_t>(end - begin));
  Note({.name = "shared",
        .shared = true,
        .begin = begin,
        .cells = static_cast<Cell*>(cells.get()),
        .run = block.run},
       access);
}

void CheckDynamicShared(const Access& access) {
  static auto& cells = *new std::shared_ptr<void>;
  auto p = static_cast<const char*>(access.address);
  if (p < DynamicBegin() || p + access.bytes > DynamicEnd()) EndKernel(access);
  CheckShared(access, DynamicEnd() - kMaxDynamicShared - 16, DynamicEnd(),
              cells);
}

// Variables of the host, arguments, and a thread's own variables.
bool IsPrivate(const void* p) {
  auto call = static_cast<const char*>(block.grid->call);
  return IsIn(p, __executable_start, _end) ||
         IsIn(p, call, call + block.grid->call_bytes) || OnDeviceStack(p);
}

void CheckGlobal(const Access& access) {
  if (AddressOf(access.address) % access.alignment != 0) {
    Report(WhereInKernel(), ": ", access.bytes, " bytes at ",
           Describe(access.address), " are not aligned, ",
           SourceOf(access.code));
    Fault(cudaErrorMisalignedAddress);
  }
  Allocation& a = *Find(access.address);
  if (!a.device) return;
  CountAccess(access.bytes, access.reads, access.writes);
  if (!a.checks) a.checks = NewCells(a.bytes);
  Note({.name = "device",
        .shared = false,
        .begin = a.begin,
        .cells = static_cast<Cell*>(a.checks.get()),
        .run = block.launch},
       access);
}

}  // namespace

void CheckAccess(const Access& access) {
  static auto& cells = *new std::shared_ptr<void>;
  if (!InKernel() || access.bytes == 0) return;
  const void* p = access.address;
  if (IsIn(p, SharedBegin(), SharedEnd())) {
    CheckShared(access, SharedBegin(), SharedEnd(), cells);
  } else if (IsDynamicShared(p)) {
    CheckDynamicShared(access);
  } else if (IsPrivate(p)) {
    return;  // as most accesses are
  } else if (Reachable(p, access.bytes)) {
    CheckGlobal(access);
  } else {
    EndKernel(access);
  }
}

void BeginChecks() { checked = true; }

bool Checked() { return checked; }

}  // namespace onnx_fp8::emulation
