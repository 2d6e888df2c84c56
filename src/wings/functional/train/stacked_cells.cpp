// StackedRNNCells: the output of each cell is the input of the next.
#include "wings/functional/train/rnn.h"

namespace cohort {

namespace {

using CellKinds = std::vector<std::shared_ptr<const RNNCellKind>>;

// Calls fn with each cell and the context of its input. Returns the shape of the last output.
template <typename Fn>
Shape walk_cells(const CellKinds& cells, BuildContext context, const Fn& fn) {
  for (const auto& cell : cells) {
    Shape output = cell->output_shape(context);
    fn(*cell, context);
    context.input = std::move(output);
  }
  return context.input;
}

class StackedCellsModule final : public RNNCellModule {
 public:
  StackedCellsModule(const CellKinds& cells, const BuildContext& context) {
    walk_cells(cells, context, [&](const RNNCellKind& cell, const BuildContext& own) {
      cells_.push_back(register_module("cell_" + std::to_string(cells_.size()), cell.build_cell(own)));
      counts_.push_back(cell.state_shapes(own).size());
    });
  }

  torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& states, RNNCellMemo& memo) override {
    memo.cells.resize(cells_.size());
    torch::Tensor y = x;
    std::vector<torch::Tensor> after;
    std::size_t first = 0;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      std::vector<torch::Tensor> own;
      for (std::size_t s = first; s < first + counts_[i] && !states.empty(); ++s) own.push_back(states.at(s));
      y = cells_[i]->step(y, own, memo.cells[i]);
      after.insert(after.end(), own.begin(), own.end());
      first += counts_[i];
    }
    states = std::move(after);
    return y;
  }
  torch::Tensor penalty() const override {
    torch::Tensor sum;
    for (const auto& cell : cells_) {
      const torch::Tensor cost = cell->penalty();
      if (cost.defined()) sum = sum.defined() ? sum + cost : cost;
    }
    return sum;
  }

 private:
  std::vector<std::shared_ptr<RNNCellModule>> cells_;
  std::vector<std::size_t> counts_;  // of each cell's states
};

class StackedCellsKind final : public RNNCellKind {
 public:
  explicit StackedCellsKind(const std::vector<Layer>& cells) {
    if (cells.empty()) fail_option(type(), "there are no cells");
    for (const Layer& layer : cells) kinds_.push_back(cell_kind(type(), layer));
  }
  std::string_view type() const override { return "StackedRNNCells"; }
  std::string_view base_name() const override { return "stacked_rnn_cells"; }
  Shape output_shape(const BuildContext& context) const override {
    return walk_cells(kinds_, context, [](const RNNCellKind&, const BuildContext&) {});
  }
  std::vector<Shape> state_shapes(const BuildContext& context) const override {
    std::vector<Shape> all;
    walk_cells(kinds_, context, [&](const RNNCellKind& cell, const BuildContext& own) {
      const std::vector<Shape> shapes = cell.state_shapes(own);
      all.insert(all.end(), shapes.begin(), shapes.end());
    });
    return all;
  }
  std::shared_ptr<RNNCellModule> build_cell(const BuildContext& context) const override {
    return std::make_shared<StackedCellsModule>(kinds_, context);
  }

 private:
  CellKinds kinds_;
};

}  // namespace

Layer StackedRNNCells(std::vector<Layer> cells) {
  return Layer(made_with<StackedCellsKind>(cells, cells));
}

}  // namespace cohort
