#include "data/rebatch.h"

#include <algorithm>

#include "base/columns.h"
#include "base/fail.h"
#include "data/node.h"

namespace cohort {

// Takes the next incoming batch. Returns false at the end.
bool Rebatch::load() {
  Example batch;
  ended_ = ended_ || !input_(batch);
  if (ended_) return false;
  if (current_.input().defined() && !same_names(current_, batch)) {
    fail<InvalidArgument>("[data] distributed input: batches with different columns: ", list_columns(current_), " and ",
                          list_columns(batch));
  }
  current_ = std::move(batch);
  rows_ = current_.size();
  at_ = 0;
  return true;
}

Example Rebatch::take(int64_t size) {
  std::vector<Example> parts;
  while (size > 0) {
    if (at_ == rows_) {
      if (!load()) break;
      continue;
    }
    const int64_t count = std::min(size, rows_ - at_);
    parts.push_back(at_ == 0 && count == rows_ ? current_ : current_.rows(at_, at_ + count));
    at_ += count;
    size -= count;
  }
  if (parts.empty()) return current_.input().defined() ? current_.rows(0, 0) : Example{};
  return concatenate_rows(parts);
}

bool Rebatch::next(std::vector<Example>& shares) {
  shares.clear();
  if (!current_.input().defined()) load();  // an empty share has the shape of the others, the very first one too
  int64_t total = 0;
  for (std::size_t i = 0; i < step_; ++i) {
    shares.push_back(take(sizes_[turn_]));
    turn_ = (turn_ + 1) % sizes_.size();
    if (shares.back().input().defined()) total += shares.back().size();
  }
  while (total == 0 && at_ == rows_ && load()) {
  }
  return total > 0 || at_ < rows_;
}

nlohmann::json Rebatch::save(std::vector<torch::Tensor>& tensors) const {
  nlohmann::json tree{{"turn", turn_}, {"at", at_}, {"rows", rows_}, {"ended", ended_}};
  if (current_.input().defined()) tree["current"] = save_example(current_, tensors);
  return tree;
}

void Rebatch::restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) {
  turn_ = tree.at("turn").get<std::size_t>() % sizes_.size();
  at_ = tree.at("at").get<int64_t>();
  rows_ = tree.at("rows").get<int64_t>();
  ended_ = tree.at("ended").get<bool>();
  current_ = tree.contains("current") ? restore_example(tree.at("current"), tensors) : Example{};
}

}  // namespace cohort
