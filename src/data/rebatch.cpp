#include "data/rebatch.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "data/node.h"

namespace cohort {

namespace {

Example concatenated(const std::vector<Example>& parts) {
  if (parts.size() == 1) return parts.front();
  const auto join = [&](const auto& column) {
    std::vector<torch::Tensor> tensors;
    for (const Example& part : parts) tensors.push_back(column(part));
    return tensors.front().defined() ? at::cat(tensors, 0) : torch::Tensor();
  };
  Example whole{join([](const Example& e) { return e.x; }),
                join([](const Example& e) { return e.y; }),
                join([](const Example& e) { return e.weight; }),
                {}};
  for (std::size_t i = 0; i < parts.front().more.size(); ++i) {
    whole.more.push_back(join([i](const Example& e) { return e.more[i]; }));
  }
  return whole;
}

}  // namespace

// The next incoming batch; false at the end.
bool Rebatch::load() {
  Example batch;
  ended_ = ended_ || !input_(batch);
  if (ended_) return false;
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
  if (parts.empty()) return current_.x.defined() ? current_.rows(0, 0) : Example{};
  return concatenated(parts);
}

bool Rebatch::next(std::vector<Example>& shares) {
  shares.clear();
  if (!current_.x.defined()) load();  // an empty share has the shape of the others, the very first one too
  int64_t total = 0;
  for (std::size_t i = 0; i < step_; ++i) {
    shares.push_back(take(sizes_[turn_]));
    turn_ = (turn_ + 1) % sizes_.size();
    if (shares.back().x.defined()) total += shares.back().size();
  }
  while (total == 0 && at_ == rows_ && load()) {
  }
  return total > 0 || at_ < rows_;
}

nlohmann::json Rebatch::save(std::vector<torch::Tensor>& tensors) const {
  nlohmann::json tree{{"turn", turn_}, {"at", at_}, {"rows", rows_}, {"ended", ended_}};
  if (current_.x.defined()) tree["current"] = save_element({.example = current_}, tensors);
  return tree;
}

void Rebatch::restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) {
  turn_ = tree.at("turn").get<std::size_t>() % sizes_.size();
  at_ = tree.at("at").get<int64_t>();
  rows_ = tree.at("rows").get<int64_t>();
  ended_ = tree.at("ended").get<bool>();
  current_ = tree.contains("current") ? restore_element(tree.at("current"), tensors).example : Example{};
}

}  // namespace cohort
