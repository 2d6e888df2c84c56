// DLRM: dense features through dense layers, categories through tables of vectors, the products of all pairs of these
// vectors, and dense layers over them; names and arithmetic of facebookresearch/dlrm.
#include <ATen/Functions.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cohort/models/dlrm.h"
#include "models/zoo/parts.h"
#include "ops/dense_product.h"
#include "strategy/row_table.h"
#include "train/layers/support.h"

namespace cohort::models {

namespace {

constexpr const char* kDlrm = "dlrm";

// Dense layers with relu between them, named "0", "2", ...
class DenseStack final : public torch::nn::Module, public DividedModule {
 public:
  DenseStack(int64_t inputs, const std::vector<int64_t>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      layers_.emplace_back(register_module(std::to_string(2 * i), torch::nn::Linear(inputs, sizes[i])));
      const auto [in, out] = std::pair(static_cast<double>(inputs), static_cast<double>(sizes[i]));
      torch::nn::init::normal_(layers_.back()->weight, 0.0, std::sqrt(2.0 / (in + out)));
      torch::nn::init::normal_(layers_.back()->bias, 0.0, std::sqrt(1.0 / out));
      inputs = sizes[i];
    }
  }

  // With `last` there is a relu after the last layer, too.
  torch::Tensor forward(const torch::Tensor& x, bool last) {
    torch::Tensor y = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      y = in_parts(i) ? of_parts(i, y) : affine(layers_[i], y);
      if (last || i + 1 < layers_.size()) y = at::relu(y);
    }
    return y;
  }

  // The first layer of each pair is cut by columns and the second one by rows, so that what lies between them stays in
  // parts.
  void divide(const ParameterCuts& cuts, const Topology& /*topology*/) override {
    ParameterCuts wanted;
    for (std::size_t i = 0; i + 1 < layers_.size(); i += 2) {
      const std::string columns = std::to_string(2 * i), rows = std::to_string(2 * i + 2);
      wanted[columns + ".weight"] = {"*", ""};
      wanted[columns + ".bias"] = {"*"};
      wanted[rows + ".weight"] = {"", "*"};
    }
    if (wanted.empty()) {
      fail<InvalidArgument>("[models] dlrm: the layout cuts ", cuts.begin()->first, " of a single dense layer, wanted ",
                            "two or more to cut, or a whole one");
    }
    axis_ = require_cuts(kDlrm, cuts, wanted);
  }

 private:
  // Returns whether the replicas along the axis have parts of a layer, which is so but for an odd last one.
  bool in_parts(std::size_t layer) const { return !axis_.empty() && (layer % 2 == 1 || layer + 1 < layers_.size()); }
  torch::Tensor of_parts(std::size_t layer, const torch::Tensor& x) {
    torch::nn::Linear& dense = layers_[layer];
    if (layer % 2 == 0) return affine(dense, enter_axis(x, axis_));
    return sum_along(at::linear(x, dense->weight), axis_) + dense->bias;
  }

  std::string axis_;  // along which pairs of layers are divided; empty: all are whole
  std::vector<torch::nn::Linear> layers_;
};

class Dlrm final : public NamedModule, public DividedModule {
 public:
  explicit Dlrm(const DlrmOptions& options)
      : features_(options.num_dense_features), rows_(options.vocab_sizes), is_cut_(options.vocab_sizes.size()) {
    const auto tables = register_module("emb_l", std::make_shared<torch::nn::Module>());
    for (const int64_t rows : options.vocab_sizes) {
      torch::Tensor weight = torch::empty({rows, options.embedding_dim});
      const double limit = std::sqrt(1.0 / static_cast<double>(rows));
      torch::nn::init::uniform_(weight, -limit, limit);
      const std::string name = std::to_string(tables_.size());
      tables_.push_back(tables->register_module(name, std::make_shared<RowTable>(std::move(weight))));
    }
    bottom_ = register_module("bot_l", std::make_shared<DenseStack>(features_, options.bottom_mlp));
    const auto vectors = static_cast<int64_t>(tables_.size()) + 1;
    const int64_t pairs = vectors * (vectors - 1) / 2;
    top_ = register_module("top_l", std::make_shared<DenseStack>(options.embedding_dim + pairs, options.top_mlp));
    std::vector<int64_t> places;  // of the pairs in the matrix of products, each pair once
    for (int64_t i = 0; i < vectors; ++i) {
      for (int64_t j = 0; j < i; ++j) places.push_back(i * vectors + j);
    }
    places_ = at::tensor(places, torch::kLong);
  }

  NamedTensors forward(const NamedTensors& inputs) override {
    const torch::Tensor& dense = input_of(inputs, "dense_features", features_);
    const torch::Tensor& categories = input_of(inputs, "sparse_features", static_cast<int64_t>(tables_.size()));
    const torch::Tensor own = bottom_->forward(dense.to(tables_.front()->weight().scalar_type()), /*last=*/true);
    std::vector<torch::Tensor> vectors = look_up(categories);
    vectors.insert(vectors.begin(), own);
    const torch::Tensor all = at::stack(vectors, 1);
    const torch::Tensor products = at::matmul(all, all.transpose(1, 2)).flatten(1);
    const torch::Tensor pairs = products.index_select(1, places_.to(products.device()));
    return {{"logits", top_->forward(at::cat({own, pairs}, 1), /*last=*/false).squeeze(1)}};
  }

  // The replicas along the axis have some rows or some columns each, alike of all tables that are cut.
  void divide(const ParameterCuts& cuts, const Topology& /*topology*/) override {
    by_rows_ = !cuts.begin()->second.front().empty();
    ParameterCuts wanted;
    for (const auto& [name, axes] : cuts) wanted[name] = by_rows_ ? ParameterAxes{"*", ""} : ParameterAxes{"", "*"};
    axis_ = require_cuts(kDlrm, cuts, wanted);
    for (std::size_t i = 0; i < tables_.size(); ++i) is_cut_[i] = cuts.contains(c10::str("emb_l.", i, ".weight"));
  }

 private:
  // Returns the vectors of the categories, one a table. Those of tables that are cut come together in one message.
  std::vector<torch::Tensor> look_up(const torch::Tensor& categories) const {
    std::vector<torch::Tensor> vectors, parts;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const torch::Tensor indices = categories.select(1, static_cast<int64_t>(i)).to(torch::kLong).contiguous();
      vectors.push_back(is_cut_[i] && by_rows_
                            ? look_up_own("[models] dlrm", tables_[i]->weight(), indices, rows_[i], axis_)
                            : tables_[i]->forward(indices));
      if (is_cut_[i]) parts.push_back(vectors.back());
    }
    if (parts.empty()) return vectors;
    const torch::Tensor together = at::stack(parts, 1);
    const torch::Tensor whole = by_rows_ ? sum_along(together, axis_) : gather_along(together, axis_, 2);
    int64_t next = 0;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      if (is_cut_[i]) vectors[i] = whole.select(1, next++);
    }
    return vectors;
  }

  static const torch::Tensor& input_of(const NamedTensors& inputs, const char* name, int64_t columns) {
    const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const auto& each) { return each.first == name; });
    if (found == inputs.end()) {
      fail<InvalidArgument>("[models] dlrm: the inputs have no ", name, "; wanted dense_features and sparse_features");
    }
    const torch::Tensor& x = found->second;
    if (x.dim() == 2 && x.size(1) == columns) return x;
    fail<InvalidArgument>("[models] dlrm: ", name, " are ", x.sizes(), ", wanted [examples, ", columns, "]");
  }

  int64_t features_;
  std::vector<int64_t> rows_;  // of each table, those of all replicas
  std::vector<bool> is_cut_;   // of each table
  bool by_rows_ = false;       // tables that are cut have some rows, else some columns
  std::string axis_;           // along which they are cut
  std::vector<std::shared_ptr<RowTable>> tables_;
  std::shared_ptr<DenseStack> bottom_, top_;
  torch::Tensor places_;
};

void check(const DlrmOptions& options) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) fail<InvalidArgument>("[models] dlrm: ", name, " is ", value, ", wanted 1 or more");
  };
  positive("num_dense_features", options.num_dense_features);
  positive("embedding_dim", options.embedding_dim);
  const auto all = [&](const char* name, const std::vector<int64_t>& values) {
    if (values.empty()) fail<InvalidArgument>("[models] dlrm: ", name, " is empty");
    for (const int64_t value : values) positive(name, value);
  };
  all("vocab_sizes", options.vocab_sizes);
  all("bottom_mlp", options.bottom_mlp);
  all("top_mlp", options.top_mlp);
  if (options.bottom_mlp.back() != options.embedding_dim) {
    fail<InvalidArgument>("[models] dlrm: bottom_mlp ends with ", options.bottom_mlp.back(), ", wanted embedding_dim, ",
                          options.embedding_dim);
  }
  if (options.top_mlp.back() != 1) {
    fail<InvalidArgument>("[models] dlrm: top_mlp ends with ", options.top_mlp.back(), ", wanted 1");
  }
}

}  // namespace

std::shared_ptr<NamedModule> dlrm(const DlrmOptions& options) {
  check(options);
  return std::make_shared<Dlrm>(options);
}

}  // namespace cohort::models
