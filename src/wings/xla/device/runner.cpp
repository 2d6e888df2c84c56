#include "wings/xla/device/runner.h"

#include <algorithm>

#include "base/fail.h"
#include "base/log.h"
#include "wings/xla/device/cores.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/stablehlo/lower.h"

namespace cohort {

namespace {

// The value of a recorded tensor: an array on each core of its device.
class XlaData final : public record::DeviceData {
 public:
  explicit XlaData(std::vector<XlaBuffer> buffers) : buffers_(std::move(buffers)) {}

  const XlaBuffer& first() const { return buffers_.front(); }
  // Returns the array on the device of that id. A core that the value is not on yet, because it was made before the
  // device got its cores, gets a copy.
  XlaBuffer on(int id) const {
    for (const XlaBuffer& buffer : buffers_) {
      if (buffer.device() == id) return buffer;
    }
    return first().copy_to(id);
  }

 private:
  std::vector<XlaBuffer> buffers_;
};

const XlaData& data_of(const record::DeviceData& data) {
  const auto* own = dynamic_cast<const XlaData*>(&data);
  if (own == nullptr) fail<Internal>("[xla] a recorded value is not on a device of XLA");
  return *own;
}

}  // namespace

XlaRunner::XlaRunner(XlaClientPtr client, XlaRunnerOptions options)
    : client_(std::move(client)), options_(std::move(options)) {
  const std::vector<int>& local = client_->local_devices();
  if (options_.devices.empty()) options_.devices = local;
  for (const int id : options_.devices) {
    if (std::find(local.begin(), local.end(), id) == local.end()) {
      fail<NotFound>("[xla] there is no device ", id, " in this process, only ", c10::Join(", ", local));
    }
  }
  cores_ = std::make_shared<XlaCores>(devices());
}

std::shared_ptr<const void> XlaRunner::hold_cores(const std::vector<std::vector<int>>& replicas) {
  return cores_->hold(replicas);
}

std::shared_ptr<record::DeviceData> XlaRunner::place(const torch::Tensor& host, int device) {
  // A few numbers are copied at once: keeping their memory until the copy is done costs more.
  constexpr std::size_t kFew = 4096;  // bytes
  const XlaHostMemory memory = host.nbytes() <= kFew ? XlaHostMemory::kCopied : XlaHostMemory::kKept;
  std::vector<XlaBuffer> buffers;
  for (const int id : slots_of({&device, 1}).ids) {
    buffers.push_back(client_->upload(host, id, memory).buffer);
  }
  return std::make_shared<XlaData>(std::move(buffers));
}

torch::Tensor XlaRunner::fetch(const record::DeviceData& data, const record::TensorType& type) {
  torch::Tensor value = data_of(data).first().to_host(Deadline(options_.limit));
  if (value.scalar_type() != type.dtype || value.sizes() != c10::IntArrayRef(type.sizes)) {
    fail<Internal>("[xla] a value is ", value.scalar_type(), value.sizes(), ", wanted ", record::to_string(type));
  }
  return value;
}

std::vector<std::shared_ptr<record::DeviceData>> XlaRunner::run(
    const std::shared_ptr<const record::Program>& program, std::span<const std::shared_ptr<record::DeviceData>> inputs,
    int device) {
  const std::vector<Values> all{Values(inputs.begin(), inputs.end())};
  return std::move(launch(program, all, {&device, 1}, nullptr).front());
}

std::vector<XlaRunner::Values> XlaRunner::run_replicas(const std::shared_ptr<const record::Program>& program,
                                                       std::span<const Values> inputs, std::span<const int> devices) {
  return launch(program, inputs, devices, pod_of(devices));
}

record::ProgramCost XlaRunner::cost(const std::shared_ptr<const record::Program>& program, int device) {
  const XlaExecutablePtr compiled = executable(program, slots_of({&device, 1}));
  const XlaCost work = compiled->program().cost();
  record::ProgramCost cost{.flops = work.flops, .bytes_accessed = work.bytes_accessed, .peak_bytes = {}};
  if (const auto memory = compiled->program().memory()) cost.peak_bytes = memory->peak;
  return cost;
}

std::shared_ptr<const void> XlaRunner::hold_pod(XlaPod pod) {
  check(pod);
  const auto held = std::make_shared<const XlaPod>(std::move(pod));
  const std::scoped_lock lock(mutex_);
  if (!pod_.expired()) {
    fail<FailedPrecondition>(
        "[xla] a strategy that lives has the devices of several processes already; let it go "
        "before another one is made");
  }
  pod_ = held;
  return held;
}

std::size_t XlaRunner::compiled_programs() const {
  const std::scoped_lock lock(mutex_);
  return executables_.size();
}

bool XlaRunner::pod_is_idle() const {
  const std::optional<XlaEvent> last = last_launch();
  return last && last->ready();
}

std::shared_ptr<record::Hosts> XlaRunner::hosts(std::span<const int> devices) const {
  const std::shared_ptr<const XlaPod> pod = pod_of(devices);
  return pod == nullptr ? nullptr : pod->hosts;
}

std::vector<XlaRunner::Values> XlaRunner::launch(const std::shared_ptr<const record::Program>& program,
                                                 std::span<const Values> inputs, std::span<const int> devices,
                                                 const std::shared_ptr<const XlaPod>& pod) {
  const int first = pod == nullptr ? 0 : pod->first;
  const XlaExecutablePtr there = executable(program, pod == nullptr ? slots_of(devices) : slots_of(*pod));
  // The plugin chooses the order of the slots.
  XlaLists arguments;
  for (const XlaSlot& slot : there->slots()) {
    std::vector<XlaBuffer>& list = arguments.emplace_back();
    for (const auto& input : inputs[static_cast<std::size_t>(slot.replica - first)]) {
      list.push_back(data_of(*input).on(slot.device));
    }
  }
  wait_for_room();
  if (pod != nullptr) note_launch(std::nullopt);
  const XlaLaunch begun = there->launch(arguments);
  if (pod != nullptr) note_launch(begun.done);
  note_begun(begun.done);
  return values_of(*there, begun.outputs, first, devices.size());
}

void XlaRunner::check(const XlaPod& pod) const {
  const auto first = static_cast<std::size_t>(pod.first);
  bool fits = pod.first >= 0 && !pod.local.empty() && first + pod.local.size() <= pod.replicas.size();
  for (std::size_t i = 0; fits && i < pod.local.size(); ++i) {
    const int device = pod.local[i];
    fits = slots_of({&device, 1}).ids == pod.replicas[first + i];
  }
  if (fits) return;
  fail<InvalidArgument>("[xla] a pod of ", pod.replicas.size(), " replicas was to have ", pod.local.size(),
                        " of this process from ", pod.first, " on, which are on other devices");
}

std::shared_ptr<const XlaPod> XlaRunner::pod_of(std::span<const int> devices) const {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<const XlaPod> pod = pod_.lock();
  if (pod == nullptr || !std::equal(devices.begin(), devices.end(), pod->local.begin(), pod->local.end())) {
    return nullptr;
  }
  return pod;
}

void XlaRunner::wait_for_room() {
  std::optional<XlaEvent> first;
  {
    const std::scoped_lock lock(mutex_);
    if (ahead_.size() < options_.most_ahead) return;
    while (!ahead_.empty() && ahead_.front().ready()) ahead_.pop_front();
    if (ahead_.size() < options_.most_ahead) return;
    first = ahead_.front();
  }
  first->wait(Deadline(options_.limit));
}

void XlaRunner::note_begun(const XlaEvent& launch) {
  const std::scoped_lock lock(mutex_);
  ahead_.push_back(launch);
}

void XlaRunner::note_launch(std::optional<XlaEvent> done) {
  const std::scoped_lock lock(mutex_);
  last_launch_ = std::move(done);
}

std::optional<XlaEvent> XlaRunner::last_launch() const {
  const std::scoped_lock lock(mutex_);
  return last_launch_;
}

XlaRunner::Slots XlaRunner::slots_of(const XlaPod& pod) {
  Slots slots{.replicas = static_cast<int>(pod.replicas.size()),
              .cores = static_cast<int>(pod.replicas.front().size())};
  for (const std::vector<int>& cores : pod.replicas) slots.ids.insert(slots.ids.end(), cores.begin(), cores.end());
  return slots;
}

XlaRunner::Slots XlaRunner::slots_of(std::span<const int> devices) const {
  Slots slots{.replicas = static_cast<int>(devices.size())};
  for (const int device : devices) {
    const std::vector<int> cores = cores_->of(device);
    slots.cores = static_cast<int>(cores.size());
    for (const int core : cores) slots.ids.push_back(options_.devices[static_cast<std::size_t>(core)]);
  }
  if (slots.ids.size() != devices.size() * static_cast<std::size_t>(slots.cores)) {
    fail<FailedPrecondition>("[xla] ", devices.size(), " devices were to run a program together, which have ",
                             slots.ids.size(), " cores: not as many each");
  }
  return slots;
}

std::vector<XlaRunner::Values> XlaRunner::values_of(const XlaExecutable& program, const XlaLists& results, int first,
                                                    std::size_t replicas) {
  const std::size_t cores = results.size() / replicas;
  std::vector<const std::vector<XlaBuffer>*> by_place(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const XlaSlot& slot = program.slots()[i];
    by_place[static_cast<std::size_t>(slot.replica - first) * cores + static_cast<std::size_t>(slot.partition)] =
        &results[i];
  }
  std::vector<Values> values(replicas);
  for (std::size_t r = 0; r < replicas; ++r) {
    const std::size_t outputs = results.empty() ? 0 : by_place[r * cores]->size();
    values[r].reserve(outputs);
    for (std::size_t o = 0; o < outputs; ++o) {
      std::vector<XlaBuffer> own;
      own.reserve(cores);
      for (std::size_t c = 0; c < cores; ++c) own.push_back((*by_place[r * cores + c])[o]);
      values[r].push_back(std::make_shared<XlaData>(std::move(own)));
    }
  }
  return values;
}

XlaExecutablePtr XlaRunner::executable(const std::shared_ptr<const record::Program>& program, const Slots& slots) {
  const auto key = std::pair(program, slots);
  {
    const std::scoped_lock lock(mutex_);
    if (const XlaExecutablePtr* const known = executables_.find(key)) return *known;
  }
  const std::string text = record::to_stablehlo(*program, {.num_replicas = slots.replicas,
                                                           .num_cores = slots.cores,
                                                           .name = "recorded",
                                                           .precision = record::matmul_precision(),
                                                           .platform = client_->platform()});
  XlaExecutablePtr made = client_->compile(text, {.num_replicas = slots.replicas,
                                                  .num_partitions = slots.cores,
                                                  .devices = slots.ids,
                                                  .flags = options_.flags,
                                                  .limit = options_.compile_limit});
  const std::scoped_lock lock(mutex_);
  if (const XlaExecutablePtr* const known = executables_.find(key)) return *known;
  const std::size_t most = record::kept_programs();
  if (executables_.size() >= most) {
    warn_once(c10::str("[xla] there are more than ", most,
                       " compiled programs: those that were launched longest ago are given up, and compiled again "
                       "when they come again; kept_programs of the strategy says how many are kept"));
  }
  return executables_.put(key, std::move(made), most);
}

std::shared_ptr<XlaRunner> make_xla_runner(XlaClientPtr client, XlaRunnerOptions options) {
  return std::make_shared<XlaRunner>(std::move(client), std::move(options));
}

}  // namespace cohort
