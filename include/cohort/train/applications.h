// Networks for pictures as functional models of layers, with Keras' names (tf.keras.applications).
//
//   auto base = applications::MobileNetV2({.input_shape = {3, 160, 160}, .include_top = false});
//   base.set_trainable(false);
//   SymbolicTensor input = Input({3, 160, 160});
//   SymbolicTensor x = base(applications::mobilenet_v2::preprocess_input(input), {.training = false});
//   Functional model(input, Dense(1)(GlobalAveragePooling2D()(x)));
//
// A network has one of two forms. Keras' has the layers of Keras 3; torchvision's differs in the biases of its
// convolutions, in the places of its strides and paddings and in the constants of its batch norms. The names of the
// layers are Keras' in both. Pictures are [examples, channels, height, width]. New weights are drawn as Keras draws
// them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/functional.h"

namespace cohort::applications {

// The library whose network it is.
enum class Form { kKeras, kTorchvision };

// The account of a file of weights.
struct LoadedWeights {
  std::filesystem::path file = {};        // empty: no file was read
  std::vector<std::string> read = {};     // the model's weights that the file had, "<layer>.<parameter>"
  std::vector<std::string> missing = {};  // those that it lacks: numbers of batches alone, because others are an error
  std::vector<std::string> unused = {};   // the file's names of weights that the model does not have
};

// A network with the account of its weights. layers() has all layers, as Keras' has.
class Application : public Functional {
 public:
  // Makes the handle of a model that was built in this form.
  Application(Functional model, Form form, LoadedWeights loaded)
      : Functional(std::move(model)), form_(form), loaded_(std::move(loaded)) {}

  // Returns the form that was built.
  Form form() const { return form_; }
  // Returns the account of the file of weights.
  const LoadedWeights& loaded() const { return loaded_; }

 private:
  Form form_;
  LoadedWeights loaded_;
};

// The options of the networks that have no others.
struct ApplicationOptions {
  // Channels, height and width of a picture; -1: any height or width. Empty: {3, 224, 224} with the top (an
  // EfficientNet's own size), {3, -1, -1} without. Height and width are 32 or more, and with the top they are known.
  Shape input_shape = {};
  bool include_top = true;   // the classifier at the end
  std::string pooling = {};  // without the top: "avg" or "max" over each channel; empty: its output stays a picture
  // A file of torchvision's weights, saved as safetensors. Weights of the file that the model does not have, such as
  // the classifier's, are left out. Empty: new weights.
  std::filesystem::path weights = {};
  int64_t classes = 1000;                                   // outputs of the classifier
  Activation classifier_activation = Activation::kSoftmax;  // applied to them; kLinear gives the logits
  std::string name = {};                                    // the model's name; empty: Keras'
  // Unset: torchvision's with a file of weights, otherwise Keras', if it has the network. InvalidArgument: Keras' with
  // a file of torchvision's.
  std::optional<Form> form = std::nullopt;
  torch::ScalarType dtype = torch::kFloat;  // the dtype of the parameters
};
// Makes a ResNet of 50 layers: K. He et al., "Deep Residual Learning for Image Recognition" (2015). It is built under
// the current strategy, and each of several workers reads the file. InvalidArgument: options do not fit, a weight of
// the file has another shape, or its names are not torchvision's. NotFound: there is no such file, or it lacks a weight
// of the model. DataLoss: it is damaged. Other networks throw the same.
Application ResNet50(const ApplicationOptions& options = {});
// Makes a ResNet of 101 layers.
Application ResNet101(const ApplicationOptions& options = {});
// Makes a ResNet of 152 layers.
Application ResNet152(const ApplicationOptions& options = {});
// Makes a ResNet of 18 layers, which torchvision alone has. InvalidArgument: Keras' form.
Application ResNet18(const ApplicationOptions& options = {});
// Makes a ResNet of 34 layers, likewise.
Application ResNet34(const ApplicationOptions& options = {});

// Makes Keras' ResNet of the second version, of 50 layers: K. He et al., "Identity Mappings in Deep Residual Networks"
// (2016). InvalidArgument: torchvision's form or a file of its weights, because it has no such network.
Application ResNet50V2(const ApplicationOptions& options = {});
// Makes one of 101 layers.
Application ResNet101V2(const ApplicationOptions& options = {});
// Makes one of 152 layers.
Application ResNet152V2(const ApplicationOptions& options = {});

// Makes an EfficientNet: M. Tan and Q. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks"
// (2019). Keras' form takes pixels from 0 to 255: a layer scales them, and another one, "normalization", has buffers
// mean and variance of the scaled channels, which are 0 and 1 in a new model. With the top the usual height and width
// are those of the variant: 224, 240, 260, 300, 380, 456, 528, 600.
Application EfficientNetB0(const ApplicationOptions& options = {});
// Makes variant 1.
Application EfficientNetB1(const ApplicationOptions& options = {});
// Makes variant 2.
Application EfficientNetB2(const ApplicationOptions& options = {});
// Makes variant 3.
Application EfficientNetB3(const ApplicationOptions& options = {});
// Makes variant 4.
Application EfficientNetB4(const ApplicationOptions& options = {});
// Makes variant 5.
Application EfficientNetB5(const ApplicationOptions& options = {});
// Makes variant 6.
Application EfficientNetB6(const ApplicationOptions& options = {});
// Makes variant 7.
Application EfficientNetB7(const ApplicationOptions& options = {});

// Makes a VGG of 16 layers: K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
// Recognition" (2014). The classifier of Keras' form fits one size of pictures. torchvision's form averages them to
// that of pictures of 224 x 224, and has dropout.
Application VGG16(const ApplicationOptions& options = {});
// Makes a VGG of 19 layers.
Application VGG19(const ApplicationOptions& options = {});

// Makes a DenseNet of 121 layers: G. Huang et al., "Densely Connected Convolutional Networks" (2016).
Application DenseNet121(const ApplicationOptions& options = {});
// Makes a DenseNet of 169 layers.
Application DenseNet169(const ApplicationOptions& options = {});
// Makes a DenseNet of 201 layers.
Application DenseNet201(const ApplicationOptions& options = {});

struct MobileNetOptions {
  Shape input_shape = {};                                   // as ApplicationOptions::input_shape
  double alpha = 1.0;                                       // factor of the numbers of channels, above 0
  double dropout = 1e-3;                                    // rate of the layer before the classifier, in [0, 1)
  bool include_top = true;                                  // as ApplicationOptions::include_top
  std::string pooling = {};                                 // as ApplicationOptions::pooling
  int64_t classes = 1000;                                   // as ApplicationOptions::classes
  Activation classifier_activation = Activation::kSoftmax;  // as ApplicationOptions::classifier_activation
  std::string name = {};                                    // the model's name; empty: Keras', "mobilenet_1_00_224"
  torch::ScalarType dtype = torch::kFloat;                  // as ApplicationOptions::dtype
};
// Makes Keras' MobileNet, of the first version, with new weights: A. Howard et al., "MobileNets" (2017). torchvision
// has no such network.
Application MobileNet(const MobileNetOptions& options = {});

struct MobileNetV2Options {
  Shape input_shape = {};                                   // as ApplicationOptions::input_shape
  double alpha = 1.0;                                       // factor of the numbers of channels, above 0
  bool include_top = true;                                  // as ApplicationOptions::include_top
  std::string pooling = {};                                 // as ApplicationOptions::pooling
  std::filesystem::path weights = {};                       // as ApplicationOptions::weights
  int64_t classes = 1000;                                   // as ApplicationOptions::classes
  Activation classifier_activation = Activation::kSoftmax;  // as ApplicationOptions::classifier_activation
  std::string name = {};                                    // the model's name; empty: Keras', "mobilenetv2_1_00_224"
  std::optional<Form> form = std::nullopt;                  // as ApplicationOptions::form
  torch::ScalarType dtype = torch::kFloat;                  // as ApplicationOptions::dtype
};
// Makes a MobileNetV2: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018).
Application MobileNetV2(const MobileNetV2Options& options = {});

struct MobileNetV3Options {
  Shape input_shape = {};     // as ApplicationOptions::input_shape; empty: {3, -1, -1}, also with the top
  double alpha = 1.0;         // factor of the numbers of channels, above 0
  bool minimalistic = false;  // without squeeze and excitation, hard_swish and large kernels; Keras' form alone
  bool include_top = true;    // as ApplicationOptions::include_top
  std::string pooling = {};   // as ApplicationOptions::pooling
  std::filesystem::path weights = {};                       // as ApplicationOptions::weights
  int64_t classes = 1000;                                   // as ApplicationOptions::classes
  double dropout_rate = 0.2;                                // rate of the layer before the classifier, in [0, 1)
  Activation classifier_activation = Activation::kSoftmax;  // as ApplicationOptions::classifier_activation
  // Pictures are of pixels from 0 to 255, and a layer scales them. Unset: true in Keras' form. torchvision's has no
  // such layer; InvalidArgument: true there.
  std::optional<bool> include_preprocessing = std::nullopt;
  std::string name = {};                    // the model's name; empty: Keras'
  std::optional<Form> form = std::nullopt;  // as ApplicationOptions::form
  torch::ScalarType dtype = torch::kFloat;  // as ApplicationOptions::dtype
};
// Makes a small MobileNetV3: A. Howard et al., "Searching for MobileNetV3" (2019).
Application MobileNetV3Small(const MobileNetV3Options& options = {});
// Makes a large one.
Application MobileNetV3Large(const MobileNetV3Options& options = {});

struct ViTOptions {
  Shape input_shape = {};    // channels, height and width, in whole patches; empty: {3, 224, 224}
  bool include_top = true;   // the classifier at the end
  std::string pooling = {};  // without the top: "token", the one of the class alone; empty: all tokens, [tokens, size]
  std::filesystem::path weights = {};                       // as ApplicationOptions::weights
  int64_t classes = 1000;                                   // as ApplicationOptions::classes
  Activation classifier_activation = Activation::kSoftmax;  // as ApplicationOptions::classifier_activation
  std::string name = {};                                    // the model's name; empty: "vitb16", ...
  torch::ScalarType dtype = torch::kFloat;                  // as ApplicationOptions::dtype
};
// Makes torchvision's vision transformer of 12 layers on patches of 16 x 16, which Keras does not have: A. Dosovitskiy
// et al., "An Image is Worth 16x16 Words" (2020). It has a position for each patch: weights for pictures of another
// size do not fit. New weights are drawn as torchvision draws them.
Application ViTB16(const ViTOptions& options = {});
// Makes one on patches of 32 x 32.
Application ViTB32(const ViTOptions& options = {});
// Makes a large one, of 24 layers.
Application ViTL16(const ViTOptions& options = {});
// Makes a large one on patches of 32 x 32.
Application ViTL32(const ViTOptions& options = {});
// Makes a huge one, of 32 layers, on patches of 14 x 14.
Application ViTH14(const ViTOptions& options = {});

// A class of a prediction.
struct Prediction {
  std::string class_name;   // the class' identifier, "n02123045"
  std::string description;  // its name, "tabby"
  double score = 0.0;       // its number in the prediction
};
// Returns the classes of the `top` largest numbers of each row of predictions, [examples, classes], in descending
// order. class_index is a file of the classes in Keras' format, imagenet_class_index.json: {"0": ["n01440764",
// "tench"], ...}. NotFound: there is no such file. DataLoss: it has another format. InvalidArgument: predictions have
// another shape, or not as many columns as there are classes in the file.
std::vector<std::vector<Prediction>> decode_predictions(const torch::Tensor& predictions,
                                                        const std::filesystem::path& class_index, int64_t top = 5);

namespace resnet {
// Returns pictures of pixels from 0 to 255, [..., 3, height, width], as Keras' ResNets take them: blue, green and red
// without their means. InvalidArgument: there are not three channels.
torch::Tensor preprocess_input(const torch::Tensor& images);
// Does the same in a model.
SymbolicTensor preprocess_input(const SymbolicTensor& images);
using applications::decode_predictions;
}  // namespace resnet

// VGG16 takes what ResNets take.
namespace vgg16 {
using resnet::decode_predictions;
using resnet::preprocess_input;
}  // namespace vgg16

// VGG19 takes what ResNets take.
namespace vgg19 {
using resnet::decode_predictions;
using resnet::preprocess_input;
}  // namespace vgg19

namespace mobilenet_v2 {
// Returns pictures of pixels from 0 to 255 as Keras' MobileNetV2 takes them: from -1 to 1.
torch::Tensor preprocess_input(const torch::Tensor& images);
// Does the same in a model.
SymbolicTensor preprocess_input(const SymbolicTensor& images);
using applications::decode_predictions;
}  // namespace mobilenet_v2

// MobileNet takes what MobileNetV2 takes.
namespace mobilenet {
using mobilenet_v2::decode_predictions;
using mobilenet_v2::preprocess_input;
}  // namespace mobilenet

// Keras' ResNets of the second version take what MobileNetV2 takes.
namespace resnet_v2 {
using mobilenet_v2::decode_predictions;
using mobilenet_v2::preprocess_input;
}  // namespace resnet_v2

namespace torchvision {
// Returns pictures of pixels from 0 to 255, [..., 3, height, width], as torchvision's networks take them: from 0 to 1,
// without ImageNet's means and divided by its deviations. InvalidArgument: there are not three channels.
torch::Tensor preprocess_input(const torch::Tensor& images);
// Does the same in a model.
SymbolicTensor preprocess_input(const SymbolicTensor& images);
using applications::decode_predictions;
}  // namespace torchvision

// Keras' DenseNets take what torchvision's networks take.
namespace densenet {
using torchvision::decode_predictions;
using torchvision::preprocess_input;
}  // namespace densenet

}  // namespace cohort::applications
