// Adafactor (Shazeer and Stern, 2018), as Keras has it. The squares of a matrix are the outer product of their means by
// row and by column, so the rule takes whole parameters; a parameter of higher rank is a batch of matrices. The slots
// have the parameter's size, as all slots have, and hold the means one after the other at their beginning.
#include <algorithm>
#include <limits>
#include <vector>

#include "cohort/more_update_rules.h"
#include "ops/kernels/kernels.h"
#include "wings/optimizers/optimizer/factored.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

// The last two dimensions, and how many such matrices there are. A vector is not factored: rows is 0.
struct Matrices {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t columns = 1;
};

Matrices matrices_of(c10::IntArrayRef shape) {
  Matrices m;
  if (shape.empty()) return m;
  m.columns = shape.back();
  if (shape.size() < 2) return m;
  m.rows = shape[shape.size() - 2];
  m.count = c10::multiply_integers(shape.begin(), shape.end() - 2);
  return m;
}

bool is_contiguous(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t wanted = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != wanted) return false;
    wanted *= shape[i];
  }
  return true;
}

class AdafactorRule final : public PassRule<AdafactorRule> {
 public:
  explicit AdafactorRule(const AdafactorOptions& options)
      : PassRule("Adafactor", {"row_squares", "column_squares"},
                 {.weight_decay = options.weight_decay, .ema = options.ema}),
        options_(options) {}

  bool takes_whole() const override { return true; }
  std::optional<int64_t> left_out(std::size_t slot, int64_t rank) const override {
    if (rank < 2 || slot > 1) return std::nullopt;
    return slot == 0 ? rank - 1 : rank - 2;
  }

  // Small matrices, of which there are many, are not worth the rows and columns that kernels give to blocks.
  bool takes_layer(std::span<const int64_t> shape, std::span<const int64_t> strides) const override {
    constexpr int64_t kLeast = 1024;
    const Matrices m = matrices_of({shape.data(), shape.size()});
    return is_contiguous(shape, strides) && (m.rows == 0 || m.count == 1 || m.rows * m.columns >= kLeast);
  }

  OwnTables own_tables(const std::vector<LayerPlace>& places, torch::Device device) const override {
    const auto tables = std::make_shared<const FactoredTables>(places, device);
    return {.tables = tables, .memory = tables->memory()};
  }

  void update_layers(const Segment& segment, const kernels::Layers& layers, const StepContext& context,
                     const std::function<void()>& /*join*/) const override {
    kernels::LayerArgs<kernels::AdafactorArgs> a{
        .in = {common(segment, {.decay = false}, context), common(segment, {}, context)}, .rule = {}, .trust = {}};
    a.rule[0] = {.learning_rate = rate(context),
                 .keep = beta_2(context),
                 .epsilon_1 = options_.epsilon_1,
                 .epsilon_2 = options_.epsilon_2,
                 .clip_threshold = options_.clip_threshold};
    const auto first = static_cast<std::size_t>(layers.first);
    const auto& tables = *static_cast<const FactoredTables*>(layers.own);
    const kernels::MatrixLayers own{layers, tables.layers(first, first + static_cast<std::size_t>(layers.count))};
    with_more_kernels(segment, [&]<typename P, typename T>(const kernels::MoreTable<P, T>& table) {
      const auto at = layer_memory<P, T>(segment, 2);
      table.adafactor_norms(at, own, a);
      table.add_norms(own);
      table.adafactor(at, own, a);
    });
  }

  template <typename T>
  void apply(const kernels::PassTable<T>& table, const Segment& segment, const StepContext& context) const {
    if (segment.size == 0) return;
    // Matrices that do not lie row by row, as the kernels of channels-last convolutions.
    if (!is_contiguous(segment.shape, segment.strides)) return apply_strided(segment, context);
    T* p = parameter_of<T>(segment);
    T* g = gradient_of<T>(segment);
    table.read_gradient(p, g, segment.size, reading(segment, context));
    const double scale = std::sqrt(kernels::squared_norm(p, segment.size, segment.dtype) / size_of(segment));
    const Matrices m = matrices_of({segment.shape.data(), segment.shape.size()});
    if (m.rows == 0) {
      divide_vector(table, segment, context);
    } else {
      for (int64_t i = 0; i < m.count; ++i) divide_matrix(table, segment, m, i, context);
    }
    const double length = std::sqrt(kernels::squared_norm(g, segment.size, segment.dtype) / size_of(segment));
    table.subtract(p, g, segment.size, step_size(scale, context) / std::max(1.0, length / options_.clip_threshold));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    if (p.numel() == 0) return;
    const torch::Tensor d = read(p, g, treatment, context);
    const torch::Tensor scale = root_mean_square(p, context);
    const Matrices m = matrices_of(p.sizes());
    const double keep = beta_2(context);
    const torch::Tensor squares = d.square().add_(options_.epsilon_1);
    if (m.rows == 0) {
      d.div_(slots[0].mul_(keep).add_(squares, 1.0 - keep).sqrt());
    } else {
      const torch::Tensor rows = beginning_of(slots[0], {m.count, m.rows});
      const torch::Tensor columns = beginning_of(slots[1], {m.count, m.columns});
      const torch::Tensor matrices = squares.reshape({m.count, m.rows, m.columns});
      const int64_t row_dim = p.dim() - 2;
      rows.mul_(keep).add_(mean_over(matrices, 2, row_dim + 1, context), 1.0 - keep);
      columns.mul_(keep).add_(mean_over(matrices, 1, row_dim, context), 1.0 - keep);
      const torch::Tensor mean = mean_over(rows, 1, row_dim, context).unsqueeze(1);
      const torch::Tensor product = (rows / mean).unsqueeze(2) * columns.unsqueeze(1);
      // As root_of_estimate() does.
      const double least =
          d.scalar_type() == torch::kDouble ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
      d.div_(product.clamp_min_(least).sqrt_().view(p.sizes()));
    }
    const torch::Tensor length = root_mean_square(d, context).div_(options_.clip_threshold).clamp_min_(1.0);
    p.sub_(d.mul_(scale.clamp_min_(options_.epsilon_2).mul_(rate(context)).div_(length)));
  }

 private:
  static double size_of(const Segment& segment) { return static_cast<double>(segment.size); }
  // Of a parameter, or of what has its shape, of which other replicas may have parts.
  static torch::Tensor root_mean_square(const torch::Tensor& x, const StepContext& context) {
    return norm_of(x, context).div_(std::sqrt(static_cast<double>(x.numel() * context.parts)));
  }
  // Returns the mean over dimension `dim` of x, which is dimension `of` of the parameter.
  static torch::Tensor mean_over(const torch::Tensor& x, int64_t dim, int64_t of, const StepContext& context) {
    if (context.add_up == nullptr || context.cut_dim != of) return x.mean(dim);
    torch::Tensor sum = x.sum(dim);
    (*context.add_up)(sum);
    return sum.div_(static_cast<double>(x.size(dim) * context.parts));
  }
  static torch::Tensor beginning_of(const torch::Tensor& slot, c10::IntArrayRef shape) {
    return slot.as_strided(shape, {shape[1], 1}, slot.storage_offset());
  }

  double beta_2(const StepContext& context) const {
    return 1.0 - std::pow(static_cast<double>(context.step), options_.beta_2_decay);
  }
  double rate(const StepContext& context) const {
    const double most = 1.0 / std::sqrt(static_cast<double>(context.step));
    return std::min(context.learning_rate, most);
  }
  double step_size(double scale, const StepContext& context) const {
    return std::max(options_.epsilon_2, scale) * rate(context);
  }

  template <typename T>
  void divide_vector(const kernels::PassTable<T>& table, const Segment& segment, const StepContext& context) const {
    std::vector<T> squares(static_cast<std::size_t>(segment.size), T(0));
    table.add_squares(squares.data(), gradient_of<T>(segment), segment.size);
    T* mean = slot_of<T>(segment, 0);
    table.blend(mean, squares.data(), segment.size, {.keep = beta_2(context), .add = options_.epsilon_1});
    table.divide_by_root(gradient_of<T>(segment), mean, segment.size, 1.0);
  }

  // Moves the means of one matrix and divides its gradient by the root of their product.
  template <typename T>
  void divide_matrix(const kernels::PassTable<T>& table, const Segment& segment, const Matrices& m, int64_t index,
                     const StepContext& context) const {
    T* g = gradient_of<T>(segment) + index * m.rows * m.columns;
    T* rows = slot_of<T>(segment, 0) + index * m.rows;
    T* columns = slot_of<T>(segment, 1) + index * m.columns;
    std::vector<T> row_sums(static_cast<std::size_t>(m.rows));
    std::vector<T> column_sums(static_cast<std::size_t>(m.columns), T(0));
    for (int64_t r = 0; r < m.rows; ++r) {
      const T* row = g + r * m.columns;
      row_sums[static_cast<std::size_t>(r)] = static_cast<T>(kernels::squared_norm(row, m.columns, segment.dtype));
      table.add_squares(column_sums.data(), row, m.columns);
    }
    const auto blend = [&](T* mean, const std::vector<T>& sums, int64_t n, int64_t terms) {
      table.blend(mean, sums.data(), n,
                  {.keep = beta_2(context), .share = 1.0 / static_cast<double>(terms), .add = options_.epsilon_1});
    };
    blend(rows, row_sums, m.rows, m.columns);
    blend(columns, column_sums, m.columns, m.rows);
    double mean = 0.0;
    for (int64_t r = 0; r < m.rows; ++r) mean += static_cast<double>(rows[r]);
    mean /= static_cast<double>(m.rows);
    for (int64_t r = 0; r < m.rows; ++r) {
      table.divide_by_root(g + r * m.columns, columns, m.columns, static_cast<double>(rows[r]) / mean);
    }
  }

  void apply_strided(const Segment& segment, const StepContext& context) const {
    const c10::IntArrayRef shape(segment.shape.data(), segment.shape.size());
    const c10::IntArrayRef strides(segment.strides.data(), segment.strides.size());
    const auto view = [&](void* memory) { return at::from_blob(memory, shape, strides, segment.dtype); };
    torch::Tensor p = view(segment.parameter);
    std::vector<torch::Tensor> slots = {view(segment.slots[0]), view(segment.slots[1])};
    apply(p, view(segment.gradient), slots, segment.treatment, context);
  }

  AdafactorOptions options_;
};

}  // namespace

Optimizer Adafactor(const AdafactorOptions& options) {
  require_not_negative("Adafactor", "-beta_2_decay", -options.beta_2_decay);
  require_not_negative("Adafactor", "epsilon_1", options.epsilon_1);
  require_not_negative("Adafactor", "epsilon_2", options.epsilon_2);
  if (!(options.clip_threshold > 0.0)) {
    fail<InvalidArgument>("[optimizer] Adafactor: clip_threshold is ", options.clip_threshold, ", wanted above 0");
  }
  return make_optimizer(std::make_shared<AdafactorRule>(options), options);
}

}  // namespace cohort
