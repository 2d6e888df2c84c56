// ServerVariables: the variables of a task that live on parameter servers: their declarations, the task's copies of
// their values, and the step in progress.
#pragma once

#include <torch/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "strategy/remote_variables.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/client/client.h"
#include "wings/parameter_server/client/saved_variables.h"
#include "wings/parameter_server/coordinator/closure_queue.h"

namespace cohort {

struct ServerVariablesOptions {
  int num_servers = 1;
  Partitioner partitioner = {};
  bool keeps_values = true;
  bool keeps_slots = false;
  // With true, every step begins with the newest values, as it has to where workers are synchronised.
  bool always_refresh = false;
};

// One thread declares variables, before connect(). Afterwards the threads of several replicas may look up rows at the
// same time; everything else comes from one thread.
class ServerVariables final : public RemoteVariables {
 public:
  explicit ServerVariables(const ServerVariablesOptions& options);

  std::size_t declare(Local local) override;
  Local& local(std::size_t variable) override { return locals_.at(variable); }
  bool has(const std::string& name) const override;
  bool keeps_values() const override { return options_.keeps_values; }
  bool keeps_slots() const override { return options_.keeps_slots; }
  void on_refresh(std::function<void()> callback) override;
  void on_save(std::function<void()> callback) override;
  void on_release(std::function<void()> callback) override;
  void set_learning_rate(std::span<const std::size_t> variables, double rate) override;
  torch::Tensor look_up(std::size_t variable, const torch::Tensor& indices) override;
  void apply_gradients(std::span<const std::size_t> variables, std::span<const torch::Tensor> gradients,
                       std::span<const Change> changes, double row_factor) override;
  void assign(std::size_t variable, const torch::Tensor& value) override;
  void add(std::size_t variable, const torch::Tensor& delta) override;
  void read(std::size_t variable) override;
  double weight() const override { return weight_; }
  bool leads_step() const override { return share_.index == 0; }

  // Declares a variable that is read and updated by rows. No task has all of it.
  std::size_t declare_rows(ServerVariable variable);

  const Catalog& catalog() const { return *catalog_; }
  // Ends the declarations and returns the catalog.
  const std::shared_ptr<const Catalog>& freeze();
  void connect(ServerClient& client);

  // Returns the learning rates that were set, by variable.
  const std::map<std::size_t, double>& learning_rates() const { return rates_; }
  // Sets the function that is called when another learning rate is set.
  void on_learning_rates(std::function<void(const std::map<std::size_t, double>&)> callback) {
    on_rates_ = std::move(callback);
  }

  // Sets the function that is called when a variable was assigned or added to.
  void on_write(std::function<void()> callback) { on_write_ = std::move(callback); }

  // Frees the local copies of a task that is a server, once it serves.
  void release() const;

  // Begins a step: everything until end_step() belongs to this closure. Refreshes the values.
  void begin_step(const Closure& closure);
  void end_step();
  // Reads all variables that have changed, except those that are read by rows.
  void refresh();

  // Returns the values and slots of this task's copies.
  std::shared_ptr<SavedVariables> saved() const;
  // Copies saved values and slots into this task's copies.
  void load(const SavedVariables& saved);

 private:
  struct LookUp {
    std::size_t variable = 0;
    int replica = 0;  // that has asked
    torch::Tensor unique;
    torch::Tensor rows;  // they have their gradient once backward has run
  };

  using ViewId = std::array<uint64_t, 3>;  // the run, the epoch and the number of a view

  // Returns rows of a variable, one for each of `unique` (int64, ascending). If gradients are recorded, the gradient of
  // the rows is sent with the next ones of the step.
  torch::Tensor fetch_rows(std::size_t variable, const torch::Tensor& unique);
  UpdateId next_id();
  ViewId view_now() const;
  std::optional<UpdateId> unless() const;
  ServerClient& client() const;
  torch::Tensor rows_of(const torch::Tensor& whole, const ShardInfo& place) const;
  void add_value(std::vector<Push>& pushes, std::size_t variable, parameter_server::PushRequest::Kind kind,
                 const torch::Tensor& value, const UpdateId& id);
  void push_one(std::size_t variable, parameter_server::PushRequest::Kind kind, const torch::Tensor& value);
  void add_gradient(std::vector<Push>& pushes, std::size_t variable, const torch::Tensor& gradient, const UpdateId& id);
  void add_lookups(std::vector<Push>& pushes, const UpdateId& id, double factor);
  void forget_versions_of_other_views();
  void note_versions(const std::vector<Push>& pushes);

  const ServerVariablesOptions options_;
  std::shared_ptr<Catalog> catalog_;
  std::shared_ptr<const Catalog> frozen_;
  std::vector<Local> locals_;  // one a variable; those that are read by rows have no value
  std::vector<std::function<void()>> on_refresh_;
  std::vector<std::function<void()>> on_save_;
  std::vector<std::function<void()>> on_release_;
  ServerClient* client_ = nullptr;
  std::vector<int64_t> versions_;  // versions of the local copies, by shard
  ViewId view_{};                  // the view in which the versions were read
  std::chrono::steady_clock::time_point fresh_until_;
  int64_t after_ = -1;  // Closure::after of the last step
  std::function<void()> on_write_;
  std::function<void(const std::map<std::size_t, double>&)> on_rates_;
  std::map<std::size_t, double> rates_;
  int64_t closure_;
  int64_t ordinal_ = 0;
  bool in_step_ = false;
  bool exact_ = false;  // Closure::exact
  Share share_;
  std::atomic<double> weight_ = 1.0;
  std::mutex mutex_;  // guards the lookups
  std::vector<LookUp> lookups_;
};

}  // namespace cohort
