#include "wings/xla/device/types.h"

#include <array>
#include <charconv>

#include "base/fail.h"
#include "wings/xla/record/stablehlo/text.h"

namespace cohort {

namespace {

struct TypeRow {
  XlaType type;
  const char* name;
  int64_t bytes;
  torch::ScalarType dtype;
  bool own = true;  // the dtype becomes this type, too
};
constexpr std::array kXlaTypes = {
    TypeRow{XlaType::kPred, "i1", 1, torch::kBool},
    TypeRow{XlaType::kS8, "i8", 1, torch::kInt8},
    TypeRow{XlaType::kS16, "i16", 2, torch::kInt16},
    TypeRow{XlaType::kS32, "i32", 4, torch::kInt32},
    TypeRow{XlaType::kS64, "i64", 8, torch::kInt64},
    TypeRow{XlaType::kU8, "ui8", 1, torch::kUInt8},
    TypeRow{XlaType::kU16, "ui16", 2, torch::kInt16, false},
    TypeRow{XlaType::kU32, "ui32", 4, torch::kInt32, false},
    TypeRow{XlaType::kU64, "ui64", 8, torch::kInt64, false},
    TypeRow{XlaType::kF16, "f16", 2, torch::kFloat16},
    TypeRow{XlaType::kF32, "f32", 4, torch::kFloat32},
    TypeRow{XlaType::kF64, "f64", 8, torch::kFloat64},
    TypeRow{XlaType::kBF16, "bf16", 2, torch::kBFloat16},
    TypeRow{XlaType::kC64, "complex<f32>", 8, torch::kComplexFloat},
    TypeRow{XlaType::kC128, "complex<f64>", 16, torch::kComplexDouble},
};

const TypeRow& row_of(XlaType type) {
  for (const TypeRow& row : kXlaTypes) {
    if (row.type == type) return row;
  }
  fail<Unimplemented>("[xla] the element type ", static_cast<int>(type), " of PJRT is not known here");
}

std::string joined(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text.append(text.empty() ? "" : ",").append(std::to_string(value));
  return "[" + text + "]";
}

template <typename Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

XlaValue parse_value(std::string_view text) {
  int64_t whole = 0;
  float real = 0;
  if (read_number(text, whole)) return whole;
  if (read_number(text, real)) return real;
  if (text == "true" || text == "false") return text == "true";
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::string(text);
  std::vector<int64_t> list;
  for (std::string_view rest = text.substr(1, text.size() - 2); !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    if (!read_number(rest.substr(0, end), list.emplace_back())) {
      fail<InvalidArgument>("[xla] the list ", text, " has \"", rest.substr(0, end), "\" in it, wanted whole numbers");
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return list;
}

// Returns the length of the first option: up to a comma that is not within brackets.
std::size_t length_of_option(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (text[i] == ',' && depth <= 0) return i;
  }
  return text.size();
}

}  // namespace

XlaType xla_type(torch::ScalarType dtype) {
  for (const TypeRow& row : kXlaTypes) {
    if (row.own && row.dtype == dtype) return row.type;
  }
  record::stablehlo::refuse_dtype(dtype);
}

torch::ScalarType torch_type(XlaType type) {
  return row_of(type).dtype;
}

int64_t size_of(XlaType type) {
  return row_of(type).bytes;
}

std::string_view name_of(XlaType type) {
  return row_of(type).name;
}

int64_t XlaShape::num_elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

std::string XlaShape::to_text() const {
  return std::string(name_of(type)) + joined(sizes);
}

std::string to_text(const XlaValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return joined(*list);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  return c10::str(std::get<float>(value));
}

XlaOptions parse_xla_options(std::string_view text) {
  XlaOptions options;
  while (!text.empty()) {
    const std::size_t end = length_of_option(text);
    const std::string_view option = text.substr(0, end);
    const std::size_t mark = option.find('=');
    if (mark == std::string_view::npos || mark == 0) {
      fail<InvalidArgument>("[xla] the option \"", option, "\" is no name=value");
    }
    const std::string name(option.substr(0, mark));
    if (!options.emplace(name, parse_value(option.substr(mark + 1))).second) {
      fail<InvalidArgument>("[xla] the option ", name, " is there twice");
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return options;
}

}  // namespace cohort
