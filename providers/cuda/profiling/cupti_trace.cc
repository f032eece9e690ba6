// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/profiling/cupti_trace.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "providers/cuda/profiling/cupti.h"

namespace onnx_fp8::cuda {
namespace {

constexpr CuptiKind kRecordKinds[] = {kCuptiConcurrentKernel, kCuptiMemcpy,
                                      kCuptiMemset};
constexpr size_t kBufferBytes = size_t{1} << 20;

void CheckCupti(int result, const char* call) {
  if (result == kCuptiSuccess) return;
  const char* text = nullptr;
  CuptiFunctions().GetResultString(result, &text);
  Fail("[provider cuda] ", call, ": ", text ? text : "unknown error");
}

template <typename T>
T FieldAt(const void* record, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(record) + offset, sizeof value);
  return value;
}

std::string Demangled(const char* name) {
  if (!name) return "a kernel without a name";
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

// CUpti_ActivityMemcpyKind.
const char* CopyName(uint8_t kind) {
  switch (kind) {
    case 1:
      return "host to device";
    case 2:
      return "device to host";
    case 8:
      return "device to device";
    default:
      return "a copy";
  }
}

Activity TimesOf(const void* record, WorkKind kind, const CuptiLayout& layout) {
  return {.kind = kind,
          .name = "",
          .begin = FieldAt<int64_t>(record, layout.begin),
          .end = FieldAt<int64_t>(record, layout.end),
          .stream = FieldAt<uint32_t>(record, layout.stream),
          .launch = FieldAt<uint32_t>(record, layout.correlation),
          .recorded = FieldAt<uint32_t>(record, layout.graph_id) != 0};
}

Activity ActivityOf(const void* record) {
  Activity activity;
  switch (FieldAt<uint32_t>(record, 0)) {
    case kCuptiConcurrentKernel:
      activity = TimesOf(record, WorkKind::kKernel, kCuptiKernelLayout);
      activity.name = Demangled(FieldAt<const char*>(record, kCuptiKernelName));
      break;
    case kCuptiMemcpy:
      activity = TimesOf(record, WorkKind::kCopy, kCuptiCopyLayout);
      activity.name = CopyName(FieldAt<uint8_t>(record, kCuptiCopyKind));
      break;
    case kCuptiMemset:
      activity = TimesOf(record, WorkKind::kClear, kCuptiClearLayout);
      activity.name = "a clear";
      break;
  }
  return activity;
}

// The only object of the process: CUPTI calls its static functions, from
// threads of its own, and passes no pointer of ours to them.
class Trace : public ActivityTrace {
 public:
  static Trace& Get() {
    static auto& trace = *new Trace;  // CUPTI may call it as the process ends
    return trace;
  }

  int64_t Now() override {
    uint64_t now = 0;
    CheckCupti(CuptiFunctions().GetTimestamp(&now), "cuptiGetTimestamp");
    return static_cast<int64_t>(now);
  }

  void Begin() override {
    Flush();
    std::lock_guard lock(mutex_);
    list_.clear();
    lost_ = 0;
    keeps_ = true;
  }

  std::vector<Activity> End() override {
    Flush();
    for (CuptiKind kind : kRecordKinds) {
      CheckCupti(CuptiFunctions().ActivityDisable(kind),
                 "cuptiActivityDisable");
    }
    std::lock_guard lock(mutex_);
    keeps_ = false;
    return std::exchange(list_, {});
  }

  int64_t Lost() const override {
    std::lock_guard lock(mutex_);
    return lost_;
  }

  // Starts the records, for the first time or again after End.
  void Enable() {
    for (CuptiKind kind : kRecordKinds) {
      CheckCupti(CuptiFunctions().ActivityEnable(kind), "cuptiActivityEnable");
    }
  }

 private:
  Trace() {
    CheckCupti(CuptiFunctions().ActivityRegisterCallbacks(NewBuffer, Complete),
               "cuptiActivityRegisterCallbacks");
  }

  static void NewBuffer(uint8_t** buffer, size_t* size, size_t* most_records) {
    *buffer =
        static_cast<uint8_t*>(std::aligned_alloc(kCuptiAlign, kBufferBytes));
    *size = *buffer ? kBufferBytes : 0;
    *most_records = 0;  // as many as fit
  }

  static void Complete(void* context, uint32_t stream, uint8_t* buffer,
                       size_t /*size*/, size_t valid) {
    Get().Read(context, stream, buffer, valid);
    std::free(buffer);
  }

  void Read(void* context, uint32_t stream, uint8_t* buffer, size_t valid) {
    const Cupti& cupti = CuptiFunctions();
    std::lock_guard lock(mutex_);
    size_t dropped = 0;
    cupti.ActivityGetNumDroppedRecords(context, stream, &dropped);
    if (!keeps_) return;
    lost_ += static_cast<int64_t>(dropped);
    void* record = nullptr;
    while (valid > 0 && cupti.ActivityGetNextRecord(buffer, valid, &record) ==
                            kCuptiSuccess) {
      list_.push_back(ActivityOf(record));
    }
  }

  void Flush() {
    CheckCupti(CuptiFunctions().ActivityFlushAll(0), "cuptiActivityFlushAll");
  }

  mutable std::mutex mutex_;
  bool keeps_ = false;
  std::vector<Activity> list_;
  int64_t lost_ = 0;
};

}  // namespace

ActivityTrace& CuptiTrace() {
  Trace::Get().Enable();
  return Trace::Get();
}

}  // namespace onnx_fp8::cuda
