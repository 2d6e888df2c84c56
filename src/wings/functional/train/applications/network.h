// Network: what the networks of applications.h have in common: the two forms of their layers, their ends, and files of
// weights.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/applications.h"
#include "cohort/weights.h"

namespace cohort::applications {

struct NormConstants {
  double momentum = 0.0;
  double epsilon = 0.0;
};

// The properties of a network that do not depend on its options.
struct Family {
  std::string speaker;    // "[applications] ResNet50: "
  std::string signature;  // a weight that all of torchvision's files have; empty: Keras alone has the network
  NormConstants keras_norm = {};
  NormConstants torchvision_norm = {.momentum = 0.9, .epsilon = 1e-5};
  bool any_size = false;     // pictures of any size also with the top
  int64_t usual_size = 224;  // the height and width of a picture with the top
  std::vector<std::string> poolings = {"avg", "max"};
};

// Returns the options that all networks have.
template <typename Options>
ApplicationOptions common_options(const Options& options) {
  return {.input_shape = options.input_shape,
          .include_top = options.include_top,
          .pooling = options.pooling,
          .weights = options.weights,
          .classes = options.classes,
          .classifier_activation = options.classifier_activation,
          .name = options.name,
          .form = options.form,
          .dtype = options.dtype};
}

// The properties of a convolution.
struct KernelShape {
  int64_t filters = 0;  // 0: one for each channel
  int64_t kernel = 1;
  int64_t stride = 1;
  bool bias = false;
  Activation activation = Activation::kLinear;
  Initializer initializer = Initializer::kGlorotUniform;
};

// The properties of a classifier.
struct Classifier {
  std::string theirs;    // torchvision's name
  double dropout = 0.0;  // before it
  Initializer initializer = Initializer::kGlorotUniform;
};

// Notes the layers of a network. A layer's second name is the one that torchvision's files have.
class Network {
 public:
  // Checks the options, reads the file of weights and chooses the form.
  Network(Family family, ApplicationOptions options);

  bool is_keras() const { return form_ == Form::kKeras; }
  // Returns the input.
  const SymbolicTensor& input() const { return input_; }

  // Notes what torchvision calls a layer, or a weight of it.
  void note_names(const std::pair<std::string, std::string>& names) { names_.push_back(names); }

  // Pads a picture with zeros: rows above and below, columns left and right.
  static SymbolicTensor pad(const SymbolicTensor& x, const std::string& name, std::vector<int64_t> border);
  // Pads a picture for a layer with this kernel and a stride of 2, as the form does it.
  SymbolicTensor pad_for_half(const SymbolicTensor& x, const std::string& name, int64_t kernel) const;
  // Adds a convolution without padding, or with Keras' "same".
  SymbolicTensor conv(const SymbolicTensor& x, const std::pair<std::string, std::string>& names,
                      const KernelShape& shape, Padding padding);
  // Adds a convolution that halves a picture. Keras' form has its zeros in the layer.
  SymbolicTensor conv_to_half(const SymbolicTensor& x, const std::pair<std::string, std::string>& names,
                              const KernelShape& shape);
  SymbolicTensor norm(const SymbolicTensor& x, const std::pair<std::string, std::string>& names);
  static SymbolicTensor activation(const SymbolicTensor& x, const std::string& name, const Activation& activation);
  // Adds the classifier, or the pooling that the options ask for; `pool` is the name of the layer before it, or empty.
  SymbolicTensor end(const SymbolicTensor& x, const std::string& pool, const std::string& max_pool,
                     const Classifier& classifier);
  // Adds the pooling that the options ask for.
  SymbolicTensor pooled(const SymbolicTensor& x, const std::string& pool, const std::string& max_pool) const;
  // Makes the model, and gives it the weights of the file.
  Application finish(const SymbolicTensor& output, const std::string& name) const;

 private:
  // Checks the options, and returns the shape of a picture.
  Shape checked_shape() const;
  void choose_form();
  LoadedWeights load(const Model& model) const;

  Family family_;
  ApplicationOptions options_;
  Form form_ = Form::kKeras;
  NamedTensors file_;                                       // its tensors
  std::vector<std::pair<std::string, std::string>> names_;  // the names of layers with weights, or of weights
  SymbolicTensor input_;
};

// Fails with InvalidArgument unless the factor of the numbers of channels makes sense.
void require_alpha(const std::string& speaker, double alpha);
// Returns Keras' name of a model, without the dot, which names of layers do not have: "mobilenetv2_1_00_224".
std::string name_with_alpha(const std::string& name, double alpha, int64_t rows);
// Returns the multiple of 8 that is nearest to a number of channels, and not below nine tenths of it.
int64_t divisible_channels(double channels);

}  // namespace cohort::applications
