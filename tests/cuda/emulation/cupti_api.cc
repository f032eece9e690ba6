// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/cupti_api.h"

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/settings.h"

namespace onnx_fp8::emulation {
namespace {

// The results and kinds of cupti_result.h and cupti_activity.h.
enum : int { kSuccess = 0, kInvalidParameter = 1, kMaxLimitReached = 12 };
enum : uint32_t { kCopyKind = 1, kClearKind = 2, kKernelKind = 10 };

// CUpti_ActivityKernel10, CUpti_ActivityMemcpy6 and CUpti_ActivityMemset4: the
// fields that a record here fills. tests/cuda/device_timeline_test.cc compares
// the layouts with CUPTI's headers.
struct KernelRecord {
  uint32_t kind;
  char a[12];
  uint64_t start, end;
  char b[16];
  uint32_t stream;
  char c[40];
  uint32_t correlation;
  char d[8];
  const char* name;
  char e[32];
  uint64_t graph_node;
  char f[4];
  uint32_t graph;
  char g[56];
};
struct CopyRecord {
  uint32_t kind;
  uint8_t copy_kind;
  char a[11];
  uint64_t start, end;
  char b[8];
  uint32_t stream, correlation;
  char c[16];
  uint64_t graph_node;
  uint32_t graph;
  char d[20];
};
struct ClearRecord {
  uint32_t kind;
  char a[12];
  uint64_t start, end;
  char b[8];
  uint32_t stream, correlation;
  char c[16];
  uint64_t graph_node;
  uint32_t graph;
  char d[12];
};
static_assert(sizeof(KernelRecord) == 216 && sizeof(CopyRecord) == 96 &&
              sizeof(ClearRecord) == 88);

struct State {
  cupti::RequestBuffer request = nullptr;
  cupti::CompleteBuffer complete = nullptr;
  std::set<uint32_t> enabled;
  std::vector<std::string> records;  // bytes
  size_t seen = 0, lose_every = 0, dropped = 0;
  uint64_t now = 0;
};

State& TheState() {
  static auto& state = *new State;
  return state;
}

template <typename Record>
void Add(const Op& op, Record record) {
  State& state = TheState();
  record.start = static_cast<uint64_t>(op.begin);
  record.end = static_cast<uint64_t>(op.end);
  record.stream = op.work.stream;
  record.correlation = op.work.launch;
  record.graph = op.work.recorded ? 7 : 0;
  state.now = std::max(state.now, record.end);
  if (state.lose_every && ++state.seen % state.lose_every == 0) {
    ++state.dropped;
    return;
  }
  state.records.emplace_back(reinterpret_cast<const char*>(&record),
                             sizeof record);
}

uint32_t KindOf(const uint8_t* record) {
  uint32_t kind;
  std::memcpy(&kind, record, sizeof kind);
  return kind;
}

size_t SizeOf(uint32_t kind) {
  return kind == kKernelKind ? sizeof(KernelRecord)
         : kind == kCopyKind ? sizeof(CopyRecord)
                             : sizeof(ClearRecord);
}

// One buffer, of some records.
void Deliver() {
  State& state = TheState();
  uint8_t* buffer = nullptr;
  size_t size = 0, most = 0, valid = 0;
  state.request(&buffer, &size, &most);
  const size_t some = 1 + Random(50);
  for (size_t n = 0; n < some && !state.records.empty(); ++n) {
    size_t i = Schedule() == 0
                   ? 0
                   : Random(static_cast<uint32_t>(state.records.size()));
    const std::string record = state.records[i];
    if (valid + record.size() > size) break;
    state.records.erase(state.records.begin() + static_cast<std::ptrdiff_t>(i));
    std::memcpy(buffer + valid, record.data(), record.size());
    valid += record.size();
  }
  state.complete(nullptr, 0, buffer, size, valid);
}

}  // namespace

void LoseRecords(size_t every) {
  TheState().lose_every = every;
  TheState().seen = 0;
}

void NoteActivity(const Op& op) {
  const State& state = TheState();
  if (op.work.type == cudaGraphNodeTypeKernel &&
      state.enabled.contains(kKernelKind)) {
    // CUPTI keeps names for the rest of the process.
    static auto& names = *new std::set<std::string>;
    KernelRecord record = {};
    record.kind = kKernelKind;
    record.name = names.insert(op.work.what).first->c_str();
    Add(op, record);
  } else if (op.work.type == cudaGraphNodeTypeMemcpy &&
             state.enabled.contains(kCopyKind)) {
    CopyRecord record = {};
    record.kind = kCopyKind;
    record.copy_kind = 8;
    Add(op, record);
  } else if (op.work.type == cudaGraphNodeTypeMemset &&
             state.enabled.contains(kClearKind)) {
    ClearRecord record = {};
    record.kind = kClearKind;
    Add(op, record);
  }
}

namespace cupti {

int GetTimestamp(uint64_t* nanoseconds) {
  *nanoseconds = TheState().now;
  return kSuccess;
}

int GetResultString(int result, const char** text) {
  *text = result == kSuccess ? "CUPTI_SUCCESS" : "CUPTI_ERROR";
  return kSuccess;
}

int ActivityRegisterCallbacks(RequestBuffer request, CompleteBuffer complete) {
  TheState().request = request;
  TheState().complete = complete;
  return kSuccess;
}

int ActivityEnable(uint32_t kind) {
  if (kind != kCopyKind && kind != kClearKind && kind != kKernelKind) {
    Report("CUPTI records of kind ", kind, " are not emulated");
    return kInvalidParameter;
  }
  TheState().enabled.insert(kind);
  return kSuccess;
}

int ActivityDisable(uint32_t kind) {
  return TheState().enabled.erase(kind) ? kSuccess : kInvalidParameter;
}

int ActivityFlushAll(uint32_t) {
  while (!TheState().records.empty()) Deliver();
  return kSuccess;
}

int ActivityGetNextRecord(uint8_t* buffer, size_t valid, void** record) {
  auto* next = static_cast<uint8_t*>(*record);
  next = next ? next + SizeOf(KindOf(next)) : buffer;
  if (next >= buffer + valid) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}

int ActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  *dropped = std::exchange(TheState().dropped, 0);
  return kSuccess;
}

}  // namespace cupti
}  // namespace onnx_fp8::emulation
