// SPDX-License-Identifier: Apache-2.0
//
// The format is that of TensorFlow: records as in its page "TFRecord and
// tf.train.Example", each an Event of tensorflow/core/util/event.proto, with a
// Summary of tensorflow/core/framework/summary.proto.
#include "training/run/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"

namespace onnx_fp8 {
namespace {

constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";
constexpr size_t kSecondsDigits = 10;

// Fields of the messages.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
constexpr int kSessionLog = 7;
constexpr int kStatus = 1;  // of SessionLog
constexpr uint64_t kStart = 1;
constexpr int kValue = 1;  // of Summary
enum ValueField { kTag = 1, kSimpleValue = 2 };

constexpr auto kCrc32cTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
    table[i] = crc;
  }
  return table;
}();

// The lowest `size` bytes of `value`, the lowest one first.
std::string LittleEndian(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return bytes;
}

// A message in the wire format of Protocol Buffers.
class WireMessage {
 public:
  void AddInteger(int field, uint64_t value) {
    AddKey(field, 0);
    AddVarint(value);
  }
  void AddDouble(int field, double value) {
    AddKey(field, 1);
    bytes_ += LittleEndian(std::bit_cast<uint64_t>(value), 8);
  }
  void AddFloat(int field, float value) {
    AddKey(field, 5);
    bytes_ += LittleEndian(std::bit_cast<uint32_t>(value), 4);
  }
  void AddBytes(int field, std::string_view value) {
    AddKey(field, 2);
    AddVarint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void AddKey(int field, int type) {
    AddVarint(static_cast<uint64_t>(field << 3 | type));
  }
  void AddVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// A record's checksum, which differs from one that its data may hold.
std::string MaskedCrc32c(std::string_view bytes) {
  return LittleEndian(std::rotr(Crc32c(bytes), 15) + 0xa282ead8u, 4);
}

double SecondsNow() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

WireMessage EventOf(double wall_time, int64_t step) {
  WireMessage event;
  event.AddDouble(kWallTime, wall_time);
  event.AddInteger(kStep, static_cast<uint64_t>(step));
  return event;
}

// The records with which a file begins.
std::string HeadOf(int64_t next_step) {
  const double now = SecondsNow();
  WireMessage version = EventOf(now, 0);
  version.AddBytes(kFileVersion, "brain.Event:2");
  WireMessage log;
  log.AddInteger(kStatus, kStart);
  WireMessage start = EventOf(now, next_step);
  start.AddBytes(kSessionLog, log.bytes());
  return TfRecord(version.bytes()) + TfRecord(start.bytes());
}

// The time in the name of a file of events; -1 if it has none.
int64_t SecondsIn(std::string_view name) {
  int64_t seconds = -1;
  if (name.starts_with(kEventFilePrefix)) {
    const std::string_view rest = name.substr(kEventFilePrefix.size());
    const char* end = rest.data() + std::min(rest.size(), kSecondsDigits);
    std::from_chars(rest.data(), end, seconds);
  }
  return seconds;
}

// A new name in the folder, which is made unless it exists. The name lies
// behind the names of the others: two starts may lie in one second, and clocks
// may be set back.
std::string NewEventFileIn(const std::string& folder) {
  MakeDirectories(folder);
  int64_t seconds = static_cast<int64_t>(SecondsNow());
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    seconds = std::max(seconds, SecondsIn(name) + 1);
  }
  std::string digits = std::to_string(seconds);
  if (digits.size() < kSecondsDigits) {
    digits.insert(0, kSecondsDigits - digits.size(), '0');
  }
  char host[256] = "";
  if (gethostname(host, sizeof(host) - 1) != 0 || !*host) {
    std::snprintf(host, sizeof(host), "localhost");
  }
  return Concat(folder, "/", kEventFilePrefix, digits, ".", host, ".",
                getpid());
}

// A second copy of a tensor in FP8 has a tag of its own.
std::string TagOf(const MeasuredCast& cast) {
  return Concat("casts/", cast.fqn, "/", cast.gemm, "/", cast.operand,
                cast.use > 1 ? Concat(".", cast.use) : "", "/");
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc = kCrc32cTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ crc >> 8;
  }
  return ~crc;
}

std::string TfRecord(std::string_view data) {
  const std::string length = LittleEndian(data.size(), 8);
  return Concat(length, MaskedCrc32c(length), data, MaskedCrc32c(data));
}

void CheckEventFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  const std::string expected =
      Concat("[", folder, "] expected a folder for files of TensorBoard, ");
  std::error_code error;
  fs::path at = fs::absolute(folder, error);
  while (at.has_relative_path() && !PathExists(at.string())) {
    at = at.parent_path();
  }
  Check(IsFolder(at.string()), expected, "got a file: ", at.string());
  const bool writable = access(at.c_str(), W_OK | X_OK) == 0;
  Check(writable, expected, "got one in ", at.string(),
        ", which can't be written: ", std::generic_category().message(errno));
}

EventFile::EventFile(const std::string& folder, int64_t last_step)
    : file_(NewEventFileIn(folder), /*is_new=*/true),
      head_(HeadOf(last_step + 1)) {}

void EventFile::Append(const StepMetrics& metrics) {
  Scalars scalars = {{"loss", metrics.loss}};
  const bool unknown = metrics.grad_norm < 0;
  if (!unknown) scalars.emplace_back("grad_norm", metrics.grad_norm);
  if (metrics.loss_scale > 0) {
    scalars.emplace_back("loss_scale", metrics.loss_scale);
  }
  if (metrics.update_amax >= 0) {
    scalars.emplace_back("update_amax", metrics.update_amax);
  }
  scalars.emplace_back("lr", metrics.lr);
  scalars.emplace_back("samples_per_second", metrics.samples_per_second);
  if (metrics.tokens_per_second) {
    scalars.emplace_back("tokens_per_second", *metrics.tokens_per_second);
  }
  Append(metrics.step, scalars);
}

void EventFile::Append(const ValidationMetrics& metrics) {
  Scalars scalars = {{"val_loss", metrics.val_loss}};
  if (metrics.val_accuracy) {
    scalars.emplace_back("val_accuracy", *metrics.val_accuracy);
  }
  if (metrics.val_perplexity) {
    scalars.emplace_back("val_perplexity", *metrics.val_perplexity);
  }
  for (const auto& [name, value] : metrics.measures) {
    scalars.emplace_back("val_" + name, value);
  }
  Append(metrics.step, scalars);
}

void EventFile::Append(const CastMetrics& metrics) {
  const CastStatistics& n = metrics.cast.numbers;
  const std::string tag = TagOf(metrics.cast);
  Scalars scalars = {{tag + "amax", n.amax},
                     {tag + "flushed", n.Share(n.flushed)}};
  if (!metrics.cast.is_product()) {
    scalars.emplace_back(tag + "saturated", n.Share(n.saturated));
  }
  if (std::isfinite(n.Sqnr())) scalars.emplace_back(tag + "sqnr", n.Sqnr());
  Append(metrics.step, scalars);
}

void EventFile::Append(int64_t step, const Scalars& scalars) {
  WireMessage summary;
  for (const auto& [tag, number] : scalars) {
    WireMessage value;
    value.AddBytes(kTag, Printable(tag));  // readers insist on UTF-8
    value.AddFloat(kSimpleValue, static_cast<float>(number));
    summary.AddBytes(kValue, value.bytes());
  }
  WireMessage event = EventOf(SecondsNow(), step);
  event.AddBytes(kSummary, summary.bytes());
  file_.Append(head_ + TfRecord(event.bytes()));
  head_.clear();
}

}  // namespace onnx_fp8
