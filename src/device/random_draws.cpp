// LibTorch tells a thread's observers when an operation begins and ends (at::RecordFunction). The dispatcher knows
// which operations take a generator; what such a one draws from is the generator whose state it changes.
#include "device/random_draws.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>

namespace cohort {

namespace {

thread_local RandomWatch* innermost = nullptr;
thread_local int depth = 0;  // operations that draw, one within the other: aten::randperm is several

// Returns the names of the operations of which some form takes a generator.
const std::set<std::string, std::less<>>& drawing_operations() {
  static const auto names = [] {
    std::set<std::string, std::less<>> found;
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto handle = dispatcher.findSchema(name);
      if (!handle) continue;
      for (const c10::Argument& argument : handle->schema().arguments()) {
        c10::TypePtr type = argument.type();
        if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
        if (type->kind() == c10::TypeKind::GeneratorType) found.insert(name.name);
      }
    }
    return found;
  }();
  return names;
}

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

std::vector<at::Generator> default_generators(at::Device device) {
  std::vector<at::Generator> generators = {at::globalContext().defaultGenerator(at::kCPU)};
  if (device.type() != at::kCPU) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

struct RandomObserver {
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    if (!drawing_operations().contains(std::string_view(function.name())) || depth++ > 0) return nullptr;
    for (RandomWatch* watch = innermost; watch != nullptr; watch = watch->outer_) watch->begin();
    return nullptr;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
    if (!drawing_operations().contains(std::string_view(function.name())) || --depth > 0) return;
    for (RandomWatch* watch = innermost; watch != nullptr; watch = watch->outer_) watch->end(function.name());
  }
};

RandomWatch::RandomWatch(std::vector<at::Generator> generators)
    : outer_(innermost), generators_(std::move(generators)) {
  (void)drawing_operations();
  if (outer_ == nullptr) {
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&RandomObserver::begin, &RandomObserver::end).scopes({at::RecordScope::FUNCTION}));
  }
  innermost = this;
}

RandomWatch::~RandomWatch() {
  innermost = outer_;
  if (outer_ == nullptr) at::removeCallback(handle_);
}

void RandomWatch::begin() {
  before_.clear();
  for (const at::Generator& generator : generators_) before_.push_back(state_of(generator));
}

void RandomWatch::end(const char* operation) {
  for (std::size_t i = 0; i < before_.size(); ++i) {
    if (state_of(generators_[i]).equal(before_[i])) continue;
    const auto same = [&](const RandomDraw& draw) { return draw.generator == generators_[i]; };
    if (std::none_of(draws_.begin(), draws_.end(), same)) {
      draws_.push_back({.generator = generators_[i], .before = before_[i], .operation = operation});
    }
    return;
  }
}

DrawnAgain::DrawnAgain(const std::vector<RandomDraw>& draws) {
  for (const RandomDraw& draw : draws) {
    now_.emplace_back(draw.generator, state_of(draw.generator));
    set_state(draw.generator, draw.before);
  }
}

DrawnAgain::~DrawnAgain() {
  for (const auto& [generator, state] : now_) set_state(generator, state);
}

}  // namespace cohort
