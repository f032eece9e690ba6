// SPDX-License-Identifier: Apache-2.0
//
// The program is linked with -no-pie: its addresses equal the addresses in its
// file.
#include "tests/cuda/emulation/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/shared_memory.h"

namespace onnx_fp8::emulation {
namespace {

struct Symbol {
  uintptr_t begin = 0;
  size_t bytes = 0;
  std::string_view name;
};

// Maps our own file, for good.
const char* MapProgram() {
  int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0) return nullptr;
  void* data = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ,
                    MAP_PRIVATE, file, 0);
  close(file);
  return data == MAP_FAILED ? nullptr : static_cast<const char*>(data);
}

std::vector<Symbol> ReadSymbols() {
  std::vector<Symbol> symbols;
  const char* file = MapProgram();
  if (!file) return symbols;
  auto header = reinterpret_cast<const Elf64_Ehdr*>(file);
  auto sections = reinterpret_cast<const Elf64_Shdr*>(file + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& section = sections[i];
    if (section.sh_type != SHT_SYMTAB) continue;
    auto table = reinterpret_cast<const Elf64_Sym*>(file + section.sh_offset);
    const char* names = file + sections[section.sh_link].sh_offset;
    for (size_t j = 0; j < section.sh_size / sizeof(Elf64_Sym); ++j) {
      if (table[j].st_size == 0) continue;
      symbols.push_back(
          {table[j].st_value, table[j].st_size, names + table[j].st_name});
    }
  }
  std::ranges::sort(symbols, {}, &Symbol::begin);
  return symbols;
}

const std::vector<Symbol>& Symbols() {
  static const auto& symbols = *new std::vector<Symbol>(ReadSymbols());
  return symbols;
}

const Symbol* SymbolAt(const void* code) {
  auto address = reinterpret_cast<uintptr_t>(code);
  auto next = std::ranges::upper_bound(Symbols(), address, {}, &Symbol::begin);
  if (next == Symbols().begin()) return nullptr;
  const Symbol& symbol = *std::prev(next);
  return address < symbol.begin + symbol.bytes ? &symbol : nullptr;
}

std::string Demangled(std::string_view name) {
  std::string mangled(name);
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (!text) return mangled;
  std::string result = text;
  std::free(text);
  return result;
}

// "void a::(anonymous namespace)::F<1>(int) [clone .cold]" → "F<1>"
std::string Short(std::string text) {
  for (std::string_view space : {"(anonymous namespace)::", "onnx_fp8::"}) {
    for (size_t at; (at = text.find(space)) != text.npos;) {
      text.erase(at, space.size());
    }
  }
  int depth = 0;
  size_t begin = 0, end = text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (depth > 0) continue;
    // Behind the type of the result, and behind each namespace.
    if (text[i] == ' ' || text[i] == ':') begin = i + 1;
    if (text[i] != '(') continue;
    end = i;
    break;
  }
  return text.substr(begin, end - begin);
}

// "sums.cu:31", or "". Where code is inlined, the place in the device language
// (device_*.h) means less than the one that uses it.
std::string LineOf(const void* code) {
  std::string command =
      Concat("addr2line -sie /proc/", getpid(), "/exe ", code, " 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return "";
  std::string best;
  char line[512];
  while (std::fgets(line, sizeof line, pipe)) {
    std::string text = line;
    text.erase(std::min(text.find_first_of(" \n"), text.size()));
    if (text.starts_with("?")) continue;
    if (best.empty() || best.starts_with("device_")) best = text;
  }
  pclose(pipe);
  return best;
}

}  // namespace

std::string FunctionName(const void* code) {
  static auto& known = *new std::map<const void*, std::string>;
  auto [at, is_new] = known.try_emplace(code);
  if (is_new) {
    const Symbol* symbol = SymbolAt(code);
    at->second = symbol ? Short(Demangled(symbol->name)) : Concat(code);
  }
  return at->second;
}

std::string SourceOf(const void* code) {
  std::string line = LineOf(code);
  return line.empty() ? FunctionName(code) : FunctionName(code) + " at " + line;
}

size_t StaticSharedBytes(const void* kernel) {
  const Symbol* symbol = SymbolAt(kernel);
  if (!symbol || !symbol->name.starts_with("_Z")) return 0;
  // A static variable of the function _Zxxx is called _ZZxxxE….
  std::string prefix = Concat("_ZZ", symbol->name.substr(2), "E");
  auto begin = reinterpret_cast<uintptr_t>(SharedBegin());
  auto at = std::ranges::lower_bound(Symbols(), begin, {}, &Symbol::begin);
  size_t bytes = 0;
  for (; at != Symbols().end() &&
         at->begin < reinterpret_cast<uintptr_t>(SharedEnd());
       ++at) {
    if (at->name.starts_with(prefix)) bytes += at->bytes;
  }
  return bytes;
}

}  // namespace onnx_fp8::emulation
