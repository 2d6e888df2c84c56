// ModelState: what a Model is a handle to: the copies of the module, the layers, what compile() was given, and the
// steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/model.h"

namespace cohort {

class ServerTraining;

class ModelState : public std::enable_shared_from_this<ModelState> {
 public:
  using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

  // A layer, or a child of the user's module.
  struct Entry {
    std::string name;
    std::string type;
    bool own_only = false;  // parameters of the root module itself, without its children's
    bool trainable = true;  // as asked for
    bool applied = true;    // as it is since compile()
    std::optional<Shape> output;
    std::vector<std::size_t> held;  // parameters that freezing has turned off
  };

  ModelState(const Strategy& strategy, std::string name, torch::ScalarType dtype);
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;
  ~ModelState();

  // Layers, before the module is there; and the module, from them or from the user.
  void set_layers(std::vector<Layer> layers);
  void add_layer(const Layer& layer);
  void build(const Shape& input, torch::ScalarType input_dtype);
  void build_from(const GlobalBatch& batch);
  void adopt(const std::function<detail::ForeignModule()>& factory);

  bool built() const { return module_.defined(); }
  void require_built(std::string_view what) const;
  const std::string& name() const { return name_; }
  const Strategy& strategy() const { return strategy_; }
  torch::ScalarType dtype() const { return dtype_; }
  const MirroredModule& module() const { return module_; }
  // Only the strategy's own scope may be entered.
  void require_scope(std::string_view what) const;

  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::shared_ptr<torch::nn::Module> entry_module(std::size_t index, std::size_t replica) const;
  NamedTensors entry_parameters(std::size_t index, std::size_t replica) const;
  NamedTensors entry_buffers(std::size_t index, std::size_t replica) const;

  void compile(const CompileOptions& options);
  bool compiled() const { return loss_.has_value(); }
  void require_compiled(std::string_view what) const;
  // Makes it where it is not there yet.
  const MirroredOptimizer& optimizer();
  int64_t iterations() const;
  Direction direction(std::string_view log) const;

  // Layers that were frozen or thawed since compile().
  void warn_of_late_changes() const;
  // Modes of the modules; before a run of steps.
  void begin_training();
  void begin_evaluation() const;

  // Where variables are on parameter servers steps may still be under way when train_step() returns, and what they
  // measured comes later. In this process alone: train_here().
  void train_step(const GlobalBatch& batch);
  void train_here(const GlobalBatch& batch);
  // FailedPrecondition: this process only does what another one asks for.
  void require_in_charge(const std::string& what) const;
  // Before the first training step of a run of them.
  void begin_steps() const;
  // Waits for the workers of parameter servers, whose values are here then.
  void finish_steps() const;
  // Weights or slots have been set.
  void note_change() const;

  void test_step(const GlobalBatch& batch);
  PerReplica<torch::Tensor> predict_step(const GlobalBatch& batch) const;

  // Of the steps since the last reset.
  void reset_metrics();
  Logs results() const;        // over all replicas
  Logs local_results() const;  // of this process
  double local_loss() const;

  // The sums behind the results, of this process: the loss', then the metrics'.
  std::vector<torch::Tensor> metric_sums() const;
  void set_metric_sums(const std::vector<torch::Tensor>& sums);
  void add_metric_sums(const std::vector<torch::Tensor>& more);

  GlobalBatch split(const Example& batch) const;

  bool stop = false;
  int64_t epochs_done = 0;  // by fit(), or as a loaded file says
  int64_t loaded_step = 0;

 private:
  torch::Tensor forward(const Replica& replica, const torch::Tensor& x) const;
  void record(const Replica& replica, const Example& share, const torch::Tensor& loss_total,
              const torch::Tensor& prediction);
  void list_children();
  void declare();
  void apply_trainable();
  bool held_elsewhere(std::size_t index, std::size_t replica, const torch::Tensor& parameter) const;
  template <typename Result>
  Logs collect(const Result& result) const;

  struct Measured {
    MirroredMetric metric;
    bool weighted = false;
    std::string name;  // unique in the model
  };

  Strategy strategy_;
  std::string name_;
  torch::ScalarType dtype_;
  std::vector<Layer> layers_;
  std::vector<Entry> entries_;
  MirroredModule module_;
  std::vector<Forward> forwards_;  // one a replica

  PrecisionPolicy precision_ = PrecisionPolicy::kFloat32;
  std::optional<Optimizer> rule_;
  std::optional<Loss> loss_;
  MirroredOptimizer optimizer_;
  MirroredMetric loss_metric_;
  std::vector<Measured> metrics_;
  std::unique_ptr<ServerTraining> servers_;  // where variables are on parameter servers
};

}  // namespace cohort
