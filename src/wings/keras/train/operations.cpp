#include "wings/keras/train/operations.h"

#include <algorithm>

#include "wings/keras/train/taken_options.h"

namespace cohort {

namespace {

struct UnaryFunction {
  const char* name;
  SymbolicTensor (*of)(const SymbolicTensor& x);
};
struct BinaryFunction {
  const char* name;
  SymbolicTensor (*of)(const SymbolicOperand& a, const SymbolicOperand& b);
};
struct MaskFunction {
  const char* name;
  SymbolicTensor (*of)(const SymbolicTensor& a, const SymbolicTensor& b);
};
struct AxisFunction {
  const char* name;
  SymbolicTensor (*of)(const SymbolicTensor& x, int64_t axis, bool keepdims);
};

// Keras converts the masks of its Attention, which are tensors already.
SymbolicTensor as_it_is(const SymbolicTensor& x) {
  return x;
}

constexpr UnaryFunction kUnary[] = {{"Negative", operator- },
                                     {"Absolute", abs},
                                     {"Exp", exp},
                                     {"Log", log},
                                     {"Sqrt", sqrt},
                                     {"Square", square},
                                     {"Tanh", tanh},
                                     {"Relu", relu},
                                     {"Silu", silu},
                                     {"Sigmoid", sigmoid},
                                     {"ConvertToTensor", as_it_is}};
constexpr BinaryFunction kBinary[] = {{"Add", operator+ },
                                       {"Subtract", operator- },
                                        {"Multiply", operator* },
                                         {"Divide", operator/ },
                                          {"TrueDivide", operator/ },
                                           {"Maximum", maximum},
                                           {"Minimum", minimum},
                                           {"Power", pow},
                                           {"NotEqual", not_equal}};
constexpr MaskFunction kMasks[] = {{"LogicalOr", logical_or}, {"LogicalAnd", logical_and}};
constexpr AxisFunction kAxis[] = {{"Any", any}, {"Sum", sum}, {"Mean", mean}, {"Max", max}, {"Min", min}};

SymbolicTensor along_axis(const AxisFunction& function, const SymbolicTensor& x, TakenOptions& options) {
  const Json axis = options.take("axis");
  const bool keepdims = options.flag("keepdims", false);
  const Json& only = axis.is_array() && axis.size() == 1 ? axis[0] : axis;
  if (!only.is_number_integer()) {
    options.place().unsupported("axis = ", brief(axis), " is not supported, only one");
  }
  return function.of(x, only.get<int64_t>(), keepdims);
}

bool is_of_class(const Json& value, const char* name) {
  return value.is_object() && value.value("class_name", Json()) == name;
}

std::optional<int64_t> bound_of(const Json& slice, const char* key, const FilePlace& here) {
  const Json value = slice.value(key, Json());
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer()) here.unsupported("the slice ", brief(slice), " is not supported, only integers");
  return value.get<int64_t>();
}

// Takes a slice as Python does, which begins and ends where the elements do.
SymbolicTensor sliced(const SymbolicTensor& x, int64_t dim, const Json& slice, const FilePlace& here) {
  std::optional<int64_t> begin = bound_of(slice, "start", here);
  std::optional<int64_t> end = bound_of(slice, "stop", here);
  const int64_t step = bound_of(slice, "step", here).value_or(1);
  if (begin.value_or(0) == 0 && !end && step == 1) return x;
  const bool is_known = dim >= 1 && dim <= static_cast<int64_t>(x.shape().size());
  const int64_t size = is_known ? x.shape()[static_cast<std::size_t>(dim - 1)] : -1;
  if (size >= 0) {
    const auto within = [size](int64_t place) {
      return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
    };
    begin = within(begin.value_or(0));
    if (end) end = within(*end);
  }
  return x.slice(dim, begin.value_or(0), end, step);
}

SymbolicTensor item_of(SymbolicTensor x, const Json& key, const FilePlace& here) {
  const Json items = key.is_array() ? key : Json::array({key});
  int64_t dim = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Json& item = items[i];
    if (item.is_number_integer()) {
      x = x.select(dim, item.get<int64_t>());
    } else if (is_of_class(item, "__slice__")) {
      x = sliced(x, dim++, member(item, "config", here), here);
    } else if (is_of_class(item, "__ellipsis__")) {
      dim = static_cast<int64_t>(x.shape().size()) + 1 - static_cast<int64_t>(items.size() - i - 1);
    } else {
      here.unsupported("the key ", brief(item), " is not supported, only integers, slices and an ellipsis");
    }
  }
  return x;
}

template <typename Function, std::size_t size>
const Function* named(const Function (&table)[size], const std::string& name) {
  const auto* const found =
      std::find_if(std::begin(table), std::end(table), [&](const Function& each) { return each.name == name; });
  return found == std::end(table) ? nullptr : found;
}

[[noreturn]] void refuse(const FilePlace& here) {
  std::string known = "GetItem";
  const auto add = [&](const auto& table) {
    for (const auto& each : table) known.append(", ").append(each.name);
  };
  add(kUnary);
  add(kBinary);
  add(kMasks);
  add(kAxis);
  here.unsupported("an operation of this kind, with these arguments, is not supported; there are ", known);
}

}  // namespace

SymbolicTensor operate(const std::string& name, const std::vector<SymbolicOperand>& sides, const Json& config,
                       const Json& key, const FilePlace& here) {
  TakenOptions options(config, here);
  options.take("name");
  const bool is_alone = sides.size() == 1 && sides[0].tensor();
  const bool are_tensors = sides.size() == 2 && sides[0].tensor() && sides[1].tensor();
  std::optional<SymbolicTensor> made;
  if (name == "GetItem" && is_alone) {
    made = item_of(*sides[0].tensor(), key, here);
  } else if (const auto* const unary = named(kUnary, name); unary != nullptr && is_alone) {
    made = unary->of(*sides[0].tensor());
  } else if (const auto* const axis = named(kAxis, name); axis != nullptr && is_alone) {
    made = along_axis(*axis, *sides[0].tensor(), options);
  } else if (const auto* const mask = named(kMasks, name); mask != nullptr && are_tensors) {
    made = mask->of(*sides[0].tensor(), *sides[1].tensor());
  } else if (const auto* const binary = named(kBinary, name); binary != nullptr && sides.size() == 2) {
    made = binary->of(sides[0], sides[1]);
  } else {
    refuse(here);
  }
  options.end();
  return *made;
}

}  // namespace cohort
