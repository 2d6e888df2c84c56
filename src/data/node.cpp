#include "data/node.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "data/state.h"

namespace cohort {

namespace {

torch::Tensor row_of(const torch::Tensor& column, int64_t row) {
  return column.defined() ? column.select(0, row) : column;
}

nlohmann::json save_tensor(const torch::Tensor& tensor, std::vector<torch::Tensor>& tensors) {
  if (!tensor.defined()) return -1;
  tensors.push_back(tensor);
  return tensors.size() - 1;
}

torch::Tensor restore_tensor(const nlohmann::json& index, const std::vector<torch::Tensor>& tensors) {
  const auto at = index.get<int64_t>();
  return at < 0 ? torch::Tensor() : tensors.at(static_cast<std::size_t>(at));
}

}  // namespace

Example ElementIterator::materialise(Element element) const {
  if (element.row < 0) return std::move(element.example);
  const Example& columns = *table();
  Example example{
      row_of(columns.x, element.row), row_of(columns.y, element.row), row_of(columns.weight, element.row), {}};
  for (const torch::Tensor& column : columns.more) example.more.push_back(row_of(column, element.row));
  return example;
}

Element ElementIterator::restore_own(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) const {
  Element element = restore_element(tree, tensors);
  const Example* rows = table();
  const bool fits = rows != nullptr ? element.row >= 0 && element.row < rows->size() : !tree.is_number();
  if (!fits) {
    fail<InvalidArgument>("[data] iterator state: it belongs to another pipeline: ",
                          tree.is_number() ? c10::str("row ", element.row) : std::string("an example"), ", wanted ",
                          rows != nullptr ? c10::str("a row below ", rows->size()) : std::string("an example"));
  }
  return element;
}

nlohmann::json save_element(const Element& element, std::vector<torch::Tensor>& tensors) {
  if (element.row >= 0) return element.row;
  nlohmann::json tree = nlohmann::json::array();
  tree.push_back(save_tensor(element.example.x, tensors));
  tree.push_back(save_tensor(element.example.y, tensors));
  tree.push_back(save_tensor(element.example.weight, tensors));
  for (const torch::Tensor& column : element.example.more) tree.push_back(save_tensor(column, tensors));
  return tree;
}

Element restore_element(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) {
  if (tree.is_number()) return {.example = {}, .row = tree.get<int64_t>()};
  Element element{.example = {restore_tensor(tree.at(0), tensors),
                              restore_tensor(tree.at(1), tensors),
                              restore_tensor(tree.at(2), tensors),
                              {}}};
  for (std::size_t i = 3; i < tree.size(); ++i) element.example.more.push_back(restore_tensor(tree[i], tensors));
  return element;
}

Iterator::Iterator(std::unique_ptr<ElementIterator> elements) : elements_(std::move(elements)) {}
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

std::optional<Example> Iterator::next() {
  std::optional<Example> example(std::in_place);
  if (!elements_->next_example(*example)) example.reset();
  return example;
}

std::string Iterator::save() const {
  IteratorState state;
  state.tree = elements_->save(state.tensors);
  return to_bytes(state);
}

void Iterator::restore(const std::string& state) {
  restore_from(state, "iterator state",
               [&](const IteratorState& parsed) { elements_->restore(parsed.tree, parsed.tensors); });
}

}  // namespace cohort
