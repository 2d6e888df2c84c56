// The operations of StableHLO that have a computation inside, and those with many attributes.
#include "base/fail.h"
#include "wings/xla/record/stablehlo/sharding.h"
#include "wings/xla/record/stablehlo/text.h"

namespace cohort::record::stablehlo {

namespace {

// The attributes of a window, with its padding as pairs.
std::string window_text(const WindowDims& window, bool dilates) {
  std::string padding;
  for (std::size_t d = 0; d < window.low.size(); ++d) {
    padding += (d == 0 ? "[" : ", [") + std::to_string(window.low[d]) + ", " + std::to_string(window.high[d]) + "]";
  }
  std::string text = "window_dimensions = " + array_text(window.size) +
                     ", window_strides = " + array_text(window.stride) + ", padding = dense<[" + padding +
                     "]> : tensor<" + std::to_string(window.low.size()) + "x2xi64>";
  if (dilates) {
    text += ", base_dilations = " + array_text(window.base_dilation) +
            ", window_dilations = " + array_text(window.dilation);
  }
  return text;
}

std::string pairs_text(const Dims& low, const Dims& high) {
  std::string text = "[";
  for (std::size_t d = 0; d < low.size(); ++d) {
    text += (d == 0 ? "[" : ", [") + std::to_string(low[d]) + ", " + std::to_string(high[d]) + "]";
  }
  return text + "]";
}

int64_t windowed(int64_t size, const WindowDims& window, std::size_t d) {
  const int64_t dilated = (size - 1) * window.base_dilation[d] + 1 + window.low[d] + window.high[d];
  const int64_t extent = (window.size[d] - 1) * window.dilation[d] + 1;
  return dilated < extent ? 0 : (dilated - extent) / window.stride[d] + 1;
}

}  // namespace

std::string Text::region(const std::string& op, const std::string& element) const {
  const std::string scalar = "tensor<" + element + ">";
  const std::string result = op.empty() ? "%b" : "%r";
  std::string text = "({\n      ^bb0(%a: " + scalar + ", %b: " + scalar + "):\n";
  if (!op.empty()) text += "        %r = stablehlo." + op + " %a, %b : " + scalar + "\n";
  return text + "        stablehlo.return " + result + " : " + scalar + "\n    })";
}

Operand Text::reduce(const std::string& op, const Operand& x, const Dims& dims, double init) {
  if (dims.empty()) return x;
  Dims sizes;
  for (const int64_t d : other_dims(x.rank(), dims)) sizes.push_back(x.size(d));
  const Operand start = constant(init, {}, x.element);
  return emit("stablehlo.reduce(" + x.name + " init: " + start.name + ") applies stablehlo." + op +
                  " across dimensions = " + list_text(dims) + " : (" + type_text(x) + ", " + type_text(start) +
                  ") -> " + type_text(sizes, x.element),
              sizes, x.element);
}

std::pair<Operand, Operand> Text::reduce_with_index(const std::string& direction, const Operand& x,
                                                    const Operand& index, const Dims& dims) {
  Dims sizes;
  for (const int64_t d : other_dims(x.rank(), dims)) sizes.push_back(x.size(d));
  const bool greatest = direction == "GT";
  const std::string e = x.element;
  Operand start = constant(greatest ? -INFINITY : INFINITY, {}, e);
  if (!is_float(e)) {
    start = e == "i1"
                ? constant(greatest ? 0 : 1, {}, e)
                : integer(greatest ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max(), {}, e);
  }
  const Operand none = integer(std::numeric_limits<int64_t>::max(), {}, "i64");
  const std::string v = "tensor<" + e + ">";
  const auto compares = [&](const std::string& name, const std::string& how, const std::string& a, const std::string& b,
                            const std::string& type) {
    return "        " + name + " = stablehlo.compare " + how + ", " + a + ", " + b + " : (" + type + ", " + type +
           ") -> tensor<i1>\n";
  };
  const std::string logic = " : tensor<i1>\n";
  std::string body = "\"stablehlo.reduce\"(" + x.name + ", " + index.name + ", " + start.name + ", " + none.name +
                     ") ({\n      ^bb0(%a: " + v + ", %i: tensor<i64>, %b: " + v + ", %j: tensor<i64>):\n";
  // NaN is the greatest and the smallest; of equal ones the first is taken.
  body += compares("%better", direction, "%a", "%b", v) + compares("%nan_a", "NE", "%a", "%a", v) +
          compares("%nan_b", "NE", "%b", "%b", v) + "        %fine_b = stablehlo.not %nan_b" + logic +
          "        %first = stablehlo.and %nan_a, %fine_b" + logic + "        %wins = stablehlo.or %better, %first" +
          logic + compares("%equal", "EQ", "%a", "%b", v) + "        %both = stablehlo.and %nan_a, %nan_b" + logic +
          "        %same = stablehlo.or %equal, %both" + logic + compares("%earlier", "LT", "%i", "%j", "tensor<i64>") +
          "        %tie = stablehlo.and %same, %earlier" + logic + "        %take = stablehlo.or %wins, %tie" + logic;
  body += "        %value = stablehlo.select %take, %a, %b : tensor<i1>, " + v +
          "\n        %at = stablehlo.select %take, %i, %j : tensor<i1>, tensor<i64>\n        stablehlo.return %value, "
          "%at : " +
          v + ", tensor<i64>\n    }) {dimensions = " + array_text(dims) + "} : (" + type_text(x) + ", " +
          type_text(index) + ", " + v + ", tensor<i64>) -> (" + type_text(sizes, e) + ", " + type_text(sizes, "i64") +
          ")";
  const auto results = emit_several(body, {{"", sizes, e}, {"", sizes, "i64"}});
  return {results[0], results[1]};
}

Operand Text::reduce_window(const std::string& op, const Operand& x, const WindowDims& window, double init) {
  Dims sizes;
  for (std::size_t d = 0; d < x.sizes.size(); ++d) sizes.push_back(windowed(x.sizes[d], window, d));
  const Operand start = constant(init, {}, x.element);
  return emit("\"stablehlo.reduce_window\"(" + x.name + ", " + start.name + ") " + region(op, x.element) + " {" +
                  window_text(window, true) + "} : (" + type_text(x) + ", " + type_text(start) + ") -> " +
                  type_text(sizes, x.element),
              sizes, x.element);
}

Operand Text::select_and_scatter(const Operand& operand, const Operand& source, const WindowDims& window) {
  const std::string scalar = "tensor<" + operand.element + ">";
  const Operand zero = constant(0.0, {}, operand.element);
  return emit("\"stablehlo.select_and_scatter\"(" + operand.name + ", " + source.name + ", " + zero.name +
                  ") ({\n      ^bb0(%a: " + scalar + ", %b: " + scalar +
                  "):\n        %r = stablehlo.compare GE, %a, %b : (" + scalar + ", " + scalar +
                  ") -> tensor<i1>\n        stablehlo.return %r : tensor<i1>\n    }, " +
                  region("add", operand.element).substr(1) + " {" + window_text(window, false) + "} : (" +
                  type_text(operand) + ", " + type_text(source) + ", " + scalar + ") -> " + type_text(operand),
              operand.sizes, operand.element);
}

Operand Text::as_it_is(const Operand& x) {
  return emit("stablehlo.optimization_barrier " + x.name + " : " + type_text(x), x.sizes, x.element);
}

// XLA's CPUs multiply a few rows by a large transposed matrix, as a linear layer does, in up to 13 times the time that
// they need for the matrix as it lies by those rows as columns. Measured with plugin 0.0.1 for 8 to 512 rows.
bool Text::is_faster_turned(const Operand& a, const Operand& b) const {
  constexpr int64_t kFewRows = 128;
  return for_cpu_ && !divided_ && transposed_.contains(b.name) && a.rank() == 2 && a.size(0) <= kFewRows &&
         b.size(1) >= 2 * a.size(0);
}

Operand Text::dot(const Operand& a, const Operand& b, const Dims& batch_a, const Dims& batch_b, const Dims& contract_a,
                  const Dims& contract_b) {
  if (contract_a == Dims{1} && contract_b == Dims{0} && is_faster_turned(a, b)) {
    const Operand columns = as_it_is(transpose(a, {1, 0}));
    return transpose(as_it_is(dot(transposed_.at(b.name), columns, {}, {}, {1}, {0})), {1, 0});
  }
  Dims sizes;
  for (const int64_t d : batch_a) sizes.push_back(a.size(d));
  const auto add_rest = [&](const Operand& x, Dims used, const Dims& contracted) {
    used.insert(used.end(), contracted.begin(), contracted.end());
    for (const int64_t d : other_dims(x.rank(), used)) sizes.push_back(x.size(d));
  };
  add_rest(a, batch_a, contract_a);
  add_rest(b, batch_b, contract_b);
  const std::string batch =
      batch_a.empty() ? "" : "batching_dims = " + list_text(batch_a) + " x " + list_text(batch_b) + ", ";
  return emit("stablehlo.dot_general " + a.name + ", " + b.name + ", " + batch + "contracting_dims = " +
                  list_text(contract_a) + " x " + list_text(contract_b) + ", precision = [" + precision_ + ", " +
                  precision_ + "] : (" + type_text(a) + ", " + type_text(b) + ") -> " + type_text(sizes, a.element),
              sizes, a.element);
}

Operand Text::convolution(const Operand& x, const Operand& kernel, const ConvolutionText& text, const Dims& sizes) {
  return emit("stablehlo.convolution(" + x.name + ", " + kernel.name + ") dim_numbers = [" + text.input + "]x[" +
                  text.kernel + "]->[" + text.output + "], window = {stride = " + list_text(text.stride) +
                  ", pad = " + pairs_text(text.low, text.high) + ", lhs_dilate = " + list_text(text.lhs_dilation) +
                  ", rhs_dilate = " + list_text(text.rhs_dilation) +
                  "} {batch_group_count = " + std::to_string(text.batch_groups) + " : i64, feature_group_count = " +
                  std::to_string(text.feature_groups) + " : i64, precision_config = [#stablehlo<precision " +
                  precision_ + ">, #stablehlo<precision " + precision_ + ">]} : (" + type_text(x) + ", " +
                  type_text(kernel) + ") -> " + type_text(sizes, x.element),
              sizes, x.element);
}

Operand Text::gather(const Operand& x, const Operand& indices, const GatherText& text, const Dims& sizes) {
  return emit("\"stablehlo.gather\"(" + x.name + ", " + indices.name +
                  ") {dimension_numbers = #stablehlo.gather<offset_dims = " + list_text(text.offset_dims) +
                  ", collapsed_slice_dims = " + list_text(text.collapsed_dims) + ", start_index_map = " +
                  list_text(text.start_index_map) + ", index_vector_dim = " + std::to_string(text.index_vector_dim) +
                  ">, indices_are_sorted = false, slice_sizes = " + array_text(text.slice_sizes) + "} : (" +
                  type_text(x) + ", " + type_text(indices) + ") -> " + type_text(sizes, x.element),
              sizes, x.element);
}

Operand Text::scatter(const Operand& x, const Operand& indices, const Operand& updates, const ScatterText& text,
                      const std::string& combination) {
  return emit(
      "\"stablehlo.scatter\"(" + x.name + ", " + indices.name + ", " + updates.name + ") " +
          region(combination, x.element) + " {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " +
          list_text(text.update_window_dims) + ", inserted_window_dims = " + list_text(text.inserted_window_dims) +
          ", scatter_dims_to_operand_dims = " + list_text(text.scatter_dims) + ", index_vector_dim = " +
          std::to_string(text.index_vector_dim) + ">, indices_are_sorted = false, unique_indices = false} : (" +
          type_text(x) + ", " + type_text(indices) + ", " + type_text(updates) + ") -> " + type_text(x),
      x.sizes, x.element);
}

std::vector<Operand> Text::sort(const std::vector<Operand>& operands, int64_t dim, bool descending) {
  std::string names;
  std::string types;
  std::string arguments;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::string n = std::to_string(i);
    const std::string scalar = "tensor<" + operands[i].element + ">";
    names += (i == 0 ? "" : ", ") + operands[i].name;
    types += (i == 0 ? "" : ", ") + type_text(operands[i]);
    arguments += c10::str(i == 0 ? "" : ", ", "%a", n, ": ", scalar, ", %b", n, ": ", scalar);
  }
  const std::string& element = operands[0].element;
  const std::string scalar = "tensor<" + element + ">";
  std::string body = "\"stablehlo.sort\"(" + names + ") ({\n      ^bb0(" + arguments + "):\n";
  const char* kind = is_float(element) ? ", TOTALORDER" : "";
  body += "        %r = stablehlo.compare " + std::string(descending ? "GT" : "LT") + ", %a0, %b0" + kind + " : (" +
          scalar + ", " + scalar +
          ") -> tensor<i1>\n        stablehlo.return %r : tensor<i1>\n    }) {dimension = " + std::to_string(dim) +
          " : i64, is_stable = true} : (" + types + ") -> (" + types + ")";
  if (operands.size() == 1) {
    return {emit(body.replace(body.rfind("-> ("), std::string::npos, "-> " + types), operands[0].sizes, element)};
  }
  return emit_several(body, operands);
}

Operand Text::all_reduce(const Operand& x, int replicas) {
  std::string group;
  for (int r = 0; r < replicas; ++r) group += (r == 0 ? "" : ", ") + std::to_string(r);
  return emit("\"stablehlo.all_reduce\"(" + x.name + ") " + region("add", x.element) + " {replica_groups = dense<[[" +
                  group + "]]> : tensor<1x" + std::to_string(replicas) + "xi64>} : (" + type_text(x) + ") -> " +
                  type_text(x),
              x.sizes, x.element);
}

Operand Text::shard(const Operand& x, const Dims& tiles) {
  return emit("sdy.sharding_constraint " + x.name + " " + sharding_text(tiles) + " : " + type_text(x), x.sizes,
              x.element);
}

}  // namespace cohort::record::stablehlo
