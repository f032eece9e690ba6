// SPDX-License-Identifier: Apache-2.0
#include "collectives/job_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "collectives/hmac.h"
#include "collectives/tcp.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLeastCharacters = 16;
constexpr char kMakesOne[] =
    "`head -c 32 /dev/urandom | base64` makes one, and each rank needs the "
    "same in its variable ONNX_FP8_JOB_SECRET";

std::string Drawn() {
  std::string text;
  for (const unsigned char byte : RandomCode()) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

}  // namespace

std::string CheckedSecret(const std::string& source, std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  const std::string secret(text.substr(0, end + 1));
  Check(secret.size() >= kLeastCharacters, "[", source, "] expected at least ",
        kLeastCharacters, " characters of a secret, got ", secret.size(), ": ",
        kMakesOne);
  return secret;
}

JobSecret::JobSecret(const Launcher& launcher, const SecretChoice& choice) {
  if (!choice.given.empty()) {
    secret_ = choice.given;
  } else if (!choice.insecure && !choice.folder.empty()) {
    // Jobs that start in one folder at a time do not meet in it.
    file_ = Concat(choice.folder, "/job_secret_", launcher.meeting->port);
    if (launcher.rank == 0) Leave(choice.folder);
  } else {
    Check(choice.insecure || IsLoopback(launcher.meeting->host),
          "[MASTER_ADDR] expected a secret of the ranks, as they meet on a "
          "network, at ",
          launcher.meeting->host, ", got none: ", kMakesOne,
          "; `insecure` trusts whoever reaches the port");
  }
}

JobSecret::~JobSecret() {
  if (!ours_) return;
  unlink(file_.c_str());
  for (const std::string& folder : made_) rmdir(folder.c_str());
}

void JobSecret::Leave(const std::string& folder) {
  secret_ = Drawn();
  std::error_code none;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, none);
       path = path.parent_path()) {
    made_.push_back(path.string());
  }
  ours_ = true;
  try {
    MakeDirectories(folder);
    const std::string temporary = TemporaryName(file_);
    unlink(temporary.c_str());
    const Descriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    Check(file.get() >= 0 && fchmod(file.get(), 0600) == 0 &&
              write(file.get(), secret_.data(), secret_.size()) ==
                  static_cast<ssize_t>(secret_.size()) &&
              fsync(file.get()) == 0,
          "[", temporary, "] expected to write the job's secret, got ",
          std::strerror(errno));
    RenamePath(temporary, file_);
  } catch (...) {
    unlink(TemporaryName(file_).c_str());
    for (const std::string& made : made_) rmdir(made.c_str());
    throw;
  }
}

std::optional<std::string> JobSecret::Read() const {
  if (file_.empty() || ours_) return secret_;
  // No link, and nothing that waits.
  const Descriptor file(
      open(file_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts;
  if (file.get() < 0 || fstat(file.get(), &facts) != 0 ||
      !S_ISREG(facts.st_mode)) {
    return std::nullopt;
  }
  char text[128];
  const ssize_t got = read(file.get(), text, sizeof text);
  if (got < static_cast<ssize_t>(kLeastCharacters)) return std::nullopt;
  return std::string(text, static_cast<size_t>(got));
}

}  // namespace onnx_fp8
