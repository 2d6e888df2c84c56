// Augmentation as TensorFlow's Model Garden does it (official.vision.ops.augment), to its pixels: the operations, and
// RandAugment, AutoAugment, RandomErasing and MixupAndCutmix that draw them.
//
//   train.random_map(on_x(augment::RandAugment({.num_layers = 2, .magnitude = 9})))
//
// Pictures are [height, width, 3], uint8 where nothing else is said. The functions of cohort/data/augment.h are
// torchvision's instead. A shape or an option that does not fit is InvalidArgument. A generator may be used by one
// thread at a time, everything else is thread-safe.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/example.h"

namespace cohort::augment {

// Returns first + factor * (second - first), cut off at 0 and 255.
torch::Tensor blend(const torch::Tensor& first, const torch::Tensor& second, double factor);
// Stretches each channel to the whole range.
torch::Tensor autocontrast(const torch::Tensor& image);
// Makes all values of each channel about equally frequent.
torch::Tensor equalize(const torch::Tensor& image);
// Returns 255 less each value.
torch::Tensor invert(const torch::Tensor& image);
// Inverts the values from the threshold on.
torch::Tensor solarize(const torch::Tensor& image, int64_t threshold = 128);
// Adds to the values below the threshold.
torch::Tensor solarize_add(const torch::Tensor& image, int64_t addition = 0, int64_t threshold = 128);
// Keeps the highest bits, 0 to 8; of 0 the highest one stays all the same, as in TensorFlow.
torch::Tensor posterize(const torch::Tensor& image, int64_t bits);
// Blends with the grey image.
torch::Tensor color(const torch::Tensor& image, double factor);
// Multiplies the distance from the mean of each channel, as image::adjust_contrast().
torch::Tensor contrast(const torch::Tensor& image, double factor);
// Blends with black.
torch::Tensor brightness(const torch::Tensor& image, double factor);
// Blends with the smoothed image.
torch::Tensor sharpness(const torch::Tensor& image, double factor);
// Returns the grey image in three channels.
torch::Tensor grayscale(const torch::Tensor& image);

// Geometry takes the nearest pixel; outside the image lies its mirror image, as Model Garden's Keras has it (so the
// grey that Model Garden names for pixels from outside never appears).

// Takes each pixel from `pixels` further right.
torch::Tensor translate_x(const torch::Tensor& image, double pixels);
// Takes each pixel from `pixels` further down.
torch::Tensor translate_y(const torch::Tensor& image, double pixels);
// Takes each pixel from level * row further right.
torch::Tensor shear_x(const torch::Tensor& image, double level);
// Takes each pixel from level * column further down.
torch::Tensor shear_y(const torch::Tensor& image, double level);
// Turns about the middle.
torch::Tensor rotate(const torch::Tensor& image, double degrees);
// Paints a square of side 2 * half_side about a place that is drawn from the whole image.
torch::Tensor cutout(const torch::Tensor& image, int64_t half_side, at::Generator generator, int64_t replace = 0);

// Blurs with the 3 by 3 kernel of a normal distribution of this deviation, in pixels, above 0; the image goes on as its
// mirror image, outermost pixels once. Model Garden calls it gaussian_noise. Pictures of 2 by 2 pixels or more.
torch::Tensor gaussian_blur(const torch::Tensor& image, double deviation);

// A picture with the boxes of what is in it.
struct BoxedImage {
  torch::Tensor image;  // as the operations above take it
  torch::Tensor boxes;  // float32 [boxes, 4]: each one's top, left, bottom and right as shares of the height and width
};
// The geometry above, with the boxes that hold what was in the boxes before: cut off at the borders, where one of no
// height or width gets some. Corners are whole pixels, rounded towards zero, as in Model Garden.

// Turns about the middle.
BoxedImage rotate_with_bboxes(const BoxedImage& of, double degrees);
// Shears along the rows (shear_x) or the columns.
BoxedImage shear_with_bboxes(const BoxedImage& of, double level, bool shear_horizontal);
// Shifts along the rows (translate_x) or the columns.
BoxedImage translate_bbox(const BoxedImage& of, double pixels, bool shift_horizontal);
// Shifts what is in each box along the columns, with a third of the probability for each; the boxes stay.
BoxedImage translate_y_only_bboxes(const BoxedImage& of, double probability, double pixels, at::Generator generator);

struct LevelOptions {
  double cutout_const = 40.0;      // half the side of Cutout's square at level 10, in pixels
  double translate_const = 100.0;  // pixels of a translation at level 10
};
// Returns the argument of an operation at a level from 0 to 10, nothing for those without one. Rotations, shears and
// translations take it with either sign; Gaussian_Noise draws a deviation from it to translate_const times as much.
// NotFound lists the operations.
std::optional<double> level_to_arg(std::string_view operation, double level, const LevelOptions& options = {});
// Applies an operation by its name with what level_to_arg() gives; the generator draws the sign and Cutout's place.
torch::Tensor apply_at_level(const torch::Tensor& image, std::string_view operation, double level,
                             at::Generator generator, const LevelOptions& options = {});
// The same of a picture with boxes, and of the operations that need them (Rotate_BBox, TranslateY_Only_BBoxes, ...),
// which are an InvalidArgument without boxes. `probability` is that of TranslateY_Only_BBoxes, for each box.
BoxedImage apply_at_level(const BoxedImage& of, std::string_view operation, double level, at::Generator generator,
                          const LevelOptions& options = {}, double probability = 1.0);

struct RandAugmentOptions {
  int64_t num_layers = 2;          // operations one after the other
  double magnitude = 10.0;         // their level, 0 to 10
  double cutout_const = 40.0;      // half the side of Cutout's square at level 10, in pixels
  double translate_const = 100.0;  // pixels of a translation at level 10
  // Deviation of a normal number that is added to each level. (Model Garden adds one of deviation 1 for any value above
  // 0.)
  double magnitude_std = 0.0;
  std::optional<double> prob_to_apply = std::nullopt;  // probability of each layer; unset: always
  std::vector<std::string> exclude_ops = {};           // operations that are not drawn
};
// E. Cubuk et al., "RandAugment" (2020): each layer draws one of 16 operations or none.
class RandAugment {
 public:
  explicit RandAugment(RandAugmentOptions options = {});
  // Returns one whose geometry moves the boxes too.
  static RandAugment build_for_detection(RandAugmentOptions options = {});
  // Returns the augmented picture. An image of another dtype than uint8 counts from 0 to 255, and keeps its dtype.
  torch::Tensor operator()(const torch::Tensor& image, at::Generator generator) const;
  // The same of a picture with boxes.
  BoxedImage operator()(const BoxedImage& of, at::Generator generator) const;
  // Returns the operations that are drawn.
  const std::vector<std::string>& operations() const { return operations_; }

 private:
  RandAugmentOptions options_;
  std::vector<std::string> operations_;
};

// One operation of a policy.
struct PolicyStep {
  std::string operation;     // a name that level_to_arg() knows
  double probability = 1.0;  // the share of pictures that it is applied to
  double level = 0.0;        // 0 to 10
};
// Operations that are applied one after the other.
using SubPolicy = std::vector<PolicyStep>;

struct AutoAugmentOptions {
  // "v0", "reduced_cifar10", "svhn", "reduced_imagenet", "simple", "panoptic_deeplab_policy", "vit",
  // "deit3_three_augment", "test", or "detection_v0", whose operations need boxes.
  std::string augmentation_name = "v0";
  std::vector<SubPolicy> policies = {};  // taken instead of those with the name, unless empty
  double cutout_const = 100.0;           // half the side of Cutout's square at level 10, in pixels
  double translate_const = 250.0;        // pixels of a translation at level 10
};
// E. Cubuk et al., "AutoAugment" (2019): each picture draws one of the policies.
class AutoAugment {
 public:
  explicit AutoAugment(AutoAugmentOptions options = {});
  // Returns the augmented picture. An image of another dtype than uint8 counts from 0 to 255, and keeps its dtype.
  torch::Tensor operator()(const torch::Tensor& image, at::Generator generator) const;
  // The same of a picture with boxes.
  BoxedImage operator()(const BoxedImage& of, at::Generator generator) const;
  // Returns the policies that are drawn.
  const std::vector<SubPolicy>& policies() const { return options_.policies; }

 private:
  AutoAugmentOptions options_;
};

struct RandomErasingOptions {
  double probability = 0.25;                        // the share of pictures that are changed
  double min_area = 0.02;                           // smallest part of the area
  double max_area = 1.0 / 3.0;                      // largest part of the area
  double min_aspect = 0.3;                          // smallest ratio of height to width
  std::optional<double> max_aspect = std::nullopt;  // largest ratio; unset: 1 / min_aspect
  int64_t min_count = 1;                            // fewest rectangles
  int64_t max_count = 1;                            // most rectangles
  int64_t trials = 10;                              // the most attempts to draw a rectangle that fits
};
// Z. Zhong et al., "Random Erasing" (2020): fills rectangles with normal noise, in floating-point pictures.
class RandomErasing {
 public:
  explicit RandomErasing(RandomErasingOptions options = {});
  // Returns the picture, changed or not.
  torch::Tensor operator()(const torch::Tensor& image, at::Generator generator) const;

 private:
  RandomErasingOptions options_;
};

struct MixupAndCutmixOptions {
  double mixup_alpha = 0.8;      // the parameter of the Beta distribution of shares; 0: no mixup
  double cutmix_alpha = 1.0;     // the parameter of the Beta distribution of areas; 0: no CutMix
  double prob = 1.0;             // the share of batches that are mixed
  double switch_prob = 0.5;      // the share of these that CutMix mixes, where both are there
  double label_smoothing = 0.1;  // given to all classes alike
  int64_t num_classes = 1001;    // labels are below it
};
// Mixes each picture of a floating-point batch [examples, height, width, 3] with the one at the mirrored place, by a
// share or a rectangle of its own. Labels become float32 [examples, num_classes], for CategoricalCrossentropy.
class MixupAndCutmix {
 public:
  explicit MixupAndCutmix(MixupAndCutmixOptions options = {});
  // Returns the mixed batch; for Dataset::random_map after batch().
  Example operator()(Example batch, at::Generator generator) const;

 private:
  MixupAndCutmixOptions options_;
};

}  // namespace cohort::augment
