// Model Garden's augmentations that draw: which operations, how strong, where.
#include "cohort/data/auto_augment.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "wings/vision/data/images/tensorflow/fill.h"
#include "wings/vision/data/images/tensorflow/pictures.h"
#include "wings/vision/data/images/tensorflow/policies.h"

namespace cohort::augment {

using images::draw_below;
using images::draw_uniform;

namespace {

constexpr double kMaxLevel = 10.0;

// The argument that an operation takes at a level.
enum class Argument { kNone, kInteger, kEnhance, kSigned, kShare };

struct ImageOperation {
  std::string_view name;
  Argument argument;
  double at_most;  // the argument at level 10; Cutout's and the translations' are options
  bool drawn;      // RandAugment draws it
};
constexpr std::array kAugmentOperations = {
    ImageOperation{"AutoContrast", Argument::kNone, 0, true},
    ImageOperation{"Equalize", Argument::kNone, 0, true},
    ImageOperation{"Invert", Argument::kNone, 0, true},
    ImageOperation{"Rotate", Argument::kSigned, 30, true},
    ImageOperation{"Posterize", Argument::kInteger, 4, true},
    ImageOperation{"Solarize", Argument::kInteger, 256, true},
    ImageOperation{"Color", Argument::kEnhance, 1.8, true},
    ImageOperation{"Contrast", Argument::kEnhance, 1.8, true},
    ImageOperation{"Brightness", Argument::kEnhance, 1.8, true},
    ImageOperation{"Sharpness", Argument::kEnhance, 1.8, true},
    ImageOperation{"ShearX", Argument::kSigned, 0.3, true},
    ImageOperation{"ShearY", Argument::kSigned, 0.3, true},
    ImageOperation{"TranslateX", Argument::kSigned, 0, true},
    ImageOperation{"TranslateY", Argument::kSigned, 0, true},
    ImageOperation{"Cutout", Argument::kInteger, 0, true},
    ImageOperation{"SolarizeAdd", Argument::kInteger, 110, true},
    ImageOperation{"Grayscale", Argument::kNone, 0, false},
    ImageOperation{"Gaussian_Noise", Argument::kShare, 1, false},
    ImageOperation{"Rotate_BBox", Argument::kSigned, 30, false},
    ImageOperation{"ShearX_BBox", Argument::kSigned, 0.3, false},
    ImageOperation{"ShearY_BBox", Argument::kSigned, 0.3, false},
    ImageOperation{"TranslateX_BBox", Argument::kSigned, 0, false},
    ImageOperation{"TranslateY_BBox", Argument::kSigned, 0, false},
    ImageOperation{"TranslateY_Only_BBoxes", Argument::kSigned, 120, false},
};
// Those that move boxes with the picture.
constexpr std::array kBoxed = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"};
constexpr std::string_view kOnlyBoxes = "TranslateY_Only_BBoxes";

const ImageOperation& operation_of(std::string_view name) {
  std::string known;
  for (const ImageOperation& each : kAugmentOperations) {
    if (each.name == name) return each;
    known.append(known.empty() ? "" : ", ").append(each.name);
  }
  fail<NotFound>("[image] augment: there is no operation \"", name, "\"; there are ", known);
}

double largest_argument(const ImageOperation& operation, const LevelOptions& options) {
  if (operation.name == "Cutout") return options.cutout_const;
  if (operation.name.starts_with("Translate") && operation.name != kOnlyBoxes) return options.translate_const;
  return operation.at_most;
}

torch::Tensor apply_argument(const torch::Tensor& image, std::string_view name, double argument,
                             const at::Generator& generator) {
  const auto whole = static_cast<int64_t>(argument);
  constexpr int64_t kGrey = 128;
  if (name == "AutoContrast") return autocontrast(image);
  if (name == "Equalize") return equalize(image);
  if (name == "Invert") return invert(image);
  if (name == "Rotate") return rotate(image, argument);
  if (name == "Posterize") return posterize(image, whole);
  if (name == "Solarize") return solarize(image, whole);
  if (name == "Color") return color(image, argument);
  if (name == "Contrast") return contrast(image, argument);
  if (name == "Brightness") return brightness(image, argument);
  if (name == "Sharpness") return sharpness(image, argument);
  if (name == "ShearX") return shear_x(image, argument);
  if (name == "ShearY") return shear_y(image, argument);
  if (name == "TranslateX") return translate_x(image, argument);
  if (name == "TranslateY") return translate_y(image, argument);
  if (name == "Cutout") return cutout(image, whole, generator, kGrey);
  if (name == "SolarizeAdd") return solarize_add(image, whole);
  return grayscale(image);
}

BoxedImage apply_argument(const BoxedImage& of, std::string_view name, double argument, double probability,
                          const at::Generator& generator) {
  if (name == "Rotate_BBox") return rotate_with_bboxes(of, argument);
  if (name == "ShearX_BBox") return shear_with_bboxes(of, argument, true);
  if (name == "ShearY_BBox") return shear_with_bboxes(of, argument, false);
  if (name == "TranslateX_BBox") return translate_bbox(of, argument, true);
  if (name == "TranslateY_BBox") return translate_bbox(of, argument, false);
  if (name == kOnlyBoxes) return translate_y_only_bboxes(of, probability, argument, generator);
  return {.image = apply_argument(of.image, name, argument, generator), .boxes = of.boxes};
}

bool needs_boxes(std::string_view name) {
  return name == kOnlyBoxes || name.ends_with("_BBox");
}

// Applies a function of bytes to a picture of any dtype that counts from 0 to 255.
template <typename Function>
BoxedImage in_bytes(const BoxedImage& of, const Function& function) {
  if (!of.image.defined() || of.image.scalar_type() == torch::kByte) return function(of);
  BoxedImage result = function({.image = of.image.clamp(0.0, 255.0).to(torch::kByte), .boxes = of.boxes});
  result.image = result.image.to(of.image.scalar_type());
  return result;
}

void check_probability(const char* what, const char* option, double value) {
  if (value >= 0.0 && value <= 1.0) return;
  fail<InvalidArgument>("[image] ", what, ": ", option, " is ", value, ", wanted 0 to 1");
}

void check_level(const char* what, double level) {
  if (level >= 0.0 && level <= kMaxLevel) return;
  fail<InvalidArgument>("[image] ", what, ": the level is ", level, ", wanted 0 to 10");
}

}  // namespace

std::optional<double> level_to_arg(std::string_view operation, double level, const LevelOptions& options) {
  const ImageOperation& found = operation_of(operation);
  check_level("level_to_arg", level);
  const double part = level / kMaxLevel;
  switch (found.argument) {
    case Argument::kNone:
      return std::nullopt;
    case Argument::kInteger:
      return std::floor(part * largest_argument(found, options));
    case Argument::kEnhance:
      return part * found.at_most + 0.1;
    case Argument::kSigned:
    case Argument::kShare:
      return part * largest_argument(found, options);
  }
  return std::nullopt;
}

torch::Tensor apply_at_level(const torch::Tensor& image, std::string_view operation, double level,
                             at::Generator generator, const LevelOptions& options) {
  return apply_at_level(BoxedImage{.image = image, .boxes = {}}, operation, level, std::move(generator), options).image;
}

BoxedImage apply_at_level(const BoxedImage& of, std::string_view operation, double level, at::Generator generator,
                          const LevelOptions& options, double probability) {
  images::require_bytes("apply_at_level", of.image);
  check_probability("apply_at_level", "the probability", probability);
  double argument = level_to_arg(operation, level, options).value_or(0.0);
  const Argument sort = operation_of(operation).argument;
  if (needs_boxes(operation) && !of.boxes.defined()) {
    fail<InvalidArgument>("[image] augment: ", operation, " moves boxes, and the picture came without any");
  }
  if (sort == Argument::kSigned && draw_below(2, generator) == 0) argument = -argument;
  if (sort == Argument::kShare) {
    const double deviation = draw_uniform(argument, std::max(argument, argument * options.translate_const), generator);
    return {.image = argument > 0.0 ? gaussian_blur(of.image, deviation) : of.image, .boxes = of.boxes};
  }
  return apply_argument(of, operation, argument, probability, generator);
}

RandAugment::RandAugment(RandAugmentOptions options) : options_(std::move(options)) {
  check_level("RandAugment", options_.magnitude);
  if (options_.num_layers < 0 || !(options_.magnitude_std >= 0.0)) {
    fail<InvalidArgument>("[image] RandAugment: num_layers is ", options_.num_layers, " and magnitude_std ",
                          options_.magnitude_std, ", wanted 0 or more");
  }
  if (options_.prob_to_apply) check_probability("RandAugment", "prob_to_apply", *options_.prob_to_apply);
  const auto excluded = [&](std::string_view name) {
    return std::find(options_.exclude_ops.begin(), options_.exclude_ops.end(), name) != options_.exclude_ops.end();
  };
  for (const std::string& name : options_.exclude_ops) operation_of(name);
  for (const ImageOperation& each : kAugmentOperations) {
    if (each.drawn && !excluded(each.name)) operations_.emplace_back(each.name);
  }
}

RandAugment RandAugment::build_for_detection(RandAugmentOptions options) {
  RandAugment made(std::move(options));
  for (std::string& name : made.operations_) {
    if (std::find(kBoxed.begin(), kBoxed.end(), name) != kBoxed.end()) name += "_BBox";
  }
  return made;
}

torch::Tensor RandAugment::operator()(const torch::Tensor& image, at::Generator generator) const {
  return (*this)(BoxedImage{.image = image, .boxes = {}}, std::move(generator)).image;
}

BoxedImage RandAugment::operator()(const BoxedImage& of, at::Generator generator) const {
  const LevelOptions levels{.cutout_const = options_.cutout_const, .translate_const = options_.translate_const};
  return in_bytes(of, [&](BoxedImage picture) {
    images::require_bytes("RandAugment", picture.image);
    for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
      const auto drawn = static_cast<std::size_t>(draw_below(static_cast<int64_t>(operations_.size()) + 1, generator));
      double level = options_.magnitude;
      if (options_.magnitude_std > 0.0) {
        const torch::Tensor normal = at::randn({}, generator, at::TensorOptions(torch::kDouble));
        level = std::clamp(level + options_.magnitude_std * normal.item<double>(), 0.0, kMaxLevel);
      }
      const bool applied = !options_.prob_to_apply || draw_uniform(0.0, 1.0, generator) < *options_.prob_to_apply;
      if (!applied || drawn == operations_.size()) continue;
      picture = apply_at_level(picture, operations_[drawn], level, generator, levels);
    }
    return picture;
  });
}

AutoAugment::AutoAugment(AutoAugmentOptions options) : options_(std::move(options)) {
  if (options_.policies.empty()) options_.policies = named_policies(options_.augmentation_name);
  for (const SubPolicy& policy : options_.policies) {
    for (const PolicyStep& step : policy) {
      operation_of(step.operation);
      check_probability("AutoAugment", "the probability of a step", step.probability);
      check_level("AutoAugment", step.level);
    }
  }
}

torch::Tensor AutoAugment::operator()(const torch::Tensor& image, at::Generator generator) const {
  return (*this)(BoxedImage{.image = image, .boxes = {}}, std::move(generator)).image;
}

BoxedImage AutoAugment::operator()(const BoxedImage& of, at::Generator generator) const {
  const LevelOptions levels{.cutout_const = options_.cutout_const, .translate_const = options_.translate_const};
  return in_bytes(of, [&](BoxedImage picture) {
    images::require_bytes("AutoAugment", picture.image);
    const int64_t drawn = draw_below(static_cast<int64_t>(options_.policies.size()), generator);
    for (const PolicyStep& step : options_.policies[static_cast<std::size_t>(drawn)]) {
      if (draw_uniform(0.0, 1.0, generator) >= step.probability) continue;
      picture = apply_at_level(picture, step.operation, step.level, generator, levels, step.probability);
    }
    return picture;
  });
}

RandomErasing::RandomErasing(RandomErasingOptions options) : options_(options) {
  check_probability("RandomErasing", "probability", options_.probability);
  const double max_aspect = options_.max_aspect.value_or(1.0 / options_.min_aspect);
  const bool areas = options_.min_area > 0.0 && options_.min_area <= options_.max_area && options_.max_area <= 1.0;
  const bool counts = options_.min_count >= 1 && options_.min_count <= options_.max_count && options_.trials >= 1;
  if (areas && counts && options_.min_aspect > 0.0 && options_.min_aspect <= max_aspect) return;
  fail<InvalidArgument>(
      "[image] RandomErasing: areas from ", options_.min_area, " to ", options_.max_area, ", aspects from ",
      options_.min_aspect, " to ", max_aspect, ", counts from ", options_.min_count, " to ", options_.max_count,
      " and ", options_.trials,
      " trials; wanted areas in (0, 1], aspects above 0, counts and trials from 1, the lower one first");
}

torch::Tensor RandomErasing::operator()(const torch::Tensor& image, at::Generator generator) const {
  images::require_pictures("RandomErasing", image);
  if (image.dim() != 3 || !image.is_floating_point()) {
    fail<InvalidArgument>("[image] RandomErasing: wanted floating point [height, width, channels], got ",
                          image.scalar_type(), image.sizes());
  }
  if (draw_uniform(0.0, 1.0, generator) >= options_.probability) return image;
  const int64_t count = options_.min_count + draw_below(options_.max_count - options_.min_count + 1, generator);
  const double max_aspect = options_.max_aspect.value_or(1.0 / options_.min_aspect);
  const auto pixels = static_cast<double>(image.size(0) * image.size(1));
  torch::Tensor result = image;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t trial = 0; trial < options_.trials; ++trial) {
      const double area = pixels * draw_uniform(options_.min_area, options_.max_area, generator);
      const double aspect = std::exp(draw_uniform(std::log(options_.min_aspect), std::log(max_aspect), generator));
      const auto half_height = static_cast<int64_t>(std::nearbyint(std::sqrt(area * aspect) / 2.0));
      const auto half_width = static_cast<int64_t>(std::nearbyint(std::sqrt(area / aspect) / 2.0));
      if (2 * half_height >= image.size(0) || 2 * half_width >= image.size(1)) continue;
      const int64_t row = draw_below(image.size(0) - 2 * half_height, generator);
      const int64_t column = draw_below(image.size(1) - 2 * half_width, generator);
      result = images::fill_rectangle(
          result, {.row = row, .column = column, .half_height = half_height, .half_width = half_width},
          at::randn(image.sizes(), generator, at::TensorOptions(torch::kFloat)).to(image.scalar_type()));
      break;
    }
  }
  return result;
}

}  // namespace cohort::augment
