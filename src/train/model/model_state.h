// ModelState: the state that a Model is a handle to: the copies of the module, the layers, what compile() was given,
// and the steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/model.h"
#include "device/compute.h"
#include "train/model/outputs.h"
#include "train/model/step_functions.h"
#include "train/model/training_steps.h"

namespace cohort {

class LayeredModule;

// Returns why no replica has a whole model under a strategy; null: each has.
const char* why_in_parts(const StrategyCore& core);

// The terms that modules add to the loss by add_loss() while a model is called on this thread.
struct LossTerms {
  LossTerms() : outer(std::exchange(innermost, this)) {}
  LossTerms(const LossTerms&) = delete;
  LossTerms& operator=(const LossTerms&) = delete;
  ~LossTerms() { innermost = outer; }

  static inline thread_local LossTerms* innermost = nullptr;  // null: nobody asks for terms
  LossTerms* const outer;
  const bool learns = torch::GradMode::is_enabled();
  std::vector<torch::Tensor> list = {};  // scalars
};

class ModelState : public std::enable_shared_from_this<ModelState> {
 public:
  // A layer, or a child of the user's module.
  struct Entry {
    std::string name;
    std::string type;
    bool own_only = false;  // parameters of the root module itself, without its children's
    bool trainable = true;  // as asked for
    bool applied = true;    // as it is since compile()
    bool is_layer = true;   // an operation of a functional model is none
    std::optional<Shape> output = std::nullopt;
    std::string inputs = {};             // the layers that it is connected to, for summary()
    std::vector<std::size_t> held = {};  // parameters that freezing has turned off
  };

  ModelState(const Strategy& strategy, std::string name, torch::ScalarType dtype);
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;
  ~ModelState();

  // Sets the layers, before the module is there, or the module, made of them or the user's.
  void set_layers(std::vector<Layer> layers);
  void add_layer(const Layer& layer);
  void build(const Shape& input, torch::ScalarType input_dtype);
  void build_from(const Example& share);
  void adopt(const std::function<detail::ModuleCall()>& factory, const ModelOptions& options);
  // Describes the layers of an adopted module, which is a LayeredModule, and its inputs; freezes what does not learn.
  void set_entries(std::vector<Entry> entries, const std::vector<BuildContext>& inputs);

  // Returns the layers of a Sequential, and what it was built for; a module of the user's has none.
  const std::vector<Layer>& layers() const { return layers_; }
  const BuildContext& built_for() const { return built_for_; }
  bool built() const { return module_.defined(); }
  void require_built(std::string_view what) const;
  const std::string& name() const { return name_; }
  const Strategy& strategy() const { return strategy_; }
  torch::ScalarType dtype() const { return dtype_; }
  // Sets the precision in which the model is called. Returns the one before.
  PrecisionPolicy set_precision(PrecisionPolicy policy) { return std::exchange(precision_, policy); }
  const MirroredModule& module() const { return module_; }
  // Returns the ways in which the copies are called, one a replica.
  const std::vector<detail::ModuleCall>& calls() const { return calls_; }
  // Throws unless no other scope than the strategy's own is entered.
  void require_scope(std::string_view what) const;

  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::shared_ptr<torch::nn::Module> entry_module(std::size_t index, std::size_t replica) const;
  NamedTensors entry_parameters(std::size_t index, std::size_t replica) const;
  NamedTensors entry_buffers(std::size_t index, std::size_t replica) const;

  void require_compiler(const CompileOptions& options) const;
  void require_graphs() const;
  void compile(const CompileOptions& options);
  bool compiled() const { return outputs_.has_value(); }
  // Returns what compile() was given last; nothing before that.
  const std::optional<CompileOptions>& compile_options() const { return compile_options_; }
  void require_compiled(std::string_view what) const;
  // Returns the optimizer, which is made if it is not there yet.
  const MirroredOptimizer& optimizer();
  bool has_optimizer() const { return optimizer_.defined(); }
  int64_t iterations() const;
  // Steps between two calls of the callbacks of batches.
  int64_t steps_per_execution() const { return steps_per_execution_; }
  Direction direction(std::string_view log) const;
  // Returns whether the logs of the steps have a number of that name.
  bool measures(std::string_view log) const;

  // Warns of layers that were frozen or thawed since compile().
  void warn_of_late_changes() const;
  // Calls the module of the replica that runs, or the first one; see Model::operator().
  NamedTensors call(const Example& share, bool training);
  // Returns the copy of the module that call() takes.
  torch::nn::Module& called_copy() const;
  // Returns what the last call() has added to the loss, and what the regularizers of the layers do, on that copy.
  std::vector<torch::Tensor> losses() const;
  // Sets whether a layer learns; at once in a model that was not compiled.
  void set_trainable(std::size_t index, bool trainable);

  // Sets the modes of the modules, before a run of steps.
  void begin_training();
  void begin_evaluation() const;

  // If variables are on parameter servers, steps may still be under way when train_step() returns, and their
  // measurements come later. train_here() makes the step in this process alone.
  void train_step(const GlobalBatch& batch);
  // "scales": those of a step of which this process, or a call of its function, has a share only, as
  // ModelOutputs::mask_scales() gave them.
  void train_here(const GlobalBatch& batch, const std::vector<double>& scales);
  // Returns the scales of a step whose functions get a microbatch at a time; empty: they get a whole share, or there is
  // no mask.
  std::vector<double> scales_of_microbatches(const GlobalBatch& batch) const;
  // Throws FailedPrecondition if this process only does what another one asks for.
  void require_in_charge(const std::string& what) const;
  // To be called before the first training step of a run of them.
  void begin_steps() const;
  // Waits for the workers of parameter servers, whose values are here then.
  void finish_steps() const;
  // Notes that weights or slots have been set.
  void note_change() const;

  void test_step(const GlobalBatch& batch);
  PerReplica<NamedTensors> predict_step(const GlobalBatch& batch);
  // Sets what every replica does at the end of each training step, as a part of it. Empty: nothing.
  void set_after_update(AfterUpdate after) { after_update_ = std::move(after); }
  const ModelOutputs& outputs() const { return *outputs_; }

  // Forgets what the steps since the last reset have measured.
  void reset_metrics();
  // Calls fn, which measures something else, and sets the metrics back to what the steps before have measured, also if
  // fn throws. After a compile() within fn there is nothing to set back.
  Logs keeping_metrics(const std::function<Logs()>& fn);
  Logs results() const;        // over all replicas
  Logs local_results() const;  // the results of this process
  double local_loss() const;

  // Returns the sums behind the results, of this process: the loss', then the metrics'.
  std::vector<torch::Tensor> metric_sums() const;
  void set_metric_sums(const std::vector<torch::Tensor>& sums);
  void add_metric_sums(const std::vector<torch::Tensor>& more);

  GlobalBatch split(const Example& batch) const;

  bool stop = false;
  int64_t epochs_done = 0;  // epochs done by fit(), or as a loaded file says
  int64_t loaded_step = 0;

 private:
  // The losses of a share.
  struct ShareLosses {
    LossShare sum;                    // the sum of all outputs, times their weights
    std::vector<torch::Tensor> each;  // the total of each output; undefined for one without a loss
  };

  std::string speaker() const { return "[model] " + name_ + ": "; }
  NamedTensors inputs_of(const Example& share) const;
  NamedTensors forward(const Replica& replica, const Example& share) const;
  NamedTensors call_module(const Replica& replica, const Example& share) const;
  Example divided(const Example& share, const std::vector<int64_t>& dims) const;
  // Makes the copies of the module, which leave their outputs in parts if they can.
  void make_copies(const std::function<detail::ModuleCall()>& make);
  // Returns what forward() does, whole, without masks, and with names where that gave none.
  NamedTensors named_outputs(const Replica& replica, const Example& share) const;
  std::vector<OutputShare> judge(const Replica& replica, const Example& share) const;
  // Returns the replica's layers; null for a module of the user's.
  LayeredModule* layers_of(const Replica& replica) const;
  // Has the wings that cut models cut this one for these inputs.
  void cut(const std::vector<BuildContext>& inputs) const;
  // Returns the terms, and what each layer with regularizers adds to the loss.
  std::vector<torch::Tensor> costs(const Replica& replica, std::vector<torch::Tensor> terms) const;
  // Adds what the regularizers of the layers cost, and the terms, to the losses of a share of so many examples.
  void add_penalty(Replica& replica, int64_t examples, const LossTerms& terms, ShareLosses& losses) const;
  ShareLosses losses_of(Replica& replica, const std::vector<OutputShare>& outputs,
                        const std::vector<double>& scales) const;
  // Runs a step, as a function where it can be one.
  PerReplica<NamedTensors> run_step(StepKind kind, const GlobalBatch& batch, const StepFunctions::Body& body);
  std::optional<PerReplica<NamedTensors>> run_function(StepKind kind, const GlobalBatch& batch,
                                                       const StepFunctions::Body& body);
  void make_functions(const CompileOptions& options);
  void record(const Replica& replica, int64_t examples, const std::vector<OutputShare>& outputs,
              const ShareLosses& losses);
  void add_metrics(const CompileOptions& options);
  void list_children();
  void declare();
  void apply_trainable();
  // Keeps statistics of frozen children as they are, which the mode of training would have learn.
  void hold_frozen(std::size_t replica) const;
  const Replica& called_replica() const;
  bool held_elsewhere(std::size_t index, std::size_t replica, const torch::Tensor& parameter) const;
  template <typename Result>
  Logs collect(const Result& result) const;

  struct Measured {
    MirroredMetric metric;
    std::size_t output = 0;
    bool weighted = false;
    std::string name;  // unique in the model
  };

  // Returns whether a log is the loss, or that of an output.
  bool is_loss(std::string_view log) const;
  // Returns the metric that has a number of that name in the logs; null: none.
  const Measured* find_metric(std::string_view log) const;

  Strategy strategy_;
  std::string name_;
  torch::ScalarType dtype_;
  std::vector<Layer> layers_;
  BuildContext built_for_;
  std::vector<Entry> entries_;
  MirroredModule module_;
  std::vector<detail::ModuleCall> calls_;                 // one a replica
  std::vector<std::vector<torch::Tensor>> called_terms_;  // [replica]: what the last call() has added to the loss
  std::vector<std::string> input_names_;                  // as the model was made with
  std::vector<std::string> output_names_;

  PrecisionPolicy precision_ = PrecisionPolicy::kFloat32;
  mutable ConvolutionSearch search_;  // watches the inputs on GPUs
  LossAverage loss_average_ = LossAverage::kGlobalBatch;
  int64_t steps_per_execution_ = 1;
  std::optional<Optimizer> rule_;
  std::optional<ModelOutputs> outputs_;
  MirroredOptimizer optimizer_;
  MirroredMetric loss_metric_;
  std::vector<MirroredMetric> output_losses_;  // the outputs that have a loss, if there are several
  std::vector<Measured> metrics_;
  std::unique_ptr<TrainingSteps> steps_;
  const StepsMaker* steps_maker_;  // null: this process makes the steps
  AfterUpdate after_update_;
  std::optional<StepFunctions> functions_;  // nothing: steps run as they are
  std::optional<CompileOptions> compile_options_;
  int64_t compilations_ = 0;  // calls of compile()
  bool declared_ = false;     // the steps are those of the maker
};

}  // namespace cohort
