// ServerVariables: a task's variables that live on parameter servers: what it has declared, its copies of their values,
// and the step that it is in.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parameter_server/catalog.h"
#include "parameter_server/client/client.h"
#include "parameter_server/client/saved_variables.h"
#include "parameter_server/coordinator/closure_queue.h"
#include "strategy/remote_variables.h"

namespace cohort {

struct ServerVariablesOptions {
  int num_servers = 1;
  Partitioner partitioner = {};
  bool keeps_values = true;
  bool keeps_slots = false;
  // Whether every step begins with the values of that moment: where workers are held together.
  bool always_refresh = false;
};

// Declarations come from one thread, before connect(). Then lookups may come from the threads of several replicas at a
// time, everything else from one.
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
  void apply_gradients(std::span<const std::size_t> variables, std::span<const torch::Tensor> gradients,
                       std::span<const Change> changes) override;
  void assign(std::size_t variable, const torch::Tensor& value) override;
  void add(std::size_t variable, const torch::Tensor& delta) override;
  void read(std::size_t variable) override;
  double weight() const override { return weight_; }
  bool leads_step() const override { return share_.index == 0; }

  // A variable that is read and updated by rows; no task has all of it.
  std::size_t declare_rows(ServerVariable variable);

  const Catalog& catalog() const { return *catalog_; }
  // No declarations after it.
  const std::shared_ptr<const Catalog>& freeze();
  void connect(ServerClient& client);

  // By variable, as they were set; and called when another one is.
  const std::map<std::size_t, double>& learning_rates() const { return rates_; }
  void on_learning_rates(std::function<void(const std::map<std::size_t, double>&)> callback) {
    on_rates_ = std::move(callback);
  }

  // Called when a variable was assigned or added to.
  void on_write(std::function<void()> callback) { on_write_ = std::move(callback); }

  // Of a server, once it serves.
  void release() const;

  // What comes until end_step() belongs to this work. Values are refreshed.
  void begin_step(const Closure& closure);
  void end_step();
  // Reads all variables that have changed, but those by rows.
  void refresh();

  // Rows of a variable, one for each of `unique` (int64, ascending). Where gradients are recorded their gradient is
  // sent with the step's next ones.
  torch::Tensor look_up(std::size_t variable, const torch::Tensor& unique);

  // Values and slots of this task's copies, and from the servers' into them.
  std::shared_ptr<SavedVariables> saved() const;
  void load(const SavedVariables& saved);

 private:
  struct LookUp {
    std::size_t variable = 0;
    torch::Tensor unique;
    torch::Tensor rows;  // with their gradient, when backward has been through
  };

  using ViewId = std::pair<uint64_t, uint64_t>;  // the run, the number

  UpdateId next_id();
  ViewId view_now() const;
  std::optional<UpdateId> unless() const;
  ServerClient& client() const;
  torch::Tensor rows_of(const torch::Tensor& whole, const ShardInfo& place) const;
  void add_value(std::vector<Push>& pushes, std::size_t variable, parameter_server::PushRequest::Kind kind,
                 const torch::Tensor& value, const UpdateId& id);
  void push_one(std::size_t variable, parameter_server::PushRequest::Kind kind, const torch::Tensor& value);
  void add_gradient(std::vector<Push>& pushes, std::size_t variable, const torch::Tensor& gradient, const UpdateId& id);
  void add_lookups(std::vector<Push>& pushes, const UpdateId& id);
  void forget_versions_of_other_views();
  void note_versions(const std::vector<Push>& pushes);

  const ServerVariablesOptions options_;
  std::shared_ptr<Catalog> catalog_;
  std::shared_ptr<const Catalog> frozen_;
  std::vector<Local> locals_;  // by variable; those by rows have no value
  std::vector<std::function<void()>> on_refresh_;
  std::vector<std::function<void()>> on_save_;
  std::vector<std::function<void()>> on_release_;
  ServerClient* client_ = nullptr;
  std::vector<int64_t> versions_;  // by shard, of the local copies
  ViewId view_;                    // in which they were read
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
  std::mutex mutex_;  // of the lookups
  std::vector<LookUp> lookups_;
};

}  // namespace cohort
