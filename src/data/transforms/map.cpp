#include <deque>
#include <future>

#include "base/cpu_threads.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "data/node.h"

namespace cohort {

namespace {

class MapIterator final : public ElementIterator {
 public:
  MapIterator(std::unique_ptr<ElementIterator> input, const Dataset::Map& fn) : input_(std::move(input)), fn_(fn) {}

  bool next(Element& element) override {
    Example example;
    if (!input_->next_example(example)) return false;
    element = {.example = fn_(std::move(example))};
    return true;
  }
  nlohmann::json save(std::vector<torch::Tensor>& tensors) override { return {{"map", input_->save(tensors)}}; }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("map"), tensors);
  }

 private:
  std::unique_ptr<ElementIterator> input_;
  const Dataset::Map& fn_;
};

// Several elements at once: their results wait in input order.
class ParallelMapIterator final : public ElementIterator {
 public:
  ParallelMapIterator(std::unique_ptr<ElementIterator> input, const Dataset::Map& fn, const MapOptions& options)
      : input_(std::move(input)), fn_(fn), options_(options), pool_(options.num_parallel_calls) {}

  bool next(Element& element) override {
    fill();
    if (pending_.empty()) return false;
    wait_for(pending_.front());
    std::future<Example> done = std::move(pending_.front());
    pending_.pop_front();
    element = {.example = done.get()};
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    // What is under way is finished and saved as it is. An error among it is reported, since a position behind it
    // would leave an element out, and stays where it is for next().
    nlohmann::json waiting = nlohmann::json::array();
    std::exception_ptr error;
    for (std::future<Example>& future : pending_) {
      wait_for(future);
      try {
        Example example = future.get();
        waiting.push_back(save_element({.example = example}, tensors));
        future = ready(std::move(example));
      } catch (...) {
        if (!error) error = std::current_exception();
        future = failed(std::current_exception());
      }
    }
    if (error) std::rethrow_exception(error);
    return {{"map", input_->save(tensors)}, {"waiting", waiting}, {"ended", ended_}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    pending_.clear();
    input_->restore(tree.at("map"), tensors);
    ended_ = tree.at("ended").get<bool>();
    for (const auto& element : tree.at("waiting")) pending_.push_back(ready(restore_element(element, tensors).example));
  }

 private:
  static std::future<Example> ready(Example example) {
    std::promise<Example> promise;
    promise.set_value(std::move(example));
    return promise.get_future();
  }
  static std::future<Example> failed(std::exception_ptr error) {
    std::promise<Example> promise;
    promise.set_exception(std::move(error));
    return promise.get_future();
  }

  void wait_for(const std::future<Example>& future) const {
    if (future.wait_for(options_.timeout) == std::future_status::ready) return;
    fail<DeadlineExceeded>("[data] map: waited ", to_text(options_.timeout), " for its function to return");
  }

  void fill() {
    Example example;
    while (!ended_ && pending_.size() < 2 * static_cast<std::size_t>(options_.num_parallel_calls)) {
      try {
        ended_ = !input_->next_example(example);
      } catch (...) {
        pending_.push_back(failed(std::current_exception()));  // its turn is after the elements before it
        return;
      }
      if (ended_) return;
      pending_.push_back(pool_.submit([this, example = std::move(example)]() mutable {
        const IntraOpThreads alone(1);  // the parallelism is that of the calls
        return fn_(std::move(example));
      }));
    }
  }

  std::unique_ptr<ElementIterator> input_;
  const Dataset::Map& fn_;
  MapOptions options_;
  std::deque<std::future<Example>> pending_;
  bool ended_ = false;
  ThreadPool pool_;  // the last member: its threads use the others
};

class MapNode final : public UnaryNode {
 public:
  MapNode(NodePtr input, Dataset::Map fn, const MapOptions& options)
      : UnaryNode(std::move(input)), fn_(std::move(fn)), options_(options) {}
  std::unique_ptr<ElementIterator> iterate(const IteratorOptions& options) const override {
    if (options_.num_parallel_calls == 1) return std::make_unique<MapIterator>(input().iterate(options), fn_);
    return std::make_unique<ParallelMapIterator>(input().iterate(options), fn_, options_);
  }

 private:
  Dataset::Map fn_;
  MapOptions options_;
};

}  // namespace

NodePtr make_map(NodePtr input, Dataset::Map fn, const MapOptions& options) {
  return std::make_shared<MapNode>(std::move(input), std::move(fn), options);
}

}  // namespace cohort
