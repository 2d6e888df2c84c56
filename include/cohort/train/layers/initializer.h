// The values with which parameters start, and what they cost while they learn.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

// The name and the numbers of an initializer or a regularizer, from which files make it again.
struct NamedNumbers {
  std::string name = {};             // "constant", "l1_l2", ...; empty: a function of the user's
  std::vector<double> numbers = {};  // the arguments of the function of that name; an enumeration is its number
};

// The numbers of inputs and outputs of one element of a layer, by which initializers scale.
struct Fans {
  double in = 1.0;   // elements that one output is made of
  double out = 1.0;  // elements that one input goes into

  // Returns the fans of a kernel in Keras' layout, [receptive field..., inputs, outputs].
  static Fans of_kernel(torch::IntArrayRef shape);
};

struct VarianceScalingOptions {
  // The number of elements by which the variance is divided.
  enum class Mode { kFanIn, kFanOut, kFanAvg };
  // The sort of numbers; a truncated normal has none beyond two deviations, and the variance all the same.
  enum class Distribution { kTruncatedNormal, kUntruncatedNormal, kUniform };

  double scale = 1.0;                                          // the variance times that number of elements
  Mode mode = Mode::kFanIn;                                    // the number that is meant
  Distribution distribution = Distribution::kTruncatedNormal;  // the numbers
};

struct NormalOptions {
  double mean = 0.0;     // middle of the numbers
  double stddev = 0.05;  // their deviation, before a truncated normal is cut off at two of them
};

// The values with which a parameter starts. Draws from LibTorch's default generator (torch::manual_seed).
class Initializer {
 public:
  // The ways to start that need no number, with Keras' defaults.
  enum Kind {
    kZeros,
    kOnes,
    kGlorotUniform,  // Glorot and Bengio, 2010
    kGlorotNormal,   // the normal ones are cut off at two standard deviations, as Keras'
    kHeUniform,      // He et al., 2015
    kHeNormal,
    kLecunUniform,
    kLecunNormal,
    kUniform,          // uniform in [-0.05, 0.05]
    kNormal,           // standard deviation 0.05
    kTruncatedNormal,  // the same without numbers beyond 0.1
    kOrthogonal,       // rows or columns are orthonormal (Saxe et al., 2014); 2 dimensions or more
    kIdentity,         // ones on the diagonal; 2 dimensions
  };
  // A function of the user's; it fills the parameter in place.
  using Function = std::function<void(torch::Tensor& parameter)>;

  // One of the library's ways; implicit, so that {.kernel_initializer = Initializer::kHeNormal} reads well.
  Initializer(Kind kind);  // NOLINT(google-explicit-constructor)
  // Takes the one of this name, as parse(); implicit, too.
  Initializer(const char* name) : Initializer(parse(name)) {}  // NOLINT(google-explicit-constructor)
  // A function that fills the tensor in place.
  explicit Initializer(Function function);

  // Returns the initializer that Keras calls by this name: "glorot_uniform", "GlorotUniform", "zeros", "orthogonal",
  // ... Unknown: NotFound lists them.
  static Initializer parse(std::string_view name);
  // Fills with one number.
  static Initializer constant(double value);
  // Draws uniform numbers from [low, high).
  static Initializer random_uniform(double low = -0.05, double high = 0.05);
  // Draws normal numbers.
  static Initializer random_normal(const NormalOptions& options = {});
  // Draws normal numbers, those beyond two deviations again.
  static Initializer truncated_normal(const NormalOptions& options = {});
  // Draws numbers whose variance is scaled by the fans (all of Glorot's, He's and Lecun's are such).
  static Initializer variance_scaling(const VarianceScalingOptions& options = {});
  // Makes an orthogonal matrix times `gain`.
  static Initializer orthogonal(double gain = 1.0);
  // Makes the identity times `gain`.
  static Initializer identity(double gain = 1.0);

  // Returns the function of this class by which it was made.
  const NamedNumbers& recipe() const { return recipe_; }
  // Fills the parameter of a layer with these fans.
  void fill(torch::Tensor parameter, const Fans& fans) const;
  // The same with the numbers of inputs and outputs one by one.
  void fill(torch::Tensor parameter, double fan_in, double fan_out) const {
    fill(std::move(parameter), Fans{fan_in, fan_out});
  }

 private:
  using Fill = std::function<void(torch::Tensor& parameter, const Fans& fans)>;
  Initializer(NamedNumbers recipe, Fill fill) : recipe_(std::move(recipe)), fill_(std::move(fill)) {}

  NamedNumbers recipe_;
  Fill fill_;
};

// The cost that a parameter adds to the loss of each step, by its values. By default there is none.
class Regularizer {
 public:
  // A function of the user's: the cost of a parameter, a scalar with a gradient.
  using Function = std::function<torch::Tensor(const torch::Tensor& parameter)>;

  // Makes a regularizer that costs nothing.
  Regularizer() = default;
  // The one of this name, as parse(); implicit, so that {.kernel_regularizer = "l2"} reads well.
  Regularizer(const char* name) : Regularizer(parse(name)) {}  // NOLINT(google-explicit-constructor)
  // The function; it is called by several threads at once.
  explicit Regularizer(Function function);

  // l1 times the sum of magnitudes, plus l2 times the sum of squares.
  static Regularizer l1_l2(double l1, double l2);
  // l1 times the sum of magnitudes.
  static Regularizer l1(double l1 = 0.01) { return l1_l2(l1, 0.0); }
  // l2 times the sum of squares.
  static Regularizer l2(double l2 = 0.01) { return l1_l2(0.0, l2); }
  // The vectors of a matrix that orthogonal() compares; those of a kernel as Keras has it, [inputs, outputs].
  enum class Mode { kRows, kColumns };
  // factor times the mean of the magnitudes of the cosines between the vectors of a matrix. InvalidArgument, at a step:
  // the parameter has other than two dimensions.
  static Regularizer orthogonal(double factor = 0.01, Mode mode = Mode::kRows);
  // Returns the regularizer that Keras calls by this name, with its numbers: "l1", "l2", "l1_l2",
  // "orthogonal_regularizer" (0.01 each). Unknown: NotFound lists them.
  static Regularizer parse(std::string_view name);

  // Returns the function of this class by which it was made.
  const NamedNumbers& recipe() const { return recipe_; }
  // Returns whether there is one.
  explicit operator bool() const { return static_cast<bool>(function_); }
  // Returns whether it wants the parameter in Keras' layout, and not as the layer has it.
  bool takes_keras_layout() const { return takes_keras_layout_; }
  // Returns the cost of the parameter.
  torch::Tensor operator()(const torch::Tensor& parameter) const { return function_(parameter); }

 private:
  NamedNumbers recipe_;
  Function function_;
  bool takes_keras_layout_ = false;
};

}  // namespace cohort
