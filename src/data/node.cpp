#include "data/node.h"

#include <ATen/Functions.h>

#include "base/columns.h"
#include "base/fail.h"
#include "data/state.h"

namespace cohort {

namespace {

nlohmann::json save_tensor(const torch::Tensor& tensor, std::vector<torch::Tensor>& tensors) {
  if (!tensor.defined()) return -1;
  tensors.push_back(tensor);
  return tensors.size() - 1;
}

torch::Tensor restore_tensor(const nlohmann::json& index, const std::vector<torch::Tensor>& tensors) {
  const auto at = index.get<int64_t>();
  return at < 0 ? torch::Tensor() : tensors.at(static_cast<std::size_t>(at));
}

// The place of the mask among the columns. Plain examples, without masks or names, are saved as a list that leaves it
// out: x, y, weight, more.
constexpr std::size_t kMaskAt = 3;

bool is_plain(const Example& example) {
  return !example.mask.defined() && same_names(example, {});
}

}  // namespace

Example ElementIterator::example_of_row(int64_t row) const {
  return map_columns(*table(), [&](const torch::Tensor& column) { return column.select(0, row); });
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
  return save_example(*element.example, tensors);
}

nlohmann::json save_example(const Example& example, std::vector<torch::Tensor>& tensors) {
  nlohmann::json columns = nlohmann::json::array();
  for_each_column(example, [&](const torch::Tensor& column) { columns.push_back(save_tensor(column, tensors)); });
  if (is_plain(example)) {
    columns.erase(kMaskAt);
    return columns;
  }
  nlohmann::json names = nlohmann::json::object();
  for (const NamedColumns& group : kNamedColumns) {
    for (const auto& [name, column] : example.*group.columns) names[group.name].push_back(name);
  }
  return {{"columns", columns}, {"names", names}};
}

Element restore_element(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) {
  Element element;
  if (tree.is_number()) {
    element.row = tree.get<int64_t>();
  } else {
    element = restore_example(tree, tensors);
  }
  return element;
}

Example restore_example(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) {
  const nlohmann::json& saved = tree.is_array() ? tree : tree.at("columns");
  std::vector<torch::Tensor> columns;
  for (const auto& column : saved) columns.push_back(restore_tensor(column, tensors));
  Example like;
  std::size_t least = kSingleColumns.size();
  if (tree.is_array()) {
    if (columns.size() >= kMaskAt) columns.emplace(columns.begin() + kMaskAt);
  } else {
    for (const NamedColumns& group : kNamedColumns) {
      const auto names = tree.at("names").find(group.name);
      if (names == tree.at("names").end()) continue;
      for (const auto& name : *names) (like.*group.columns).emplace_back(name.get<std::string>(), torch::Tensor());
      least += names->size();
    }
  }
  if (columns.size() < least) {
    fail<InvalidArgument>("[data] iterator state: an example has ", columns.size(), " columns, wanted ", least);
  }
  return with_columns(like, std::move(columns));
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
