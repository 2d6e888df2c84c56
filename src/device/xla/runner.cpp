#include "device/xla/runner.h"

#include <algorithm>
#include <mutex>

#include "base/fail.h"
#include "record/recorder.h"
#include "record/stablehlo/lower.h"

namespace cohort {

namespace {

const XlaBuffer& buffer_of(const record::DeviceData& data) {
  const auto* own = dynamic_cast<const XlaData*>(&data);
  if (own == nullptr) fail<Internal>("[xla] a recorded value is not on a device of XLA");
  return own->buffer();
}

using Values = std::vector<std::shared_ptr<record::DeviceData>>;
// A program's signature and the ids of its replicas' devices.
using Key = std::pair<std::string, std::vector<int>>;

class XlaRunner final : public record::GraphRunner {
 public:
  XlaRunner(XlaClientPtr client, XlaRunnerOptions options) : client_(std::move(client)), options_(std::move(options)) {
    const std::vector<int>& local = client_->local_devices();
    if (options_.devices.empty()) options_.devices = local;
    for (const int id : options_.devices) {
      if (std::find(local.begin(), local.end(), id) == local.end()) {
        fail<NotFound>("[xla] there is no device ", id, " in this process, only ", c10::Join(", ", local));
      }
    }
  }

  int devices() const override { return static_cast<int>(options_.devices.size()); }

  std::shared_ptr<record::DeviceData> place(const torch::Tensor& host, int device) override {
    return std::make_shared<XlaData>(client_->upload(host, id_of(device), XlaHostMemory::kKept).buffer);
  }

  torch::Tensor fetch(const record::DeviceData& data, const record::TensorType& type) override {
    torch::Tensor value = buffer_of(data).to_host(Deadline(options_.limit));
    if (value.scalar_type() != type.dtype || value.sizes() != c10::IntArrayRef(type.sizes)) {
      fail<Internal>("[xla] a value is ", value.scalar_type(), value.sizes(), ", wanted ", record::to_string(type));
    }
    return value;
  }

  std::vector<std::shared_ptr<record::DeviceData>> run(const std::shared_ptr<const record::Program>& program,
                                                       std::span<const std::shared_ptr<record::DeviceData>> inputs,
                                                       int device) override {
    const std::vector<Values> all{Values(inputs.begin(), inputs.end())};
    return std::move(run_replicas(program, all, {&device, 1}).front());
  }

  std::vector<Values> run_replicas(const std::shared_ptr<const record::Program>& program,
                                   std::span<const Values> inputs, std::span<const int> devices) override {
    std::vector<int> ids;
    for (const int device : devices) ids.push_back(id_of(device));
    const XlaExecutablePtr program_there = executable(*program, ids);
    // The plugin chooses the order of the slots.
    XlaLists arguments;
    for (const XlaSlot& slot : program_there->slots()) {
      std::vector<XlaBuffer>& list = arguments.emplace_back();
      for (const auto& input : inputs[static_cast<std::size_t>(slot.replica)]) list.push_back(buffer_of(*input));
    }
    const XlaLaunch launch = program_there->launch(arguments);
    std::vector<Values> outputs(devices.size());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      Values& own = outputs[static_cast<std::size_t>(program_there->slots()[i].replica)];
      for (const XlaBuffer& buffer : launch.outputs.at(i)) own.push_back(std::make_shared<XlaData>(buffer));
    }
    return outputs;
  }

  record::ProgramCost cost(const std::shared_ptr<const record::Program>& program, int device) override {
    const XlaExecutablePtr compiled = executable(*program, {id_of(device)});
    const XlaCost work = compiled->program().cost();
    record::ProgramCost cost{.flops = work.flops, .bytes_accessed = work.bytes_accessed, .peak_bytes = {}};
    if (const auto memory = compiled->program().memory()) cost.peak_bytes = memory->peak;
    return cost;
  }

 private:
  int id_of(int device) const {
    if (device < 0 || device >= devices()) {
      fail<InvalidArgument>("[xla] got the device xla:", device, ", wanted one of xla:0 to xla:", devices() - 1);
    }
    return options_.devices[static_cast<std::size_t>(device)];
  }

  XlaExecutablePtr executable(const record::Program& program, const std::vector<int>& ids) {
    const Key key(program.signature(), ids);
    {
      const std::scoped_lock lock(mutex_);
      const auto known = executables_.find(key);
      if (known != executables_.end()) return known->second;
    }
    const auto replicas = static_cast<int>(ids.size());
    const std::string text = record::to_stablehlo(
        program, {.num_replicas = replicas, .name = "recorded", .precision = record::matmul_precision()});
    XlaExecutablePtr made = client_->compile(
        text, {.num_replicas = replicas, .devices = ids, .flags = options_.flags, .limit = options_.compile_limit});
    const std::scoped_lock lock(mutex_);
    return executables_.try_emplace(key, std::move(made)).first->second;
  }

  XlaClientPtr client_;
  XlaRunnerOptions options_;
  std::mutex mutex_;
  std::map<Key, XlaExecutablePtr> executables_;
};

}  // namespace

std::shared_ptr<record::GraphRunner> make_xla_runner(XlaClientPtr client, XlaRunnerOptions options) {
  return std::make_shared<XlaRunner>(std::move(client), std::move(options));
}

}  // namespace cohort
