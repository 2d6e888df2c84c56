#include "tests/gpu/stand_in_graph.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "device/host_random.h"
#include "tests/gpu/stand_in.h"
#include "tests/gpu/stand_in_call.h"

namespace cohort::gpu {

namespace {

const auto kCapture = c10::DebugInfoKind::TEST_INFO;

template <typename Visit>
void each_on_card(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (on_card(value.toTensor())) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const torch::Tensor& tensor : value.toTensorVector()) {
      if (on_card(tensor)) visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const c10::optional<torch::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor && on_card(*tensor)) visit(*tensor);
    }
  }
}

}  // namespace

// Memory of before belongs to others.
class CardCapture::Place {
 public:
  // `made`: null for memory of before.
  Place(const torch::Tensor& tensor, const Made* made)
      : storage_(tensor.storage().getWeakStorageImpl()), keys_(tensor.key_set()) {
    if (made != nullptr) memory_ = made->memory;
    c10::Storage none(c10::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, tensor.device()), nullptr, false);
    form_ = tensor_in(std::move(none), kCardKeys, tensor);
  }

  torch::Tensor tensor() const {
    if (auto storage = storage_.lock()) return tensor_in(c10::Storage(std::move(storage)), keys_, form_);
    TORCH_CHECK(memory_, "a graph was replayed, but memory of ", form_.sizes(), " that it uses is gone");
    return moved_to_card(tensor_in(*memory_, c10::DispatchKeySet(c10::DispatchKey::CPU), form_), form_.device());
  }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  std::optional<c10::Storage> memory_;
  c10::DispatchKeySet keys_;
  torch::Tensor form_;  // a tensor without memory
};

// An argument of a call, to be given again; a number of the host as the one that it was.
class CardCapture::Argument {
 public:
  using Give = std::function<c10::IValue()>;
  explicit Argument(Give give) : give_(std::move(give)) {}
  c10::IValue give() const { return give_(); }

 private:
  Give give_;
};

// A result that lies in the memory of an argument is there already.
void CardCapture::put(const Place& place, const torch::Tensor& value) {
  const torch::Tensor there = place.tensor();
  if (there.storage().data_ptr().get() == value.storage().data_ptr().get()) return;
  const at::AutoDispatchBelowADInplaceOrView below;
  on_host(there).copy_(on_host(value));
}

CardCapture* CardCapture::of_thread() {
  return dynamic_cast<CardCapture*>(c10::ThreadLocalDebugInfo::get(kCapture));
}

namespace {

std::atomic<int64_t> works_so_far = 0;
std::atomic<int64_t> segments_so_far = 0;
thread_local bool is_replaying = false;

// A gradient is added up on the stream that was current when LibTorch made its accumulator. If that is not the one of
// the capture, another stream would wait for one that captures.
void require_same_stream(const torch::Tensor& tensor) {
  if (!at::GradMode::is_enabled() || !tensor.is_leaf() || !tensor.requires_grad()) return;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(tensor);
  if (accumulator == nullptr || accumulator->input_metadata(0).stream().id() == current_stream()) return;
  TORCH_CHECK(false, "operation not permitted when the card captures: a gradient of shape ", tensor.sizes(),
              " is added up on another stream");
}

}  // namespace

int64_t works_given() {
  return works_so_far;
}

int64_t segments_given() {
  return segments_so_far;
}

void note_work() {
  if (!is_capturing() && !is_replaying) ++works_so_far;
}

bool is_capturing() {
  return CardCapture::of_thread() != nullptr;
}

void CardCapture::note_made(const torch::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (!on_card(tensor)) return;
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (before_.contains(storage)) return;
  const auto [known, is_new] =
      memory_->try_emplace(storage, Made{tensor.storage().getWeakStorageImpl(), memory_of(tensor)});
  if (!is_new) known->second.memory = memory_of(tensor);  // an operation that writes to it may have resized it
  fresh_.insert(storage);
}

void CardCapture::keep(const at::Generator& generator) {
  const auto same = [&](const auto& known) { return known.first == generator; };
  if (std::any_of(generators_.begin(), generators_.end(), same)) return;
  generators_.emplace_back(generator, generator.get_state().clone());
}

void CardCapture::note_given(const c10::IValue& value) {
  if (value.isGenerator()) keep(value.toGenerator());
  each_on_card(value, [&](const torch::Tensor& tensor) {
    require_same_stream(tensor);
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    if (fresh_.contains(storage) || before_.contains(storage)) return;
    const auto* bytes = static_cast<const char*>(tensor.storage().data_ptr().get());
    before_.emplace(storage, Before{tensor.storage(), std::vector<char>(bytes, bytes + tensor.storage().nbytes())});
  });
}

void CardCapture::note_changes(const std::vector<c10::IValue>& given) {
  const auto compare = [&](const torch::Tensor& tensor) {
    const auto known = before_.find(tensor.storage().unsafeGetStorageImpl());
    if (known == before_.end()) return;
    auto& [storage, bytes, is_changed] = known->second;
    is_changed = is_changed || storage.nbytes() < bytes.size() ||
                 std::memcmp(storage.data_ptr().get(), bytes.data(), bytes.size()) != 0;
  };
  for (const c10::IValue& value : given) each_on_card(value, compare);
}

CardCapture::Place CardCapture::place_of(const torch::Tensor& tensor) {
  const auto made = memory_->find(tensor.storage().unsafeGetStorageImpl());
  return {tensor, made == memory_->end() ? nullptr : &made->second};
}

CardCapture::Argument CardCapture::argument_of(const c10::IValue& value) {
  if (value.isTensor() && on_card(value.toTensor())) {
    return Argument([place = place_of(value.toTensor())] { return c10::IValue(place.tensor()); });
  }
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().dim() == 0 &&
      !value.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
    return Argument([number = value.toTensor().detach().clone()] { return c10::IValue(number); });
  }
  if (value.isTensorList()) {
    std::vector<Argument> all;
    for (const torch::Tensor& tensor : value.toTensorVector()) all.push_back(argument_of(tensor));
    return Argument([all] {
      c10::List<torch::Tensor> list;
      for (const Argument& each : all) list.push_back(each.give().toTensor());
      return c10::IValue(list);
    });
  }
  if (value.isOptionalTensorList()) {
    std::vector<std::optional<Argument>> all;
    for (const c10::optional<torch::Tensor>& tensor : value.toOptionalTensorVector()) {
      all.push_back(tensor ? std::optional(argument_of(*tensor)) : std::nullopt);
    }
    return Argument([all] {
      c10::List<c10::optional<torch::Tensor>> list;
      for (const auto& each : all) {
        list.push_back(each ? c10::optional<torch::Tensor>(each->give().toTensor()) : c10::nullopt);
      }
      return c10::IValue(list);
    });
  }
  return Argument([value] { return value; });
}

void CardCapture::call(const c10::OperatorHandle& op, torch::jit::Stack& stack, const Make& make) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = op.schema().arguments().size();
  std::vector<Argument> arguments;
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    const bool draws = op.schema().arguments()[i + count - stack.size()].name() == "generator";
    if (draws && stack[i].isNone()) keep(host_generator());
    note_given(stack[i]);
    arguments.push_back(argument_of(stack[i]));
  }
  const std::vector<c10::IValue> given(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  make(stack);
  note_changes(given);
  // Where results lie in memory of their own, a replay puts what it finds there; else the call itself does.
  std::vector<std::vector<Place>> results;
  for (std::size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i) {
    auto& places = results.emplace_back();
    each_on_card(stack[i], [&](const torch::Tensor& tensor) {
      note_made(tensor);
      places.push_back(place_of(tensor));
    });
  }
  calls_.emplace_back([arguments, results, make] {
    torch::jit::Stack again;
    for (const Argument& argument : arguments) again.push_back(argument.give());
    make(again);
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::size_t next = 0;
      each_on_card(again[again.size() - results.size() + i],
                   [&](const torch::Tensor& tensor) { put(results[i][next++], tensor); });
    }
  });
}

CardCapture::Tensors CardCapture::call(const Tensors& given, const std::function<Tensors(const Tensors&)>& make) {
  const std::lock_guard lock(mutex_);
  std::vector<Argument> arguments;
  for (const torch::Tensor& tensor : given) {
    note_given(tensor);
    arguments.push_back(argument_of(tensor));
  }
  const Tensors results = make(given);
  note_changes({given.begin(), given.end()});
  std::vector<std::optional<Place>> places;
  for (const torch::Tensor& result : results) {
    if (result.defined()) note_made(result);
    places.push_back(on_card(result) ? std::optional(place_of(result)) : std::nullopt);
  }
  calls_.emplace_back([arguments, make, places] {
    Tensors again;
    for (const Argument& argument : arguments) again.push_back(argument.give().toTensor());
    const Tensors found = make(again);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (places[i]) put(*places[i], found[i]);
    }
  });
  return results;
}

void CardCapture::call(std::span<const torch::Tensor> tensors, const std::function<void()>& kernel) {
  const std::lock_guard lock(mutex_);
  std::vector<Place> places;
  for (const torch::Tensor& tensor : tensors) {
    note_given(tensor);
    places.push_back(place_of(tensor));
  }
  kernel();
  note_changes({tensors.begin(), tensors.end()});
  calls_.emplace_back([places, kernel] {
    std::vector<torch::Tensor> held;
    for (const Place& place : places) held.push_back(place.tensor());
    kernel();
  });
}

// A capture may have kernels on memory of another one.
CardCapture::Calls CardCapture::end() {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time, mutex_);
  for (const auto& [impl, before] : before_) {
    const auto& [memory, bytes, is_changed] = before;
    if (is_changed) std::memcpy(memory.data_ptr().get(), bytes.data(), std::min(bytes.size(), memory.nbytes()));
  }
  for (auto& [generator, state] : generators_) generator.set_state(state);
  before_.clear();
  return std::move(calls_);
}

namespace {

class Replaying {
 public:
  Replaying() { is_replaying = true; }
  Replaying(const Replaying&) = delete;
  Replaying& operator=(const Replaying&) = delete;
  ~Replaying() { is_replaying = false; }
};

class CardGraph final : public DeviceGraph {
 public:
  void begin() override {
    current_ = std::make_shared<CardCapture>(memory_);
    within_.emplace(kCapture, current_);
  }
  void end() override {
    within_.reset();
    segments_.push_back(std::exchange(current_, nullptr)->end());
  }
  void abandon() noexcept override {
    within_.reset();
    if (current_ != nullptr) (void)std::exchange(current_, nullptr)->end();
  }
  void replay(std::size_t segment) override {
    const torch::NoGradGuard no_grad;
    ++works_so_far;
    ++segments_so_far;
    const Replaying replaying;
    for (const auto& call : segments_[segment]) call();
  }

 private:
  std::shared_ptr<CardCapture> current_;
  std::optional<c10::DebugInfoGuard> within_;
  std::shared_ptr<CardCapture::Memory> memory_ = std::make_shared<CardCapture::Memory>();
  std::vector<CardCapture::Calls> segments_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_card_graph() {
  return std::make_unique<CardGraph>();
}

}  // namespace cohort::gpu
