// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/speed_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/shallow_json.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kProducts[] = "onnx_fp8 gemm speeds 1";
constexpr char kLayers[] = "onnx_fp8 layer speedups 1";

// The two entries of an axis between which a size lies, and how near it is to
// the second.
struct Place {
  size_t low, high;
  double share;
};

Place Locate(const std::vector<int64_t>& axis, int64_t size) {
  auto above = std::ranges::upper_bound(axis, size);
  if (above == axis.begin()) return {0, 0, 0};
  auto high = static_cast<size_t>(above - axis.begin());
  if (above == axis.end()) return {high - 1, high - 1, 0};
  auto log = [](int64_t x) { return std::log2(static_cast<double>(x)); };
  double from = log(axis[high - 1]);
  return {high - 1, high, (log(size) - from) / (log(axis[high]) - from)};
}

struct H100Row {
  int64_t m, k;
  double speedup[6];
};

constexpr H100Row kH100Rowwise[] = {
#include "onnx_fp8/h100_rowwise.inc"
};

SpeedTable H100() {
  SpeedTable table;
  table.source = "h100";
  SpeedGrid& grid = table.speedup;
  auto add = [](std::vector<int64_t>& axis, int64_t size) {
    if (axis.empty() || axis.back() < size) axis.push_back(size);
  };
  for (const H100Row& row : kH100Rowwise) {
    add(grid.m, row.m);
    add(grid.k, row.k);
    grid.values.insert(grid.values.end(), std::begin(row.speedup),
                       std::end(row.speedup));
  }
  grid.n = {1024, 2048, 4096, 8192, 16384, 32768};
  return table;
}

std::vector<int64_t> ReadSizes(const Json& json) {
  auto sizes = json.get<std::vector<int64_t>>();
  bool ascending =
      std::ranges::adjacent_find(sizes, std::greater_equal<>()) == sizes.end();
  Check(!sizes.empty() && sizes[0] >= 1 && ascending,
        "expected sizes that ascend from at least 1");
  return sizes;
}

// `what` says what the numbers are: "speeds of fp8".
SpeedGrid ReadGrid(const Json& json, const SpeedGrid& sizes, const char* what) {
  SpeedGrid grid = sizes;
  grid.values = json.get<std::vector<double>>();
  size_t cells = grid.m.size() * grid.k.size() * grid.n.size();
  Check(grid.values.size() == cells, "expected ", cells, " ", what, ", got ",
        grid.values.size());
  for (double value : grid.values) {
    Check(value > 0, "expected ", what, " above 0, got ", value);
  }
  return grid;
}

SpeedGrid ReadProducts(const Json& json, const SpeedGrid& sizes,
                       const std::string& dtype) {
  SpeedGrid grid = ReadGrid(json.at("gflops").at(dtype), sizes,
                            ("speeds of " + dtype).c_str());
  for (double& value : grid.values) value *= 1e9;
  return grid;
}

SpeedTable Read(const Json& json) {
  const Json& format = json.at("format");
  Check(format == kProducts || format == kLayers, "expected the format \"",
        kProducts, "\" or \"", kLayers, "\"");
  SpeedGrid sizes;
  sizes.m = ReadSizes(json.at("m"));
  sizes.k = ReadSizes(json.at("k"));
  sizes.n = ReadSizes(json.at("n"));
  SpeedTable table;
  if (format == kLayers) {
    table.speedup = ReadGrid(json.at("speedup"), sizes, "speed-ups");
    return table;
  }
  table.fp32 = ReadProducts(json, sizes, "fp32");
  table.fp8 = ReadProducts(json, sizes, "fp8");
  table.quantize = json.at("quantize_gigaelements").get<double>() * 1e9;
  Check(table.quantize > 0, "expected a speed of quantizing above 0");
  return table;
}

Json GigaFlops(const SpeedGrid& grid) {
  Json values = Json::array();
  for (double value : grid.values) values.push_back(value / 1e9);
  return values;
}

}  // namespace

double SpeedGrid::At(int64_t m_size, int64_t k_size, int64_t n_size) const {
  Place a = Locate(m, m_size), b = Locate(k, k_size), c = Locate(n, n_size);
  double sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    double share = 1;
    auto pick = [&](const Place& place, int bit) {
      bool high = (corner >> bit & 1) != 0;
      share *= high ? place.share : 1 - place.share;
      return high ? place.high : place.low;
    };
    size_t i = pick(a, 0), j = pick(b, 1), l = pick(c, 2);
    if (share != 0) sum += share * values[(i * k.size() + j) * n.size() + l];
  }
  return sum;
}

SpeedTable LoadSpeedTable(const std::string& source) {
  if (source == "h100") return H100();
  MappedFile file = MapFile(source);
  const char* begin = reinterpret_cast<const char*>(file.data);
  const std::string what = "[" + source + "] expected what `bench()` saves";
  // Depth 3: the table, a kind of numbers, a dtype, a number.
  Json json = ParseShallowJson<Json>(begin, file.size, 3, what);
  try {
    SpeedTable table = Read(json);
    table.source = source;
    return table;
  } catch (const nlohmann::json::exception&) {
    Fail(what, ", got something else");
  } catch (const Error& error) {
    Fail(what, ": ", error.what());
  }
}

std::string SpeedTableJson(const SpeedTable& table, const SpeedOrigin& origin) {
  bool layers = table.of_layers();
  Json json = {{"format", layers ? kLayers : kProducts}};
  for (auto [name, text] : {std::pair{"machine", &origin.machine},
                            {"benchmark", &origin.benchmark},
                            {"recipe", &origin.recipe},
                            {"dtype", &origin.dtype}}) {
    if (!text->empty()) json[name] = *text;
  }
  const SpeedGrid& sizes = layers ? table.speedup : table.fp32;
  json["m"] = sizes.m;
  json["k"] = sizes.k;
  json["n"] = sizes.n;
  if (layers) {
    json["speedup"] = table.speedup.values;
  } else {
    json["gflops"] = {{"fp32", GigaFlops(table.fp32)},
                      {"fp8", GigaFlops(table.fp8)}};
    json["quantize_gigaelements"] = table.quantize / 1e9;
  }
  return json.dump() + "\n";
}

}  // namespace onnx_fp8
