#include "wings/xla/record/stablehlo/lower.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/fail.h"
#include "wings/xla/record/loop.h"
#include "wings/xla/record/stablehlo/families.h"
#include "wings/xla/record/stablehlo/loop.h"
#include "wings/xla/record/stablehlo/lowering.h"
#include "wings/xla/record/stablehlo/sharding.h"

namespace cohort::record {

namespace {

using stablehlo::Lowering;
using stablehlo::Operand;
using stablehlo::Text;

// Returns the text without what would end a string of the module.
std::string quotable(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\\' || c == '\n') c = '_';
  }
  return text;
}

// Returns whether the lowering of the operation looks at the argument.
bool reads(const Operation& operation, const PlaceArgument& argument) {
  if (operation.op != "aten::max_pool2d_with_indices_backward" || &argument != &operation.arguments.back()) return true;
  return stablehlo::max_pool_reads_indices(std::get<c10::IValue>(operation.arguments.at(5)).toIntVector());
}

struct PrecisionRow {
  MatmulPrecision precision;
  const char* name;
  const char* text;  // StableHLO's
};
constexpr std::array kPrecisions = {
    PrecisionRow{MatmulPrecision::kDefault, "default", "DEFAULT"},
    PrecisionRow{MatmulPrecision::kHigh, "high", "HIGH"},
    PrecisionRow{MatmulPrecision::kHighest, "highest", "HIGHEST"},
};

const PrecisionRow& row_of(MatmulPrecision precision) {
  return *std::find_if(kPrecisions.begin(), kPrecisions.end(),
                       [&](const PrecisionRow& row) { return row.precision == precision; });
}

class Module {
 public:
  Module(const Program& program, const StableHloOptions& options)
      : program_(program),
        options_(options),
        text_(row_of(options.precision).text, options.num_cores > 1, options.platform == "cpu") {
    for (const Operation& operation : program.operations()) used_.emplace_back(operation.outputs.size(), false);
    for (const Operation& operation : program.operations()) note_uses(operation);
    for (const Place& place : program.outputs()) note_use(place);
  }

  // Returns the function, whose name is "public @main" or the like.
  std::string function(const std::string& name) {
    for (std::size_t i = 0; i < program_.operations().size(); ++i) lower(i);
    std::string returned;
    std::string types;
    std::string results;
    for (const Place& place : program_.outputs()) {
      const Operand value = resolve(place);
      returned += (returned.empty() ? "" : ", ") + value.name;
      types += (types.empty() ? "" : ", ") + type_text(value);
      results += (results.empty() ? "" : ", ") + type_text(value);
      if (divided()) results += " {" + stablehlo::whole_text(value.rank()) + "}";
    }
    return "  func.func " + name + "(" + signature(name.starts_with("public")) + ") -> (" + results + ") {\n" +
           text_.body() + "    return" + (returned.empty() ? "" : " " + returned + " : " + types) + "\n  }\n";
  }

 private:
  bool divided() const { return options_.num_cores > 1; }

  void note_use(const Place& place) {
    if (place.operation >= 0)
      used_[static_cast<std::size_t>(place.operation)][static_cast<std::size_t>(place.index)] = true;
  }

  void note_uses(const Operation& operation) {
    for (const PlaceArgument& argument : operation.arguments) {
      if (!reads(operation, argument)) continue;
      if (const auto* place = std::get_if<Place>(&argument)) note_use(*place);
      const auto* list = std::get_if<std::vector<std::optional<Place>>>(&argument);
      for (const auto& place : list == nullptr ? std::vector<std::optional<Place>>() : *list) {
        if (place) note_use(*place);
      }
    }
  }

  Operand input(int index) const {
    const TensorType& type = program_.inputs()[static_cast<std::size_t>(index)].type;
    return {"%arg" + std::to_string(index), type.sizes, stablehlo::element_of(type.dtype)};
  }

  Operand resolve(const Place& place) {
    if (place.operation >= 0)
      return results_[static_cast<std::size_t>(place.operation)].at(static_cast<std::size_t>(place.index));
    if (place.element < 0) return input(place.index);
    const auto key = std::pair(place.index, place.element);
    const auto known = elements_.find(key);
    if (known != elements_.end()) return known->second;
    const Operand one = text_.slice(input(place.index), {place.element}, {place.element + 1}, {1});
    return elements_[key] = text_.reshape(one, {});
  }

  // What may take the memory of what is said of the main function only.
  std::string signature(bool gives_memory) const {
    std::string text;
    for (std::size_t i = 0; i < program_.inputs().size(); ++i) {
      const Operand value = input(static_cast<int>(i));
      text += (i == 0 ? "" : ", ") + value.name + ": " + type_text(value);
      std::string attributes;
      for (std::size_t o = 0; gives_memory && o < program_.aliases().size(); ++o) {
        if (program_.aliases()[o] == static_cast<int>(i)) {
          attributes = "tf.aliasing_output = " + std::to_string(o) + " : i32";
        }
      }
      if (divided()) attributes += (attributes.empty() ? "" : ", ") + stablehlo::whole_text(value.rank());
      if (!attributes.empty()) text += " {" + attributes + "}";
      const std::string& name = program_.inputs()[i].name;
      text += " loc(\"" + (name.empty() ? "argument " + std::to_string(i) : quotable(name)) + "\")";
    }
    return text;
  }

  void lower(std::size_t i) {
    const Operation& operation = program_.operations()[i];
    const bool of_libtorch = operation.op.rfind("aten::", 0) == 0;
    const OperationInfo* info = find_operation(of_libtorch ? operation.op.substr(6) : operation.op);
    if (info == nullptr)
      fail<Internal>("[record] ", operation.op, " was recorded without a row in the table of operations");
    text_.set_location(quotable(operation.layer.empty() ? operation.op : operation.op + " " + operation.layer));
    Lowering lowering(text_, operation, used_[i], options_, [this](const Place& place) { return resolve(place); });
    info->lower(lowering);
    results_.push_back(lowering.results());
  }

  const Program& program_;
  const StableHloOptions& options_;
  Text text_;
  std::vector<std::vector<bool>> used_;
  std::vector<std::vector<Operand>> results_;
  std::map<std::pair<int, int64_t>, Operand> elements_;
};

}  // namespace

MatmulPrecision find_matmul_precision(std::string_view name, std::string_view source) {
  const auto* const row =
      std::find_if(kPrecisions.begin(), kPrecisions.end(), [&](const PrecisionRow& each) { return each.name == name; });
  if (row != kPrecisions.end()) return row->precision;
  fail<InvalidArgument>("[xla] ", source, " is ", name, ", wanted default, high or highest");
}

std::string to_stablehlo(const Program& program, const StableHloOptions& options) {
  const std::shared_ptr<const Loop>& loop = program.loop();
  const bool divided = options.num_cores > 1;
  const std::string functions =
      loop == nullptr
          ? Module(program, options).function(options.main.empty() ? "public @main" : "private @step") + options.main
          : Module(*loop->body, options).function("private @step") + stablehlo::loop_text(program, divided);
  return "module @" + options.name + " attributes {mhlo.num_replicas = " + std::to_string(options.num_replicas) +
         " : i32, mhlo.num_partitions = " + std::to_string(options.num_cores) + " : i32} {\n" +
         (divided ? stablehlo::mesh_text(options.num_cores) : "") + functions + "}\n";
}

}  // namespace cohort::record
