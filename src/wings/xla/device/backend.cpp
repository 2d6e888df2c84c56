// One plugin serves a process: the recorder's devices are LibTorch's xla:0, xla:1, ..., of which there is one list.
#include "wings/xla/device/backend.h"

#include <algorithm>
#include <mutex>

#include "base/fail.h"
#include "device/host_random.h"
#include "wings/xla/device/find_plugin.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/generator.h"
#include "wings/xla/record/recorder.h"

namespace cohort {

namespace {

// A copy has begun when it returns, and what is recorded later runs behind it.
class BegunEvent final : public DeviceEvent {
 public:
  void wait(std::span<const torch::Tensor> /*tensors*/) const override {}
  bool reached() const override { return true; }
};

class XlaStream final : public DeviceStream {
 public:
  explicit XlaStream(torch::Device device) : device_(device) {}
  torch::Tensor copy(const torch::Tensor& host) override { return record::put(host, device_); }
  std::shared_ptr<const DeviceEvent> record() override { return std::make_shared<BegunEvent>(); }
  // Reads the value, for which recorded work begins and is waited for.
  void fetch(const torch::Tensor& tensor, const torch::Tensor& host) override { host.copy_(tensor.cpu()); }
  void synchronize() override {}

 private:
  torch::Device device_;
};

class XlaBackend final : public DeviceBackend {
 public:
  std::string_view type() const override {
    const std::scoped_lock lock(mutex_);
    return client_ != nullptr && client_->platform() == "tpu" ? "TPU" : "XLA";
  }
  torch::DeviceType torch_type() const override { return torch::kXLA; }
  int count() const override {
    const std::scoped_lock lock(mutex_);
    if (absent_) return 1;
    return client_ == nullptr ? 0 : static_cast<int>(client_->local_devices().size());
  }
  torch::Device device(int index) const override { return {torch::kXLA, static_cast<c10::DeviceIndex>(index)}; }
  bool is_host() const override { return false; }
  bool trains_in(torch::ScalarType /*dtype*/) const override { return true; }

  MemoryInfo memory(torch::Device device) const override {
    const XlaClientPtr client = opened();
    const int id = client->local_devices().at(static_cast<std::size_t>(device.index()));
    const std::optional<XlaMemory> figures = client->memory(id);
    if (!figures) client->plugin().lacks("PJRT_Device_MemoryStats");
    const int64_t total = figures->limit.value_or(0);
    return {.total = total,
            .available = std::max<int64_t>(0, total - figures->in_use),
            .in_use = figures->in_use,
            .peak = figures->peak.value_or(0)};
  }

  void prepare() const override {}
  at::Generator make_generator(torch::Device device) const override {
    return record::make_generator(device, host_generator().current_seed());
  }
  void seed(torch::Device device, uint64_t seed) const override { record::recording_of(device).manual_seed(seed); }
  std::unique_ptr<DeviceStream> make_stream(torch::Device device) const override {
    return std::make_unique<XlaStream>(device);
  }

  bool records() const override { return true; }
  void flush(torch::Device device) const override { record::recording_of(device).flush(); }
  bool joins() const override { return true; }
  void flush_together(std::span<const torch::Device> devices) const override { record::flush_together(devices); }
  void gather_steps(std::span<const torch::Device> devices, int64_t steps, int64_t input_bytes) const override {
    record::gather_steps(devices, steps, input_bytes);
  }
  int64_t gathered_steps() const override { return record::gathered_steps(); }

  // Module::to() refuses this change of type.
  void move(torch::nn::Module& module, torch::Device device) const override {
    for (torch::Tensor& tensor : module.parameters()) record::move_in_place(tensor, device);
    for (torch::Tensor& tensor : module.buffers()) record::move_in_place(tensor, device);
    for (const auto& item : module.named_parameters()) record::set_name(item.value(), item.key());
  }

  XlaClientPtr open(const XlaOpenOptions& options) {
    const std::scoped_lock lock(mutex_);
    if (absent_) {
      fail<FailedPrecondition>("[xla] ", options.source,
                               " wants a plugin in a process that records for a device that is not here");
    }
    const XlaPluginPlace place = find_xla_plugin(options.plugin, options.source + ": plugin");
    if (options.kept_programs > 0) record::set_kept_programs(static_cast<std::size_t>(options.kept_programs));
    if (client_ != nullptr) {
      require_same(place, options);
      set_precision(options);
      return client_;
    }
    XlaOpenOptions all = options;
    all.options.insert(options.otherwise.begin(), options.otherwise.end());
    const XlaClientPtr client =
        XlaClient::create(XlaPlugin::load(place), {.options = all.options, .processes = all.processes});
    record::install_recorder({.devices = static_cast<int>(client->local_devices().size())});
    runner_ = make_xla_runner(client);
    record::set_runner(runner_);
    client_ = client;
    opened_ = std::move(all);
    set_precision(options);
    return client_;
  }

  std::shared_ptr<const void> hold_cores(const std::vector<std::vector<int>>& replicas) {
    (void)opened();
    return runner_->hold_cores(replicas);
  }

  std::shared_ptr<XlaRunner> open_runner() const {
    (void)opened();
    return runner_;
  }

  void open_absent(std::shared_ptr<record::GraphRunner> runner) {
    const std::scoped_lock lock(mutex_);
    if (client_ != nullptr || absent_) {
      fail<FailedPrecondition>("[xla] a device that is not here is wanted in a process that has devices of XLA");
    }
    record::install_recorder({.devices = 1});
    record::set_runner(std::move(runner));
    absent_ = true;
  }

 private:
  // What has been compiled cannot change, so the first one that says it, says it for all.
  void set_precision(const XlaOpenOptions& options) {
    if (options.matmul_precision.empty()) return;
    const auto wanted = record::find_matmul_precision(options.matmul_precision, options.source + ": matmul_precision");
    if (precision_.empty()) {
      precision_ = options.matmul_precision;
      record::set_matmul_precision(wanted);
    } else if (precision_ != options.matmul_precision) {
      fail<FailedPrecondition>("[xla] ", options.source, " wants matmul_precision ", options.matmul_precision,
                               ", but this process computes with ", precision_,
                               " already and cannot change it any more");
    }
  }

  XlaClientPtr opened() const {
    const std::scoped_lock lock(mutex_);
    if (client_ == nullptr) fail<FailedPrecondition>("[xla] no plugin is open in this process");
    return client_;
  }

  void require_same(const XlaPluginPlace& place, const XlaOpenOptions& options) const {
    if (std::filesystem::canonical(place.path) != client_->plugin().path()) {
      fail<FailedPrecondition>("[xla] ", options.source, " wants the plugin ", place.path.string(), ", but ",
                               client_->plugin().path().string(), " is open; a process has the devices of one plugin");
    }
    if (options.processes != opened_.processes) {
      fail<FailedPrecondition>("[xla] ", options.source, " wants the plugin ", client_->plugin().name(), " with ",
                               options.processes == nullptr ? "this process alone" : "other processes", ", but ",
                               opened_.source, " has opened it otherwise; a process cannot change it any more");
    }
    for (const auto& [name, value] : options.options) {
      const auto known = opened_.options.find(name);
      if (known != opened_.options.end() && known->second == value) continue;
      fail<FailedPrecondition>("[xla] ", options.source, " wants the plugin ", client_->plugin().name(),
                               " with another ", name, " than ", opened_.source,
                               " has opened it with; a process cannot change it any more");
    }
  }

  mutable std::mutex mutex_;
  XlaClientPtr client_;
  std::shared_ptr<XlaRunner> runner_;
  XlaOpenOptions opened_;
  std::string precision_;  // what was asked for, or empty
  bool absent_ = false;    // there is one device, which open_absent() made
};

XlaBackend& own_backend() {
  for (const auto& backend : device_backends()) {
    if (auto* own = dynamic_cast<XlaBackend*>(backend.get())) return *own;
  }
  fail<Internal>("[xla] the table of back ends has no row for XLA");
}

}  // namespace

XlaClientPtr open_xla(const XlaOpenOptions& options) {
  XlaClientPtr client = own_backend().open(options);
  note_new_devices();
  return client;
}

std::shared_ptr<const void> hold_xla_cores(const std::vector<std::vector<int>>& replicas) {
  return own_backend().hold_cores(replicas);
}

std::shared_ptr<XlaRunner> open_xla_runner() {
  return own_backend().open_runner();
}

void open_absent_xla(std::shared_ptr<record::GraphRunner> runner) {
  own_backend().open_absent(std::move(runner));
  note_new_devices();
}

std::unique_ptr<DeviceBackend> make_xla_backend() {
  return std::make_unique<XlaBackend>();
}

}  // namespace cohort
