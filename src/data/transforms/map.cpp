#include <ATen/Context.h>

#include <algorithm>
#include <deque>
#include <future>
#include <optional>

#include "base/cpu_threads.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "data/activity.h"
#include "data/node.h"
#include "data/random.h"
#include "data/read_ahead.h"
#include "device/host_random.h"

namespace cohort {

namespace {

// The function of a map, with a number that belongs to the element.
using NumberedMap = std::function<Example(Example, uint64_t number)>;

constexpr const char* kFunction = "the function of map()";

// Gives elements random numbers that depend on the seed, the epoch and the position alone, not on the order in which
// they are computed.
class Numbers {
 public:
  explicit Numbers(uint64_t stream) : stream_(stream) {}
  uint64_t next() { return Random(stream_, static_cast<uint64_t>(taken_++))(); }

  nlohmann::json save() const { return {{"stream", stream_}, {"taken", taken_}}; }
  void restore(const nlohmann::json& tree) {
    stream_ = tree.at("stream").get<uint64_t>();
    taken_ = tree.at("taken").get<int64_t>();
  }

 private:
  uint64_t stream_;
  int64_t taken_ = 0;
};

class MapIterator final : public ElementIterator {
 public:
  MapIterator(std::unique_ptr<ElementIterator> input, const NumberedMap& fn, const Numbers& numbers)
      : input_(std::move(input)), fn_(fn), numbers_(numbers) {}

  bool next(Element& element) override {
    Example example;
    if (!input_->next_example(example)) return false;
    const Calling calling(kFunction);
    element = fn_(std::move(example), numbers_.next());
    return true;
  }
  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    return {{"map", input_->save(tensors)}, {"numbers", numbers_.save()}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("map"), tensors);
    numbers_.restore(tree.at("numbers"));
  }

 private:
  std::unique_ptr<ElementIterator> input_;
  const NumberedMap& fn_;
  Numbers numbers_;
};

// Maps several elements at a time. Their results wait in the order of the input.
class ParallelMapIterator final : public ElementIterator {
 public:
  ParallelMapIterator(std::unique_ptr<ElementIterator> input, std::shared_ptr<const NumberedMap> fn,
                      const Numbers& numbers, const MapOptions& options)
      : input_(std::move(input)),
        fn_(std::move(fn)),
        numbers_(numbers),
        options_(options),
        pool_(options.num_parallel_calls) {}
  ~ParallelMapIterator() override {
    if (pool_.end(patience(options_.timeout, late_))) return;
    log().warn("[data] map: its function has not returned in time; the thread that runs it is left behind");
  }

  bool next(Element& element) override {
    fill();
    if (pending_.empty()) return false;
    wait_for(pending_.front());
    std::future<Example> done = std::move(pending_.front());
    pending_.pop_front();
    element = done.get();
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    // Elements under way are finished and saved. An error among them is reported, because a position behind it would
    // leave an element out; it stays in its place for next().
    nlohmann::json waiting = nlohmann::json::array();
    std::exception_ptr error;
    for (std::future<Example>& future : pending_) {
      wait_for(future);
      try {
        Example example = future.get();
        waiting.push_back(save_example(example, tensors));
        future = ready(std::move(example));
      } catch (...) {
        if (!error) error = std::current_exception();
        future = failed(std::current_exception());
      }
    }
    if (error) std::rethrow_exception(error);
    return {{"map", input_->save(tensors)}, {"numbers", numbers_.save()}, {"waiting", waiting}, {"ended", ended_}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    pending_.clear();
    input_->restore(tree.at("map"), tensors);
    numbers_.restore(tree.at("numbers"));
    ended_ = tree.at("ended").get<bool>();
    for (const auto& element : tree.at("waiting")) pending_.push_back(ready(restore_example(element, tensors)));
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

  void wait_for(const std::future<Example>& future) {
    constexpr std::chrono::milliseconds kSlice{100};  // between two looks whether this thread is to end
    const Calling calling(kFunction);
    const Deadline deadline(options_.timeout);
    while (future.wait_for(std::min(deadline.left(), kSlice)) != std::future_status::ready) {
      const Activity* const own = Activity::of_thread();
      late_ = deadline.passed() || (own != nullptr && own->late());
      throw_if_stopped();
      if (!deadline.passed()) continue;
      fail<DeadlineExceeded>("[data] map: waited ", to_text(options_.timeout), " for its function to return");
    }
  }

  void fill() {
    Example example;
    while (!ended_ && pending_.size() < 2 * static_cast<std::size_t>(options_.num_parallel_calls)) {
      try {
        ended_ = !input_->next_example(example);
      } catch (...) {
        pending_.push_back(failed(std::current_exception()));  // it is thrown after the elements before it
        return;
      }
      if (ended_) return;
      pending_.push_back(pool_.submit([fn = fn_, number = numbers_.next(), example = std::move(example)]() mutable {
        const IntraOpThreads alone(1);  // the calls run in parallel, so each has one thread
        return (*fn)(std::move(example), number);
      }));
    }
  }

  std::unique_ptr<ElementIterator> input_;
  std::shared_ptr<const NumberedMap> fn_;
  Numbers numbers_;
  MapOptions options_;
  std::deque<std::future<Example>> pending_;
  bool ended_ = false;
  bool late_ = false;  // a wait for the function was in vain
  ThreadPool pool_;
};

class MapNode final : public UnaryNode {
 public:
  // Without a seed the function has no use for its numbers.
  MapNode(NodePtr input, NumberedMap fn, std::optional<uint64_t> seed, const MapOptions& options)
      : UnaryNode(std::move(input)),
        fn_(std::make_shared<const NumberedMap>(std::move(fn))),
        seed_(seed),
        options_(options) {}
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    if (!seed_) return with_numbers(input().iterate(options), 0);
    const uint64_t epoch = Random(*seed_, static_cast<uint64_t>(options.epoch))();
    const uint64_t stream = Random(epoch, static_cast<uint64_t>(options.stream))();
    // A random_map() before this one would draw the same numbers for an element.
    PassOptions inner = options;
    inner.salt = Random(options.salt, 0)();
    return with_numbers(input().iterate(inner), options.salt == 0 ? stream : Random(stream, options.salt)());
  }

 private:
  std::unique_ptr<ElementIterator> with_numbers(std::unique_ptr<ElementIterator> in, uint64_t stream) const {
    const Numbers numbers(stream);
    if (options_.num_parallel_calls == 1) return std::make_unique<MapIterator>(std::move(in), *fn_, numbers);
    return std::make_unique<ParallelMapIterator>(std::move(in), fn_, numbers, options_);
  }

  std::shared_ptr<const NumberedMap> fn_;
  std::optional<uint64_t> seed_;
  MapOptions options_;
};

}  // namespace

NodePtr make_map(NodePtr input, Dataset::Map fn, const MapOptions& options) {
  auto numbered = [fn = std::move(fn)](Example example, uint64_t /*number*/) { return fn(std::move(example)); };
  return std::make_shared<MapNode>(std::move(input), std::move(numbered), /*seed=*/std::nullopt, options);
}

NodePtr make_random_map(NodePtr input, Dataset::RandomMap fn, std::optional<uint64_t> seed, const MapOptions& options) {
  auto numbered = [fn = std::move(fn)](Example example, uint64_t number) {
    return fn(std::move(example), make_host_generator(number));
  };
  const uint64_t given = seed ? *seed : host_generator().current_seed();
  return std::make_shared<MapNode>(std::move(input), std::move(numbered), given, options);
}

}  // namespace cohort
