// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <iostream>
#include <streambuf>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "cli/flags.h"

namespace onnx_fp8 {
namespace {

thread_local CapturedOutput* captured = nullptr;

// Writes to `to` what a terminal may see.
class PrintableBuffer : public std::streambuf {
 public:
  explicit PrintableBuffer(std::ostream& to) : to_(to) {}

 protected:
  int overflow(int letter) override {
    if (letter == traits_type::eof()) return 0;
    const char one = static_cast<char>(letter);
    return xsputn(&one, 1) == 1 ? letter : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    text_.append(text, static_cast<size_t>(size));
    std::string_view rest;
    to_ << PrintableLines(text_, &rest);
    text_.erase(0, text_.size() - rest.size());
    return to_ ? size : 0;
  }
  int sync() override { return to_.flush() ? 0 : -1; }

 private:
  std::ostream& to_;
  std::string text_;  // less than a character
};

std::ostream& StandardOutput() {
  static PrintableBuffer buffer(std::cout);
  static std::ostream out(&buffer);
  return out;
}

void Tell(const char* kind, const std::string& text) {
  if (captured) {
    captured->Tell(Printable(text));
  } else {
    std::cerr << "onnx-fp8: " << kind << ": " << Printable(InFlags(text))
              << "\n";
  }
}

}  // namespace

std::ostream& Out() { return captured ? captured->stream() : StandardOutput(); }

std::ostream& ProgressOut() {
  thread_local std::ostream nowhere(nullptr);
  return captured ? nowhere : std::cerr;
}

void Note(const std::string& text) { Tell("note", text); }

void Notes(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) Note(text);
}

void Warn(const std::string& text) { Tell("warning", text); }

CapturedOutput::CapturedOutput(Listener listener)
    : listener_(std::move(listener)), before_(std::exchange(captured, this)) {}

CapturedOutput::~CapturedOutput() { captured = before_; }

}  // namespace onnx_fp8
