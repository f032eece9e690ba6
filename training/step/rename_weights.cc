// SPDX-License-Identifier: Apache-2.0
#include "training/step/rename_weights.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

// A name with its stars taken out: the texts between them.
using Pieces = std::vector<std::string>;

Pieces PiecesOf(const std::string& glob) {
  Pieces pieces(1);
  for (const char c : glob) {
    if (c == '*') {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

struct Rename {
  std::string text;
  Pieces from, to;
  bool used = false;
};

Rename RenameIn(const std::string& text) {
  const size_t cut = text.find('=');
  const bool whole =
      cut != std::string::npos && cut > 0 && cut + 1 < text.size();
  Rename rename = {text};
  if (whole) {
    rename.from = PiecesOf(text.substr(0, cut));
    rename.to = PiecesOf(text.substr(cut + 1));
  }
  if (!whole || rename.to.size() > rename.from.size()) {
    throw OptionError(
        "`rename`: expected OLD=NEW with no more * in NEW than in OLD, as in "
        "model.*=*, got \"" +
        text + "\"");
  }
  return rename;
}

// The texts that the stars stand for; nothing: the name does not match.
std::optional<Pieces> Stars(const Pieces& pieces, const std::string& name) {
  const std::string &first = pieces.front(), &last = pieces.back();
  if (pieces.size() == 1) {
    return name == first ? std::optional<Pieces>(Pieces{}) : std::nullopt;
  }
  if (name.size() < first.size() + last.size() || !name.starts_with(first) ||
      !name.ends_with(last)) {
    return std::nullopt;
  }
  const size_t end = name.size() - last.size();
  size_t at = first.size();
  Pieces stars;
  for (size_t i = 1; i + 1 < pieces.size(); ++i) {
    const size_t found = name.find(pieces[i], at);
    if (found == std::string::npos || found + pieces[i].size() > end) {
      return std::nullopt;
    }
    stars.push_back(name.substr(at, found - at));
    at = found + pieces[i].size();
  }
  stars.push_back(name.substr(at, end - at));
  return stars;
}

std::string NewName(const std::string& name, std::vector<Rename>* renames) {
  for (Rename& rename : *renames) {
    const std::optional<Pieces> stars = Stars(rename.from, name);
    if (!stars) continue;
    rename.used = true;
    std::string renamed = rename.to.front();
    for (size_t i = 1; i < rename.to.size(); ++i) {
      renamed += (*stars)[i - 1] + rename.to[i];
    }
    return renamed;
  }
  return name;
}

}  // namespace

void RenameWeights(const std::vector<std::string>& renames,
                   const std::string& path, StoredWeights* weights) {
  if (renames.empty()) return;
  std::vector<Rename> list;
  for (const std::string& text : renames) list.push_back(RenameIn(text));
  StoredWeights renamed;
  for (auto& [name, weight] : *weights) {
    const std::string own = NewName(name, &list);
    const auto [at, added] = renamed.emplace(own, std::move(weight));
    Check(added, "[", path, "] `rename` gives ", at->second.name, " and ", name,
          " one name, ", own);
  }
  for (const Rename& rename : list) {
    Check(rename.used, "[", path, "] `rename` ", rename.text,
          " matches no tensor");
  }
  *weights = std::move(renamed);
}

void CheckRenames(const std::vector<std::string>& renames) {
  for (const std::string& text : renames) RenameIn(text);
}

}  // namespace onnx_fp8
