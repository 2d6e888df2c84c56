// Indexing. An index outside of its dimension is not found out on the device, as it is by LibTorch on a CPU: it reads
// the nearest element, and writes nothing.
#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

// The numbers, in a tensor of sizes `from`, of the elements that `index` names along the dimension: [elements, 1].
Operand flat_index(Text& t, const Operand& index, const Dims& from, int64_t dim) {
  Operand sum = t.integer(0, index.sizes, "i64");
  int64_t stride = 1;
  for (auto d = static_cast<int64_t>(from.size()); d-- > 0;) {
    const Operand at = d == dim ? t.convert(index, "i64") : t.iota(d, index.sizes, "i64");
    sum = t.binary("add", sum, t.binary("multiply", at, t.integer(stride, index.sizes, "i64")));
    stride *= from[static_cast<std::size_t>(d)];
  }
  return t.reshape(sum, {numel(index.sizes), 1});
}

Operand line(Text& t, const Operand& x) {
  return t.reshape(x, {numel(x.sizes)});
}

// Tensors without dimensions are indexed as if they had one.
Operand at_least_1d(Text& t, const Operand& x) {
  return x.rank() == 0 ? t.reshape(x, {1}) : x;
}

void gather(Lowering& op) {
  Text& t = op.text();
  const Operand x = at_least_1d(t, op.in(0));
  const Operand index = at_least_1d(t, op.in(2));
  if (numel(index.sizes) == 0) return op.set(0, t.constant(0.0, op.out().sizes, x.element));
  const Operand at = flat_index(t, index, x.sizes, op.dim(1, x.rank()));
  const Operand read = t.gather(line(t, x), at, {{}, {0}, {0}, {1}, 1}, {numel(index.sizes)});
  op.set(0, t.reshape(read, op.out().sizes));
}

// Arguments: self, dim, index, source.
void scatter_with(Lowering& op, const Operand& source, const std::string& combination) {
  Text& t = op.text();
  const Operand x = at_least_1d(t, t.convert(op.in(0), op.element()));
  const Operand index = at_least_1d(t, op.in(2));
  if (numel(index.sizes) == 0) return op.set(0, t.reshape(x, op.out().sizes));
  const Operand at = flat_index(t, index, x.sizes, op.dim(1, x.rank()));
  // The source may be larger than the index.
  const Operand part = t.slice(source, Dims(index.sizes.size(), 0), index.sizes, Dims(index.sizes.size(), 1));
  op.set(0, t.reshape(t.scatter(line(t, x), at, line(t, part), {{}, {0}, {0}, 1}, combination), op.out().sizes));
}
void scatter_source(Lowering& op) {
  scatter_with(op, at_least_1d(op.text(), op.text().convert(op.in(3), op.element())), "");
}
void scatter_add(Lowering& op) {
  scatter_with(op, at_least_1d(op.text(), op.text().convert(op.in(3), op.element())), "add");
}
void scatter_value(Lowering& op) {
  const Operand index = at_least_1d(op.text(), op.in(2));
  scatter_with(op, op.text().expand(op.number(3, op.element()), index.sizes), "");
}

// Rows (slices along the dimension) that the index names.
Operand take_rows(Text& t, const Operand& x, int64_t dim, const Operand& index) {
  Dims slices = x.sizes;
  slices[static_cast<std::size_t>(dim)] = 1;
  Dims sizes = x.sizes;
  sizes[static_cast<std::size_t>(dim)] = index.size(0);
  return t.gather(x, index, {other_dims(x.rank(), {dim}), {dim}, {dim}, slices, 1}, sizes);
}
void index_select(Lowering& op) {
  Text& t = op.text();
  const Operand x = at_least_1d(t, op.in(0));
  const Operand index = line(t, op.in(2));
  op.set(0, t.reshape(take_rows(t, x, op.dim(1, x.rank()), index), op.out().sizes));
}

// Arguments: self, dim, index, source, alpha.
void index_add(Lowering& op) {
  Text& t = op.text();
  const Operand x = at_least_1d(t, t.convert(op.in(0), op.element()));
  const int64_t dim = op.dim(1, x.rank());
  Operand source = at_least_1d(t, t.convert(op.in(3), op.element()));
  if (!op.is_number(4, 1.0))
    source = t.binary("multiply", source, t.expand(op.number(4, source.element), source.sizes));
  const Operand sum = t.scatter(x, line(t, op.in(2)), source, {other_dims(x.rank(), {dim}), {dim}, {dim}, 1}, "add");
  op.set(0, t.reshape(sum, op.out().sizes));
}

void embedding(Lowering& op) {
  Text& t = op.text();
  op.set(0, t.reshape(take_rows(t, op.in(0), 0, line(t, op.in(1))), op.out().sizes));
}

// Arguments: gradient, indices, num_weights, padding_idx, scale_grad_by_freq.
void embedding_backward(Lowering& op) {
  Text& t = op.text();
  const std::string e = op.compute();
  const Operand index = t.convert(line(t, op.in(1)), "i64");
  const int64_t rows = index.size(0);
  const int64_t columns = op.out().sizes[1];
  Operand g = t.reshape(t.convert(op.in(0), e), {rows, columns});
  const Operand padding = t.integer(op.integer(3), index.sizes, "i64");
  const Operand padded = t.broadcast(t.compare("EQ", index, padding), g.sizes, {0});
  g = t.select(padded, t.constant(0.0, g.sizes, e), g);
  if (op.flag(4)) {
    const Operand ones = t.constant(1.0, index.sizes, e);
    const Operand none = t.constant(0.0, {op.out().sizes[0]}, e);
    const Operand counts = t.scatter(none, index, ones, {{}, {0}, {0}, 1}, "add");
    const Operand own = t.gather(counts, index, {{}, {0}, {0}, {1}, 1}, index.sizes);
    g = t.binary("divide", g, t.broadcast(own, g.sizes, {0}));
  }
  op.set(0, t.scatter(t.constant(0.0, op.out().sizes, e), index, g, {{1}, {0}, {0}, 1}, "add"));
}

// x[..., index, ...]: the tensors of indices, broadcast against each other, and the dimensions that they index.
struct Indices {
  Operand starts;  // [broadcast sizes..., dims]
  Dims dims;       // the dimensions that are indexed
  Dims batch;      // the broadcast sizes
  Dims windows;    // where the other dimensions of x are in the result
  Dims sizes;      // the sizes of the result
};

Dims broadcast_sizes(const std::vector<Operand>& list) {
  Dims sizes;
  for (const Operand& x : list) {
    if (x.sizes.size() > sizes.size()) sizes.insert(sizes.begin(), x.sizes.size() - sizes.size(), 1);
    for (std::size_t i = 0; i < x.sizes.size(); ++i) {
      int64_t& own = sizes[sizes.size() - x.sizes.size() + i];
      if (x.sizes[i] != 1) own = x.sizes[i];
    }
  }
  return sizes;
}

Indices indices_of(Lowering& op, const Operand& x) {
  Text& t = op.text();
  Indices result;
  std::vector<Operand> list;
  const auto given = op.list(1);
  for (std::size_t d = 0; d < given.size(); ++d) {
    if (!given[d]) continue;
    if (!is_integer(given[d]->element)) op.refuse("masks as indices, whose result has no static shape (use where())");
    result.dims.push_back(static_cast<int64_t>(d));
    list.push_back(t.convert(*given[d], "i64"));
  }
  result.batch = broadcast_sizes(list);
  Dims column = result.batch;
  column.push_back(1);
  std::vector<Operand> columns;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Operand index = t.expand(list[i], result.batch);
    const Operand size = t.integer(x.size(result.dims[i]), index.sizes, "i64");
    const Operand negative = t.compare("LT", index, t.integer(0, index.sizes, "i64"));
    columns.push_back(t.reshape(t.select(negative, t.binary("add", index, size), index), column));
  }
  result.starts = t.concatenate(columns, static_cast<int64_t>(column.size()) - 1);
  // LibTorch puts the index's dimensions where the indexed ones were if those are beside each other, else to the front.
  const bool adjacent = result.dims.back() - result.dims.front() + 1 == static_cast<int64_t>(result.dims.size());
  const Dims others = other_dims(x.rank(), result.dims);
  const auto rank = static_cast<int64_t>(result.batch.size());
  const int64_t first = adjacent ? result.dims.front() : 0;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    result.windows.push_back(at < first ? at : at + rank);
  }
  for (const int64_t d : others) result.sizes.push_back(x.size(d));
  result.sizes.insert(result.sizes.begin() + first, result.batch.begin(), result.batch.end());
  return result;
}

void index(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.in(0);
  const Indices i = indices_of(op, x);
  Dims slices = x.sizes;
  for (const int64_t d : i.dims) slices[static_cast<std::size_t>(d)] = 1;
  op.set(0, t.gather(x, i.starts, {i.windows, i.dims, i.dims, slices, static_cast<int64_t>(i.batch.size())}, i.sizes));
}

// Arguments: self, indices, values, accumulate.
void index_put(Lowering& op) {
  Text& t = op.text();
  const Operand x = t.convert(op.in(0), op.element());
  const auto given = op.list(1);
  const Operand value = t.convert(op.in(2), x.element);
  // One number where a mask holds.
  if (given.size() == 1 && given[0] && given[0]->element == "i1" && numel(value.sizes) == 1 && !op.flag(3)) {
    const Operand mask = t.broadcast(*given[0], x.sizes, all_dims(given[0]->rank()));
    return op.set(0, t.select(mask, t.broadcast(t.reshape(value, {}), x.sizes, {}), x));
  }
  const Indices i = indices_of(op, x);
  const Operand values = t.expand(value, i.sizes);
  op.set(0, t.scatter(x, i.starts, values, {i.windows, i.dims, i.dims, static_cast<int64_t>(i.batch.size())},
                      op.flag(3) ? "add" : ""));
}

constexpr OperationInfo kIndexing[] = {
    {"gather", gather},
    {"scatter.src", scatter_source},
    {"scatter.value", scatter_value, 1U << 3},
    {"scatter_add", scatter_add},
    {"index_select", index_select},
    {"index_add", index_add, 1U << 4},
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_backward},
    {"index.Tensor", index},
    {"index_put", index_put},
    {"_index_put_impl", index_put},
};

}  // namespace

std::span<const OperationInfo> indexing_operations() {
  return kIndexing;
}

}  // namespace cohort::record::stablehlo
