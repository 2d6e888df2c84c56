#include "wings/xla/record/stablehlo/text.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/accumulate.h>

#include <bit>
#include <cstdio>

#include "base/fail.h"
#include "base/short_dtype.h"

namespace cohort::record::stablehlo {

namespace {

template <typename T>
std::string joined(const std::vector<T>& items, const char* between = ", ") {
  std::string text;
  for (const T& item : items) {
    if (!text.empty()) text += between;
    if constexpr (std::is_same_v<T, std::string>) {
      text += item;
    } else {
      text += std::to_string(item);
    }
  }
  return text;
}

std::string hexadecimal(uint64_t bits, int digits) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%0*llX", digits, static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace

std::string element_of(torch::ScalarType dtype) {
  const std::string_view element = short_dtype(dtype);
  if (element.empty()) refuse_dtype(dtype);
  return std::string(element);
}

void refuse_dtype(torch::ScalarType dtype) {
  fail<Unimplemented>("[record] tensors of ", dtype, " have no form in StableHLO; use a real or integer dtype");
}

bool is_float(std::string_view element) {
  return element[0] == 'f' || element[0] == 'b';
}
bool is_integer(std::string_view element) {
  return !is_float(element) && element != "i1";
}

std::string type_text(const Dims& sizes, const std::string& element) {
  std::string text = "tensor<";
  for (const int64_t size : sizes) text += std::to_string(size) + "x";
  return text + element + ">";
}
std::string type_text(const Operand& operand) {
  return type_text(operand.sizes, operand.element);
}
std::string list_text(const Dims& values) {
  return "[" + joined(values) + "]";
}
std::string array_text(const Dims& values) {
  return values.empty() ? "array<i64>" : "array<i64: " + joined(values) + ">";
}

std::string literal_of(int64_t value) {
  return std::to_string(value);
}

std::string literal(double value, const std::string& element) {
  if (element == "f32") return hexadecimal(std::bit_cast<uint32_t>(static_cast<float>(value)), 8);
  if (element == "f64") return hexadecimal(std::bit_cast<uint64_t>(value), 16);
  if (element == "f16") return hexadecimal(c10::Half(static_cast<float>(value)).x, 4);
  if (element == "bf16") return hexadecimal(c10::BFloat16(static_cast<float>(value)).x, 4);
  if (element == "i1") return value != 0.0 ? "true" : "false";
  return std::to_string(static_cast<int64_t>(value));
}

int64_t numel(const Dims& sizes) {
  return c10::multiply_integers(sizes);
}

Dims repeated(Dims list, int64_t n) {
  if (list.size() == 1) list.resize(static_cast<std::size_t>(n), list[0]);
  return list;
}

Dims all_dims(int64_t rank) {
  return other_dims(rank, {});
}

Dims other_dims(int64_t rank, const Dims& dims) {
  Dims others;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) others.push_back(d);
  }
  return others;
}

WindowDims::WindowDims(int64_t rank)
    : size(static_cast<std::size_t>(rank), 1),
      stride(size),
      low(size.size(), 0),
      high(low),
      base_dilation(size),
      dilation(size) {}

Operand Text::emit(const std::string& rhs, Dims sizes, std::string element) {
  Operand result{next_name(), std::move(sizes), std::move(element)};
  body_ += "    " + result.name + " = " + rhs + " loc(\"" + location_ + "\")\n";
  return result;
}

std::vector<Operand> Text::emit_several(const std::string& rhs, std::vector<Operand> results) {
  const std::string name = next_name();
  for (std::size_t i = 0; i < results.size(); ++i) results[i].name = name + "#" + std::to_string(i);
  body_ += "    " + name + ":" + std::to_string(results.size()) + " = " + rhs + " loc(\"" + location_ + "\")\n";
  return results;
}

Operand Text::constant(double value, const Dims& sizes, const std::string& element) {
  return emit("stablehlo.constant dense<" + literal(value, element) + "> : " + type_text(sizes, element), sizes,
              element);
}

Operand Text::integer(int64_t value, const Dims& sizes, const std::string& element) {
  return emit("stablehlo.constant dense<" + std::to_string(value) + "> : " + type_text(sizes, element), sizes, element);
}

Operand Text::iota(int64_t dim, const Dims& sizes, const std::string& element) {
  return emit("stablehlo.iota dim = " + std::to_string(dim) + " : " + type_text(sizes, element), sizes, element);
}

Operand Text::convert(const Operand& x, const std::string& element) {
  if (x.element == element) return x;
  if (element == "i1") return compare("NE", x, constant(0.0, x.sizes, x.element));
  return emit("stablehlo.convert " + x.name + " : (" + type_text(x) + ") -> " + type_text(x.sizes, element), x.sizes,
              element);
}

Operand Text::bitcast(const Operand& x, const std::string& element) {
  return emit("stablehlo.bitcast_convert " + x.name + " : (" + type_text(x) + ") -> " + type_text(x.sizes, element),
              x.sizes, element);
}

Operand Text::unary(const std::string& op, const Operand& x) {
  const bool of_chlo = op.rfind("chlo.", 0) == 0;
  if (op == "is_finite")
    return emit("stablehlo.is_finite " + x.name + " : (" + type_text(x) + ") -> " + type_text(x.sizes, "i1"), x.sizes,
                "i1");
  if (of_chlo) return emit(op + " " + x.name + " : " + type_text(x) + " -> " + type_text(x), x.sizes, x.element);
  return emit("stablehlo." + op + " " + x.name + " : " + type_text(x), x.sizes, x.element);
}

Operand Text::binary(const std::string& op, const Operand& a, const Operand& b) {
  if (a.sizes != b.sizes || a.element != b.element) {
    fail<Internal>("[record] ", op, " got ", type_text(a), " and ", type_text(b), " in the lowering of ", location_,
                   ", wanted equal types");
  }
  return emit("stablehlo." + op + " " + a.name + ", " + b.name + " : " + type_text(a), a.sizes, a.element);
}

Operand Text::compare(const std::string& direction, const Operand& a, const Operand& b) {
  return emit("stablehlo.compare " + direction + ", " + a.name + ", " + b.name + " : (" + type_text(a) + ", " +
                  type_text(b) + ") -> " + type_text(a.sizes, "i1"),
              a.sizes, "i1");
}

Operand Text::select(const Operand& condition, const Operand& a, const Operand& b) {
  return emit("stablehlo.select " + condition.name + ", " + a.name + ", " + b.name + " : " + type_text(condition) +
                  ", " + type_text(a),
              a.sizes, a.element);
}

Operand Text::reshape(const Operand& x, const Dims& sizes) {
  if (x.sizes == sizes) return x;
  return emit("stablehlo.reshape " + x.name + " : (" + type_text(x) + ") -> " + type_text(sizes, x.element), sizes,
              x.element);
}

Operand Text::transpose(const Operand& x, const Dims& permutation) {
  if (permutation == all_dims(x.rank())) return x;
  Dims sizes;
  for (const int64_t d : permutation) sizes.push_back(x.size(d));
  Operand result = emit("stablehlo.transpose " + x.name + ", dims = " + list_text(permutation) + " : (" + type_text(x) +
                            ") -> " + type_text(sizes, x.element),
                        sizes, x.element);
  if (permutation == Dims{1, 0}) transposed_.emplace(result.name, x);
  return result;
}

Operand Text::broadcast(const Operand& x, const Dims& sizes, const Dims& dims) {
  if (x.sizes == sizes) return x;
  return emit("stablehlo.broadcast_in_dim " + x.name + ", dims = " + list_text(dims) + " : (" + type_text(x) + ") -> " +
                  type_text(sizes, x.element),
              sizes, x.element);
}

Operand Text::expand(const Operand& x, const Dims& sizes) {
  const int64_t skipped = static_cast<int64_t>(sizes.size()) - x.rank();
  Dims dims;
  for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(d + skipped);
  return broadcast(x, sizes, dims);
}

Operand Text::slice(const Operand& x, const Dims& begin, const Dims& end, const Dims& step) {
  Dims sizes;
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < begin.size(); ++d) {
    sizes.push_back((end[d] - begin[d] + step[d] - 1) / step[d]);
    ranges.push_back(std::to_string(begin[d]) + ":" + std::to_string(end[d]) + ":" + std::to_string(step[d]));
  }
  if (sizes == x.sizes) return x;
  return emit("stablehlo.slice " + x.name + " [" + joined(ranges) + "] : (" + type_text(x) + ") -> " +
                  type_text(sizes, x.element),
              sizes, x.element);
}

Operand Text::pad(const Operand& x, const Operand& value, const Dims& low, const Dims& high, const Dims& interior) {
  Dims sizes;
  for (std::size_t d = 0; d < low.size(); ++d) {
    sizes.push_back(x.sizes[d] + low[d] + high[d] + std::max<int64_t>(x.sizes[d] - 1, 0) * interior[d]);
  }
  return emit("stablehlo.pad " + x.name + ", " + value.name + ", low = " + list_text(low) +
                  ", high = " + list_text(high) + ", interior = " + list_text(interior) + " : (" + type_text(x) + ", " +
                  type_text(value) + ") -> " + type_text(sizes, x.element),
              sizes, x.element);
}

Operand Text::concatenate(const std::vector<Operand>& list, int64_t dim) {
  if (list.size() == 1) return list[0];
  Dims sizes = list[0].sizes;
  sizes[static_cast<std::size_t>(dim)] = 0;
  std::vector<std::string> names;
  std::vector<std::string> types;
  for (const Operand& x : list) {
    sizes[static_cast<std::size_t>(dim)] += x.size(dim);
    names.push_back(x.name);
    types.push_back(type_text(x));
  }
  return emit("stablehlo.concatenate " + joined(names) + ", dim = " + std::to_string(dim) + " : (" + joined(types) +
                  ") -> " + type_text(sizes, list[0].element),
              sizes, list[0].element);
}

Operand Text::reverse(const Operand& x, const Dims& dims) {
  if (dims.empty()) return x;
  return emit("stablehlo.reverse " + x.name + ", dims = " + list_text(dims) + " : " + type_text(x), x.sizes, x.element);
}

// XLA's partitioner makes a wrong dynamic_update_slice of one whose operand is cut in two dimensions, into parts of
// different sizes, and is then read by the gradient of a convolution's kernel. A choice between two whole values is
// divided rightly.
Operand Text::put_by_choice(const Operand& x, const Operand& update, const Dims& begin) {
  Dims high;
  for (std::size_t d = 0; d < begin.size(); ++d) high.push_back(x.sizes[d] - update.sizes[d] - begin[d]);
  const Dims none(begin.size(), 0);
  const Operand spread = pad(update, constant(0.0, {}, x.element), begin, high, none);
  const Operand inside = pad(integer(1, update.sizes, "i1"), integer(0, {}, "i1"), begin, high, none);
  return select(inside, spread, x);
}

Operand Text::update_slice(const Operand& x, const Operand& update, const Dims& begin) {
  if (divided_) return put_by_choice(x, update, begin);
  std::string names;
  std::string types;
  for (const int64_t at : begin) {
    names += ", " + integer(at, {}, "i64").name;
    types += ", tensor<i64>";
  }
  return emit("stablehlo.dynamic_update_slice " + x.name + ", " + update.name + names + " : (" + type_text(x) + ", " +
                  type_text(update) + types + ") -> " + type_text(x),
              x.sizes, x.element);
}

}  // namespace cohort::record::stablehlo
