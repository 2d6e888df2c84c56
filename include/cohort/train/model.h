// Model: a module with its loss, optimizer and metrics, and the loop that trains it under a strategy (Keras' Model).
//
//   cohort::Sequential model{Flatten(), Dense(128, Activation::kRelu), Dense(10)};
//   model.compile({.optimizer = Adam(), .loss = SparseCategoricalCrossentropy({.from_logits = true}),
//                  .metrics = {SparseCategoricalAccuracy()}});
//   auto history = model.fit(train.shuffle(10'000).batch(128), {.epochs = 5});
//   auto result = model.evaluate(test.batch(128));
//
// A model belongs to the strategy that is current where it is made. Each step's loss is the mean over the true global
// batch: exact for a short last batch and for shares that differ, unlike Keras'. Results are Keras' otherwise.
//
// A module may have several inputs and outputs (module_call.h). Their columns in the examples have names, and so have
// their losses and metrics:
//
//   cohort::Model model([] { return Detector(); }, {.inputs = {"image", "meta"}, .outputs = {"class", "box"}});
//   model.compile({.optimizer = Adam(),
//                  .losses = {{"class", SparseCategoricalCrossentropy({.from_logits = true})}, {"box", "mse"}},
//                  .loss_weights = {{"box", 0.5}},
//                  .output_metrics = {{"class", {"accuracy"}}}});
//   model.fit(Dataset::from_tensor_slices({.inputs = {{"image", a}, {"meta", b}},
//                                          .targets = {{"class", c}, {"box", d}}}).batch(128));
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/dataset.h"
#include "cohort/distributed_dataset.h"
#include "cohort/mirrored.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "cohort/train/basic_losses.h"
#include "cohort/train/basic_metrics.h"
#include "cohort/train/callbacks.h"
#include "cohort/train/layers/basic.h"
#include "cohort/train/layers/convolution.h"
#include "cohort/train/layers/normalization.h"
#include "cohort/train/layers/pooling.h"
#include "cohort/train/module_call.h"
#include "cohort/weights.h"

namespace cohort {

// A loss for each output of a model, by name; an output without one is only predicted or measured.
using NamedLosses = std::vector<std::pair<std::string, std::optional<Loss>>>;
// The metrics of each output.
using NamedMetrics = std::vector<std::pair<std::string, std::vector<Metric>>>;

struct CompileOptions {
  Optimizer optimizer;                      // needed
  std::optional<Loss> loss = std::nullopt;  // the loss of the only output; either this or losses is needed
  // The losses of several outputs, each of which is named here. If the module returns its outputs by position the
  // losses are in that order.
  NamedLosses losses = {};
  // The numbers that the outputs' losses are multiplied by in the sum that is trained; 1 for those that are not named.
  std::vector<std::pair<std::string, double>> loss_weights = {};
  std::vector<Metric> metrics = {};           // metrics of the only output, without the examples' weights, as Keras
  std::vector<Metric> weighted_metrics = {};  // the same with the examples' weights
  NamedMetrics output_metrics = {};           // metrics of several outputs, without the examples' weights
  NamedMetrics weighted_output_metrics = {};  // the same with the examples' weights
  // Names in logs in place of the usual ones: {{"mlm_logits_loss", "lm_example_loss"}}. The loss of the only output, if
  // that has a name, is logged as "loss" and once more under its other name. InvalidArgument: the name in front is that
  // of no loss or metric.
  std::vector<std::pair<std::string, std::string>> log_names = {};
  // kReplicas gives Keras' numbers where the replicas do not divide a batch; not with parameter servers.
  LossAverage loss_average = LossAverage::kGlobalBatch;
  // Steps between two calls of the callbacks' on_batch_begin and on_batch_end in fit(); those of an epoch that are left
  // over are the last. On devices of XLA they are one launch (docs/tpu.md), and as many of an evaluation or prediction.
  int64_t steps_per_execution = 1;
  // With kMixedFloat16 an optimizer without a loss_scale gets the dynamic one.
  PrecisionPolicy precision = PrecisionPolicy::kFloat32;
  // Whether the steps are compiled: by XLA where the replicas' devices record their work (TPU, XLA), as graphs where it
  // can be captured (GPUs). Unset (Keras' "auto"): where they record it. InvalidArgument: true where they do neither;
  // false where they record, because nothing else can run there; true together with run_eagerly or eval_run_eagerly.
  // Unimplemented: graphs with parameter servers or of a pipeline. A step that cannot be captured is a
  // FailedPrecondition when it is (docs/functions.md).
  std::optional<bool> jit_compile = std::nullopt;
  // With true, forward runs in every step, so that it may look at values and have side effects. With false, steps are
  // functions where they are compiled: it runs once for each signature (docs/functions.md).
  bool run_eagerly = false;
  // The same for the steps of evaluate() and predict() alone. Unset: as run_eagerly.
  std::optional<bool> eval_run_eagerly = std::nullopt;
};

// The way in which the progress of training and evaluation is shown.
enum class Verbose {
  kAuto,  // kBar on a terminal, otherwise kLines; kSilent on processes other than the chief
  kSilent,
  kBar,    // redrawn in place
  kLines,  // one an epoch, and one every ten seconds of a long one
};

// The epochs after which validation_data are evaluated.
struct ValidationFreq {
  // After every so many epochs.
  ValidationFreq(int64_t every = 1) : every(every) {}  // NOLINT(google-explicit-constructor)
  // After these epochs, which are numbers from 1.
  ValidationFreq(std::initializer_list<int64_t> list) : epochs(list) {}  // NOLINT(google-explicit-constructor)

  int64_t every = 1;                 // epochs between evaluations, where `epochs` is empty
  std::vector<int64_t> epochs = {};  // the only epochs that end with one
};

struct FitOptions {
  int64_t epochs = 1;         // the number of the last epoch, from 1
  int64_t initial_epoch = 0;  // epochs that are taken as done already
  // Steps of an epoch; 0: an epoch is one pass over the dataset. Otherwise epochs are cut out of one pass, which has to
  // be long enough or repeated: training ends with a warning where it ends.
  int64_t steps_per_epoch = 0;
  // The data that is evaluated at the ends of epochs, in batches; its logs begin with "val_".
  std::optional<Dataset> validation_data = std::nullopt;
  int64_t validation_steps = 0;        // batches of a validation; 0: all
  ValidationFreq validation_freq = 1;  // epochs between validations, or the epochs that end with one: {2, 4}
  // The part of the examples, the last ones before shuffling, that fit() of tensors validates with instead of training;
  // 0: none. InvalidArgument: fit() of a Dataset, beside validation_data, or too few examples.
  double validation_split = 0.0;
  // The weights of examples by their class, a label or the largest entry of a target; a class that is missing weighs 1.
  // For one output. InvalidArgument: examples have weights already. Validation takes none.
  std::map<int64_t, double> class_weight = {};
  std::vector<CallbackPtr> callbacks = {};  // called in this order; what one adds to the logs the next ones see
  Verbose verbose = Verbose::kAuto;         // the form of the progress
  std::ostream* output = nullptr;           // the stream for the progress; null: standard output
  InputOptions input = {};                  // the division and preparation of the data
  int64_t batch_size = 32;                  // the global batch of fit() of tensors
  bool shuffle = true;                      // fit() of tensors shuffles them
};

struct EvaluateOptions {
  int64_t steps = 0;                        // batches to evaluate; 0: all
  std::vector<CallbackPtr> callbacks = {};  // their functions of evaluate() are called
  Verbose verbose = Verbose::kAuto;         // the form of the progress
  std::ostream* output = nullptr;           // the stream for the progress; null: standard output
  InputOptions input = {};                  // the division and preparation of the data
  int64_t batch_size = 32;                  // the global batch of evaluate() of tensors
};

struct PredictOptions {
  int64_t steps = 0;                        // batches to predict; 0: all
  std::vector<CallbackPtr> callbacks = {};  // their functions of predict() are called
  InputOptions input = {};                  // the division and preparation of the data
  int64_t batch_size = 32;                  // the global batch of predict() of tensors
};

struct ModelOptions {
  std::string name = "model";  // the model's name
  // The names of forward's arguments, in their order. If the list is empty they are the inputs of the examples, in the
  // order that those have.
  std::vector<std::string> inputs = {};
  // The names of what forward returns by position, in that order. If the list is empty they are the names in
  // CompileOptions::losses.
  std::vector<std::string> outputs = {};
};

class ModelState;

// A handle to one layer of a model. The children of a model over a module are its layers.
class ModelLayer {
 public:
  ModelLayer(std::shared_ptr<ModelState> model, std::size_t index) : model_(std::move(model)), index_(index) {}

  // Returns the layer's name.
  const std::string& name() const;
  // Returns the sort of layer, such as "Dense".
  const std::string& type() const;
  // Returns whether its parameters learn.
  bool trainable() const;
  // Says whether the layer's parameters learn (and its batch-norm statistics). Takes effect at the next compile(); of a
  // model that was not compiled at once, for optimizers that are made from then on.
  void set_trainable(bool trainable) const;
  // Returns the shape of an example's output, without the batch; nullopt before the model is built, and for children of
  // a module.
  std::optional<Shape> output_shape() const;
  // Returns the parameters and floating-point buffers of the first replica's copy, by name within the layer: the
  // tensors themselves.
  NamedTensors weights() const;
  // Returns the number of elements of all parameters.
  int64_t count_params() const;

 private:
  std::shared_ptr<ModelState> model_;
  std::size_t index_;
};

// A handle: copies are the same model. One thread at a time, in cross-replica context.
class Model {
 public:
  // Makes a model over any module: factory() returns a module holder or a shared_ptr whose forward takes one tensor or
  // several; see module_call.h and Strategy::mirror. Its forward has to take batches of no examples, which a short last
  // batch leaves to some replicas.
  template <typename Factory>
  requires std::invocable<Factory&>
  explicit Model(Factory factory, std::string name = "model")
      : Model(std::move(factory), ModelOptions{.name = std::move(name)}) {}
  template <typename Factory>
  requires std::invocable<Factory&> Model(Factory factory, const ModelOptions& options)
      : Model([factory = std::move(factory)]() mutable { return detail::module_call(factory()); }, options, Foreign{}) {
  }

  // Makes a model over copies of a module that Python wrote: Model(torch::jit::load("net.pt")); see ScriptModule.
  // Several inputs are given by position.
  explicit Model(const torch::jit::Module& module, std::string name = "model");
  Model(const torch::jit::Module& module, const ModelOptions& options);

  // Returns the name that the model was made with.
  const std::string& name() const;
  // Returns the strategy that the model belongs to.
  const Strategy& strategy() const;

  // Sets what fit() and evaluate() need; makes frozen layers frozen. The optimizer starts afresh. In a callback of
  // fit() it takes effect from the next step on, where Keras fails; only parameter servers refuse it
  // (FailedPrecondition).
  void compile(const CompileOptions& options);
  // Returns whether compile() was called.
  bool compiled() const;

  // A Sequential is built by the first batch or by this: the shape of an example and its dtype (unset: the model's).
  void build(const Shape& input, std::optional<torch::ScalarType> dtype = std::nullopt);
  // Returns whether the layers have parameters yet.
  bool built() const;

  // Calls the model on a batch, in loops of one's own (Keras' model(x, training=True)): within run() the replica's own
  // copy, outside of it the first one, with tensors of any device. What is returned is differentiable. A Sequential is
  // built by the first call, within run() by all replicas together. InvalidArgument: there are several outputs.
  // FailedPrecondition, outside of run(): no replica has the whole model (stage 3, layouts, stages of workers).
  torch::Tensor operator()(const torch::Tensor& x, const CallOptions& options = {}) const;
  // The same for several inputs, by name or by position (with empty names); returns all outputs, as predict_outputs().
  NamedTensors operator()(const NamedTensors& inputs, const CallOptions& options = {}) const;
  // Calls the model on symbolic tensors (functional.h): it is a layer of another model then.
  template <typename Symbol>
  requires requires(const Model& model, const Symbol& x) { call_model(model, x); }
  auto operator()(const Symbol& x) const { return call_model(*this, x); }
  // The same in a mode that the call keeps to.
  template <typename Symbol>
  requires requires(const Model& model, const Symbol& x) { call_model(model, x); }
  auto operator()(const Symbol& x, const CallOptions& options) const { return call_model(*this, x, options); }
  // Returns the parameters that learn, in the order of ReplicaOptimizer::apply_gradients(): the replica's own, outside
  // of run() those of the first one.
  std::vector<torch::Tensor> trainable_variables() const;
  // Returns what the last call has added to the loss (add_loss.h), and what the regularizers of these parameters do.
  std::vector<torch::Tensor> losses() const;
  // Lets Strategy::optimizer() take a model: optimizers of one's own loops. FailedPrecondition: not built.
  operator const MirroredModule&() const { return module(); }  // NOLINT(google-explicit-constructor)

  // FailedPrecondition: not compiled. InvalidArgument: the dataset is not batched, or empty.
  History fit(const Dataset& data, const FitOptions& options = {});
  History fit(const torch::Tensor& x, const torch::Tensor& y, const FitOptions& options = {});
  // Trains on tensors whose rows are the examples.
  History fit(const Example& columns, const FitOptions& options = {});
  // Returns the loss, that of each of several outputs as "<output>_loss", and the metrics, of several outputs as
  // "<output>_<metric>". The replicas' batch-norm statistics become one first. The modules' modes and the numbers that
  // a training has measured so far stay what they were, so that callbacks may evaluate and predict.
  Logs evaluate(const Dataset& data, const EvaluateOptions& options = {});
  Logs evaluate(const torch::Tensor& x, const torch::Tensor& y, const EvaluateOptions& options = {});
  Logs evaluate(const Example& columns, const EvaluateOptions& options = {});
  // Returns the output for all examples, in their order, on the CPU. InvalidArgument: there are several outputs.
  torch::Tensor predict(const Dataset& data, const PredictOptions& options = {});
  torch::Tensor predict(const torch::Tensor& x, const PredictOptions& options = {});
  // Returns all outputs by name. One that was given no name is "output", several are "output_1", "output_2" and so on.
  NamedTensors predict_outputs(const Dataset& data, const PredictOptions& options = {});
  NamedTensors predict_outputs(const Example& columns, const PredictOptions& options = {});

  // Makes one step on one global batch, which is split among the replicas, and returns the loss and metrics of this
  // batch. All of several workers give the same batch. The numbers that a fit() has measured so far stay what they
  // were, so that callbacks may train.
  Logs train_on_batch(const Example& batch);
  // Returns the loss and metrics of one global batch, without an update.
  Logs test_on_batch(const Example& batch);

  // Ends fit() after the current batch: for callbacks.
  void stop_training();
  // Returns whether stop_training() was called in this fit().
  bool stopping() const;

  // Prints Keras' table. FailedPrecondition: not built.
  void summary() const;
  void summary(std::ostream& output) const;
  // Returns the number of elements of all parameters. FailedPrecondition: not built.
  int64_t count_params() const;

  // Returns the layers, or of a model over a module its children.
  std::vector<ModelLayer> layers() const;
  // NotFound lists the names that there are.
  ModelLayer layer(std::string_view name) const;
  // Sets whether the parameters of all layers learn; see ModelLayer::set_trainable().
  void set_trainable(bool trainable) const;

  // Returns the parameters and buffers by name, copies on the CPU.
  NamedTensors weights() const;
  // NotFound, InvalidArgument: names or shapes do not fit. With strict = false weights that are not given stay.
  void set_weights(const NamedTensors& weights, bool strict = true) const;
  // Writes a safetensors file; names are "<layer>.<parameter>" (of a module: its own). Errors name the file. A file
  // called *.h5 is one of Keras, without metadata (save_keras_weights()), and *.keras is an InvalidArgument. The
  // metadata also get "step" and "epoch", what was trained so far, which load_weights() takes over for the logs of
  // evaluations. All of several workers call it and the chief writes (reads); nobody returns before it is done. Of a
  // model that the workers have in parts (stage 3, layouts, stages) the chief has one whole tensor at once.
  void save_weights(const std::filesystem::path& file, const std::map<std::string, std::string>& metadata = {}) const;
  // Returns the file's metadata. With strict = false weights that the file lacks stay as they are. If the path is a
  // checkpoint's folder, reads the "model" in it, with its values as metadata. A file called *.h5 or *.keras is one of
  // Keras (load_keras_weights()), which has no metadata; InvalidArgument: strict is false for it.
  std::map<std::string, std::string> load_weights(const std::filesystem::path& file, bool strict = true) const;

  // FailedPrecondition: not compiled, not built.
  const MirroredOptimizer& optimizer() const;
  // Returns the copies of the module. FailedPrecondition: not built.
  const MirroredModule& module() const;
  // Returns the direction of a log's name ("val_accuracy"), kUnknown where nothing is known.
  Direction direction(std::string_view log) const;

 protected:
  explicit Model(std::shared_ptr<ModelState> state) : state_(std::move(state)) {}

 private:
  friend class Access;
  struct Foreign {};
  Model(const std::function<detail::ModuleCall()>& factory, const ModelOptions& options, Foreign);

  std::shared_ptr<ModelState> state_;
};

struct SequentialOptions {
  std::string name = "sequential";          // the model's name
  torch::ScalarType dtype = torch::kFloat;  // the dtype of the parameters, to which floating-point input is converted
};

// Layers, one after the other.
class Sequential : public Model {
 public:
  // A model with these layers.
  Sequential(std::initializer_list<Layer> layers);
  // A model with these layers and options.
  explicit Sequential(const std::vector<Layer>& layers, const SequentialOptions& options = {});

  // FailedPrecondition: the model is built already.
  void add(const Layer& layer);
};

}  // namespace cohort
