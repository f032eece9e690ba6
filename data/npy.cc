// SPDX-License-Identifier: Apache-2.0
#include "data/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "data/arrays.h"

namespace onnx_fp8 {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kExtension = ".npy";
constexpr size_t kMaxRank = 64;  // NumPy's

struct Header {
  DType dtype = DType::kUndefined;
  bool swap = false;     // big-endian
  bool fortran = false;  // first axis varies fastest
  Shape shape;
};

// The header is a Python literal: {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), }. This reads exactly that part of Python.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where)
      : text_(text), where_(where) {}

  Header Parse() {
    Expect('{');
    while (!Accept('}')) {
      std::string key = String();
      Expect(':');
      if (key == "descr") {
        descr_ = Descr();
      } else if (key == "fortran_order") {
        fortran_ = Bool();
      } else if (key == "shape") {
        shape_ = Tuple();
      } else {
        Damaged();
      }
      if (!Accept(',')) {
        Expect('}');
        break;
      }
    }
    if (!descr_ || !fortran_ || !shape_) Damaged();
    Header header;
    header.fortran = *fortran_;
    header.shape = std::move(*shape_);
    SetDtype(*descr_, &header);
    return header;
  }

 private:
  [[noreturn]] void Damaged() const {
    Fail("[", where_,
         "] has a damaged .npy header, expected {'descr': …, 'fortran_order': "
         "…, 'shape': …}");
  }
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
      ++at_;
    }
  }
  bool Accept(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Accept(c)) Damaged();
  }
  std::string String() {
    char quote = Accept('\'') ? '\'' : '"';
    if (quote == '"') Expect('"');
    size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) Damaged();
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  std::string Descr() {
    SkipSpace();
    Check(at_ >= text_.size() || text_[at_] != '[', "[", where_,
          "] expected an array of numbers, got records");
    return String();
  }
  bool Bool() {
    SkipSpace();
    for (std::string_view word : {"True", "False"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    Damaged();
  }
  Shape Tuple() {
    Shape shape;
    Expect('(');
    while (!Accept(')')) {
      SkipSpace();
      int64_t size = -1;
      auto [end, error] = std::from_chars(text_.data() + at_,
                                          text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) Damaged();
      at_ = static_cast<size_t>(end - text_.data());
      Accept('L');  // Python 2 wrote 3L
      shape.push_back(size);
      if (shape.size() > kMaxRank) Damaged();
      if (!Accept(',')) {
        Expect(')');
        break;
      }
    }
    return shape;
  }
  void SetDtype(const std::string& descr, Header* header) const {
    Check(!descr.ends_with('O'), "[", where_,
          "] expected an array of numbers, got Python objects");
    constexpr std::string_view kOrders = "<>|=";
    if (!descr.empty() && kOrders.find(descr[0]) != std::string_view::npos) {
      for (const NumpyType& row : kNumpyTypes) {
        if (descr.substr(1) != row.code) continue;
        header->dtype = row.dtype;
        header->swap = descr[0] == '>';
        return;
      }
    }
    Fail("[", where_,
         "] expected float16, 32, 64, an integer type or bool, got dtype \"",
         descr, "\"");
  }

  std::string_view text_;
  size_t at_ = 0;
  const std::string& where_;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_;
  std::optional<Shape> shape_;
};

void SwapBytes(Tensor* t) {
  size_t width = ByteSize(t->dtype());
  uint8_t* bytes = static_cast<uint8_t*>(t->raw());
  for (size_t i = 0; i < t->bytes(); i += width) {
    std::reverse(bytes + i, bytes + i + width);
  }
}

// x holds its elements with the first axis fastest.
Tensor ToRowMajor(const Tensor& x) {
  Tensor y = Tensor::Allocate(x.dtype(), x.shape());
  size_t width = ByteSize(x.dtype());
  size_t rank = x.shape().size();
  std::vector<size_t> step(rank);  // in elements of x
  size_t product = 1;
  for (size_t axis = 0; axis < rank; ++axis) {
    step[axis] = product;
    product *= static_cast<size_t>(x.shape()[axis]);
  }
  const uint8_t* from = static_cast<const uint8_t*>(x.raw());
  uint8_t* to = static_cast<uint8_t*>(y.raw());
  std::vector<int64_t> index(rank, 0);
  size_t at = 0;  // element of x
  for (int64_t i = 0; i < y.size(); ++i) {
    std::memcpy(to, from + at * width, width);
    to += width;
    for (size_t axis = rank; axis-- > 0;) {
      at += step[axis];
      if (++index[axis] < x.shape()[axis]) break;
      at -= step[axis] * static_cast<size_t>(x.shape()[axis]);
      index[axis] = 0;
    }
  }
  return y;
}

Tensor ParseNpy(const Bytes& bytes, const std::string& where) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  Check(text.starts_with(kMagic) && text.size() >= 12, "[", where,
        "] expected an .npy array");
  int version = bytes.data[6];
  Check(version >= 1 && version <= 3, "[", where,
        "] expected .npy format 1 to 3, got ", version);
  uint32_t size = 0;
  std::memcpy(&size, bytes.data + 8, version == 1 ? 2 : 4);
  size_t start = version == 1 ? 10 : 12;
  Check(size <= bytes.size - start, "[", where,
        "] is truncated within its .npy header");
  Header header = HeaderParser(text.substr(start, size), where).Parse();
  Tensor t = ArrayFromBytes(header.dtype, header.shape, bytes.owner,
                            bytes.data + start + size,
                            bytes.size - start - size, where);
  bool transpose = header.fortran && header.shape.size() > 1;
  if (header.swap) {
    t = t.Clone();
    SwapBytes(&t);
  }
  return transpose ? ToRowMajor(t) : t;
}

}  // namespace

Tensor ReadNpy(const std::string& path) {
  MappedFile file = MapFile(path);
  uint8_t* data = reinterpret_cast<uint8_t*>(file.data);
  return ParseNpy({file.owner, data, file.size}, path);
}

NpzFile::NpzFile(const std::string& path, const Budgets& budgets)
    : path_(path), archive_(path), spending_(budgets) {
  for (const ZipMember& member : archive_.members()) {
    Check(member.name.ends_with(kExtension), "[", path, ": ", member.name,
          "] expected .npy arrays only");
    names_.push_back(
        member.name.substr(0, member.name.size() - kExtension.size()));
  }
}

Tensor NpzFile::Read(const std::string& name) {
  auto at = std::ranges::find(names_, name) - names_.begin();
  const ZipMember& member = archive_.members()[static_cast<size_t>(at)];
  std::string where = path_ + ": " + member.name;
  bool stored = member.method == 0;
  if (!stored) {
    auto bytes = static_cast<int64_t>(
        std::min(member.size, static_cast<uint64_t>(INT64_MAX)));
    spending_.Take(&Budgets::arrays, bytes, where);
  }
  return ParseNpy(archive_.Read(member), where);
}

TensorMap ReadNpz(const std::string& path, const Budgets& budgets) {
  NpzFile file(path, budgets);
  TensorMap arrays;
  for (const std::string& name : file.names()) arrays[name] = file.Read(name);
  return arrays;
}

}  // namespace onnx_fp8
