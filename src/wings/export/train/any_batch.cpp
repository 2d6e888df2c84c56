#include "wings/export/train/any_batch.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/fail.h"

namespace cohort::exports {

namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr const char* kFixed = "; ExportOptions::batch_size makes a file for batches of one size";

class BatchComparison {
 public:
  BatchComparison(std::string speaker, Graph& graph, int64_t batch, int64_t other_batch)
      : speaker_(std::move(speaker)), graph_(graph), batch_(batch), other_batch_(other_batch) {}

  BatchDims compare(const Graph& other) {
    for (std::size_t i = 0; i < graph_.inputs().size(); ++i) note_same(other.inputs()[i], graph_.inputs()[i]);
    auto here = graph_.nodes().begin();
    auto there = other.nodes().begin();
    for (; here != graph_.nodes().end() && there != other.nodes().end(); ++here, ++there) compare(**here, **there);
    if (here != graph_.nodes().end() || there != other.nodes().end()) refuse_other("the number of operations");
    for (const auto& [constant, number] : differing_) replace(*constant, number);
    return std::move(dims_);
  }

 private:
  struct Number {
    int64_t factor = 0;  // of the size of the batch
    int64_t added = 0;
    bool operator<(const Number& than) const { return std::tie(factor, added) < std::tie(than.factor, than.added); }
  };

  void note_same(const Value* other, const Value* here) {
    same_[other] = here;
    const auto sizes_of = [](const Value* value) {
      const auto type = value->type()->cast<c10::TensorType>();
      return type ? type->sizes().concrete_sizes().value_or(std::vector<int64_t>()) : std::vector<int64_t>();
    };
    const std::vector<int64_t> a = sizes_of(here), b = sizes_of(other);
    if (a == b || a.size() != b.size()) return;
    std::vector<bool>& depends = dims_[here];
    for (std::size_t dim = 0; dim < a.size(); ++dim) depends.push_back(a[dim] != b[dim]);
  }

  void compare(Node& node, const Node& other) {
    if (node.kind() != other.kind()) {
      refuse_other(c10::str(node.kind().toQualString(), " where there is ", other.kind().toQualString()));
    }
    bool same = node.inputs().size() == other.inputs().size() && node.outputs().size() == other.outputs().size();
    for (std::size_t i = 0; same && i < node.inputs().size(); ++i) same = same_[other.input(i)] == node.input(i);
    if (node.kind() == c10::prim::GetAttr) same = same && node.s(c10::attr::name) == other.s(c10::attr::name);
    if (!same) refuse_other(c10::str("the inputs of ", node.kind().toQualString()));
    for (std::size_t i = 0; i < node.outputs().size(); ++i) note_same(other.output(i), node.output(i));
    if (node.kind() == c10::prim::Constant) compare_constants(node, other);
  }

  void compare_constants(Node& node, const Node& other) {
    const auto a = torch::jit::toIValue(node.output());
    const auto b = torch::jit::toIValue(other.output());
    if (a.has_value() != b.has_value()) refuse_other("a constant");
    if (!a) return;
    if (a->isTensor() && b->isTensor()) {
      const at::Tensor &x = a->toTensor(), &y = b->toTensor();
      if (x.sizes() == y.sizes() && x.dtype() == y.dtype() && at::equal(x, y)) return;
      refuse_other(c10::str("a tensor of sizes ", x.sizes(), " and ", y.sizes(), " that was made on the host"));
    }
    if (a->isInt() && b->isInt()) return compare_numbers(node, a->toInt(), b->toInt());
    if (*a != *b) refuse_other(c10::str("the constant ", *a, " of ", batch_, " examples, ", *b, " of ", other_batch_));
  }

  void compare_numbers(Node& node, int64_t a, int64_t b) {
    if (a == b) return;
    const int64_t factor = (b - a) / (other_batch_ - batch_);
    if (factor * (other_batch_ - batch_) != b - a) {
      refuse_other(c10::str("the number ", a, " of ", batch_, " examples, ", b, " of ", other_batch_));
    }
    differing_.emplace_back(&node, Number{.factor = factor, .added = a - factor * batch_});
  }

  void replace(Node& constant, Number number) {
    Value*& value = values_[number];
    if (value == nullptr) {
      const torch::jit::WithInsertPoint at_the_begin(last_ == nullptr ? *graph_.nodes().begin() : last_->next());
      const auto insert = [&](c10::Symbol kind, Value* a, int64_t b) {
        Value* const by = graph_.insertConstant(b);
        return graph_.insert(kind, {a, by});
      };
      if (size_ == nullptr) size_ = insert(c10::aten::size, graph_.inputs()[1], 0);
      value = number.factor == 1 ? size_ : insert(c10::aten::mul, size_, number.factor);
      if (number.added != 0) value = insert(c10::aten::add, value, number.added);
      last_ = value->node();
    }
    constant.output()->replaceAllUsesWith(value);
  }

  [[noreturn]] void refuse_other(const std::string& what) const {
    fail<InvalidArgument>(speaker_, "batches of ", batch_, " and ", other_batch_, " examples go other ways: ", what,
                          kFixed);
  }

  std::string speaker_;
  Graph& graph_;
  int64_t batch_, other_batch_;
  std::unordered_map<const Value*, const Value*> same_;  // values of the other graph
  std::vector<std::pair<Node*, Number>> differing_;      // constants
  BatchDims dims_;
  std::map<Number, Value*> values_;
  Value* size_ = nullptr;  // that of the batch
  Node* last_ = nullptr;   // the last node that was inserted
};

}  // namespace

BatchDims take_any_batch(const std::string& speaker, Graph& graph, int64_t batch, const Graph& other,
                         int64_t other_batch) {
  BatchDims dims = BatchComparison(speaker, graph, batch, other_batch).compare(other);
  torch::jit::EliminateDeadCode(graph.block());
  return dims;
}

}  // namespace cohort::exports
