// Random numbers. A node that draws takes the stream's state, two 64-bit words (key and counter), and has the state
// after the draw as its second result; the state is a tensor like others, so it goes in and out of programs by itself.
// A generator that is given to an operation has a state of its own.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include "base/fail.h"
#include "wings/xla/record/call.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/function_recording.h"
#include "wings/xla/record/generator.h"
#include "wings/xla/record/kernels.h"

namespace cohort::record {

namespace {

using OptionalGenerator = c10::optional<at::Generator>;

torch::Tensor state_of(const torch::Tensor& self, const OptionalGenerator& generator) {
  if (!generator || !generator->defined()) return cell_of(self).recording().random_state();
  auto* own = dynamic_cast<RecordedGenerator*>(generator->unsafeGetGeneratorImpl());
  if (own == nullptr || own->device() != self.device()) {
    fail<InvalidArgument>("[record] got a generator of ", generator->device(), " for a tensor of ", self.device(),
                          ", wanted one of that device (make_generator)");
  }
  return own->state();
}

// Fills the tensor with the draws of the operation.
torch::Tensor& draw(torch::Tensor& self, const char* op, std::vector<Argument> arguments,
                    const OptionalGenerator& generator) {
  const torch::Tensor state = state_of(self, generator);
  arguments.insert(arguments.begin(), value_of(state));
  const Value drawn = make_node(op, std::move(arguments), {self.scalar_type(), self.sizes().vec()});
  drawn.node->outputs.push_back(drawn.node->outputs[0]);
  drawn.node->outputs[1] = {torch::kLong, {2}};
  assign(self, drawn);
  assign(state, {drawn.node, 1});
  return self;
}

torch::Tensor& uniform(torch::Tensor& self, double from, double to, OptionalGenerator generator) {
  return draw(self, "aten::uniform", {c10::IValue(from), c10::IValue(to)}, generator);
}

torch::Tensor& normal(torch::Tensor& self, double mean, double deviation, OptionalGenerator generator) {
  return draw(self, "aten::normal", {c10::IValue(mean), c10::IValue(deviation)}, generator);
}

torch::Tensor& bernoulli(torch::Tensor& self, double p, OptionalGenerator generator) {
  return draw(self, "aten::bernoulli.p", {c10::IValue(p)}, generator);
}

torch::Tensor& bernoulli_by_tensor(torch::Tensor& self, const torch::Tensor& p, OptionalGenerator generator) {
  if (!is_recorded(p)) {
    fail<InvalidArgument>("[record] bernoulli_ got probabilities on ", p.device(), ", wanted ", self.device());
  }
  return draw(self, "aten::bernoulli.Tensor", {value_of(p)}, generator);
}

torch::Tensor bernoulli_of(const torch::Tensor& self, OptionalGenerator generator) {
  torch::Tensor result = at::empty_like(self);
  return bernoulli_by_tensor(result, self, generator);
}

torch::Tensor& random_from(torch::Tensor& self, int64_t from, c10::optional<int64_t> to, OptionalGenerator generator) {
  if (!to) refuse_operation("random_", "", "got no upper bound", "give it one");
  return draw(self, "aten::random.from", {c10::IValue(from), c10::IValue(*to)}, generator);
}

torch::Tensor& random_to(torch::Tensor& self, int64_t to, OptionalGenerator generator) {
  return random_from(self, 0, to, generator);
}

// Each device has a stream of its own. A function seeds that of its device, because it may use no other.
void seed_devices(uint64_t seed, int devices) {
  const std::optional<torch::Device> traced = FunctionRecording::device_of_trace();
  for (int i = 0; i < devices; ++i) {
    const torch::Device device(torch::kXLA, static_cast<c10::DeviceIndex>(i));
    if (!traced || *traced == device) recording_of(device).manual_seed(seed + static_cast<uint64_t>(i));
  }
}

// LibTorch's generator of the host, which torch::manual_seed() seeds on every machine.
class LeadingGenerator final : public at::CPUGeneratorImpl {
 public:
  LeadingGenerator(at::CPUGeneratorImpl& before, int devices)
      : CPUGeneratorImpl(before.current_seed()), devices_(devices) {
    CPUGeneratorImpl::set_state(*before.get_state());
  }
  void set_current_seed(uint64_t seed) override {
    CPUGeneratorImpl::set_current_seed(seed);
    seed_devices(seed, devices_);
  }

 private:
  const int devices_;
};

}  // namespace

void follow_manual_seed(int devices) {
  // LibTorch has no hook for devices of this type. Its generator is an object that it returns as const.
  auto& host = const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator());
  at::Generator before = host;
  const std::scoped_lock lock(before.mutex());
  auto leading = c10::make_intrusive<LeadingGenerator>(*before.get<at::CPUGeneratorImpl>(), devices);
  seed_devices(leading->current_seed(), devices);
  host = at::Generator(std::move(leading));
}

RecordedGenerator::RecordedGenerator(torch::Device device, uint64_t seed)
    : Generator(device, c10::DispatchKeySet(c10::DispatchKey::XLA)) {
  set_current_seed(seed);
}

void RecordedGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  const torch::Tensor state = at::tensor(std::vector<int64_t>{static_cast<int64_t>(seed), 0});
  if (state_.defined()) {
    state_.copy_(state);
  } else {
    state_ = state.to(device());
  }
}

uint64_t RecordedGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void RecordedGenerator::set_state(const c10::TensorImpl& state) {
  const torch::Tensor words = torch::Tensor::wrap_tensor_impl(
      c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(const_cast<c10::TensorImpl*>(&state)));
  if (words.scalar_type() != torch::kLong || words.numel() != 2) {
    fail<InvalidArgument>("[record] a generator's state got ", words.scalar_type(), words.sizes(),
                          ", wanted int64 [2]");
  }
  state_.copy_(words);
}

c10::intrusive_ptr<c10::TensorImpl> RecordedGenerator::get_state() const {
  return fetch(state_).getIntrusivePtr();
}

RecordedGenerator* RecordedGenerator::clone_impl() const {
  auto copy = c10::make_intrusive<RecordedGenerator>(device(), seed_);
  copy->state_.copy_(state_);
  return copy.release();
}

at::Generator make_generator(torch::Device device, uint64_t seed) {
  return at::make_generator<RecordedGenerator>(device, seed);
}

void register_random(torch::Library& aten) {
  aten.impl("uniform_", &uniform);
  aten.impl("normal_", &normal);
  aten.impl("bernoulli_.float", &bernoulli);
  aten.impl("bernoulli_.Tensor", &bernoulli_by_tensor);
  aten.impl("bernoulli", &bernoulli_of);
  aten.impl("random_.from", &random_from);
  aten.impl("random_.to", &random_to);
}

}  // namespace cohort::record
