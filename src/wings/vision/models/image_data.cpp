// The pipelines of image classification: what task.train_data and task.validation_data ask for, as transformations of
// datasets.
#include "wings/vision/models/image_data.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "cohort/data/augment.h"
#include "cohort/data/device_images.h"
#include "wings/vision/data/images/adjust.h"

namespace cohort {

int decoding_threads(const RuntimeConfig& runtime) {
  if (runtime.dataset_num_private_threads > 0) return static_cast<int>(runtime.dataset_num_private_threads);
  return hardware_cores();
}

torch::Tensor with_channels(const torch::Tensor& image, int64_t wanted) {
  const int64_t channels = image.size(0);
  if (channels == wanted) return image;
  if (channels == 3 && wanted == 1) return images::grey(image);
  if (channels == 1) return image.expand({wanted, image.size(1), image.size(2)}).contiguous();
  fail<InvalidArgument>("[task] an image of ", channels, " channels came, but task.model.input_size wants ", wanted);
}

torch::ScalarType dtype_of(const std::string& name) {
  if (name == "float16") return torch::kHalf;
  return name == "bfloat16" ? torch::kBFloat16 : torch::kFloat;
}

uint64_t seed_of(const ImageDataConfig& data, const RuntimeConfig& runtime) {
  return static_cast<uint64_t>(data.seed >= 0 ? *data.seed : *runtime.seed);
}

namespace {

torch::Tensor one_hot_of(const torch::Tensor& y, int64_t classes) {
  return at::one_hot(y, classes).to(torch::kFloat);
}

PaddingMode padding_mode(const std::string& name) {
  if (name == "edge") return PaddingMode::kEdge;
  if (name == "reflect") return PaddingMode::kReflect;
  return name == "symmetric" ? PaddingMode::kSymmetric : PaddingMode::kConstant;
}

Dataset rounded(const Dataset& batches, const ImageDataConfig& data) {
  if (data.dtype == "float32") return batches;
  return batches.map([type = image_dtype(data)](Example batch) {
    batch.x = batch.x.to(type);
    return batch;
  });
}

// Converts strengths of Model Garden, which are 0 to 10.
template <typename Given>
RandAugmentOptions rand_augment_options(const Given& given) {
  RandAugmentOptions options{.num_ops = given.num_layers,
                             .magnitude = given.magnitude,
                             .num_magnitude_bins = 11,
                             .translation = given.translate_const};
  constexpr std::array kNotHere = {"Cutout", "Invert", "SolarizeAdd"};  // always excluded
  for (const std::string& name : *given.exclude_ops) {
    if (std::find(kNotHere.begin(), kNotHere.end(), name) == kNotHere.end()) options.exclude.push_back(name);
  }
  return options;
}

// The input of the model, in plain numbers.
struct ModelInput {
  int64_t height;
  int64_t width;
  int64_t channels;
  std::vector<double> mean;
  std::vector<double> stddev;
  bool planes;

  explicit ModelInput(const ImageModelConfig& model)
      : height(model.input_size->at(0)),
        width(model.input_size->at(1)),
        channels(model.channels()),
        mean(model.input_mean),
        stddev(model.input_stddev),
        planes(model.takes_planes()) {}

  torch::Tensor operator()(const torch::Tensor& image) const {
    const torch::Tensor input = normalize(image, mean, stddev);
    return planes ? input.squeeze(0) : input;
  }
};

std::optional<RandomResizedCropOptions> resized_crop(const ImageDataConfig& data) {
  if (data.aug_crop != "resized" && data.aug_crop != "true") return std::nullopt;
  return RandomResizedCropOptions{.min_area = data.aug_min_area};
}

std::optional<RandomCropOptions> padded_crop(const ImageDataConfig& data) {
  if (data.aug_crop != "padded") return std::nullopt;
  RandomCropOptions options{.padding = data.aug_crop_padding};
  if (options.padding > 0) options.padding_mode = padding_mode(data.aug_crop_padding_mode);
  return options;
}

// aug_policy and randaug_magnitude are older keys of Model Garden, whose files have the second beside the newer ones.
std::optional<RandAugmentOptions> randaug(const ImageDataConfig& data) {
  const ImageDataConfig plain;
  if (data.aug_type.type == "randaug") {
    if (data.randaug_magnitude != plain.randaug_magnitude) {
      fail<InvalidArgument>("[task] task.train_data.randaug_magnitude is ", data.randaug_magnitude,
                            ", but with aug_type.type aug_type.randaug.magnitude counts, ",
                            data.aug_type.randaug.magnitude);
    }
    return rand_augment_options(data.aug_type.randaug);
  }
  if (data.aug_policy != "randaug") return std::nullopt;
  auto given = plain.aug_type.randaug;
  given.magnitude = data.randaug_magnitude;
  return rand_augment_options(given);
}

std::optional<ColorJitterOptions> jitter(const ImageDataConfig& data) {
  const ColorJitterOptions options{
      .brightness = data.brightness, .contrast = data.contrast, .saturation = data.saturation, .hue = data.hue};
  const bool any = options.brightness > 0.0 || options.contrast > 0.0 || options.saturation > 0.0 || options.hue > 0.0;
  return any ? std::optional(options) : std::nullopt;
}

bool changes_colours(const ImageDataConfig& data) {
  return randaug(data).has_value() || jitter(data).has_value();
}

// Returns what the devices do with training images, if the configuration leaves it to them: the last of the changes,
// which are all but a resizing unless colours change between them.
std::optional<DeviceImages> left_to_devices(const ImageDataConfig& data, const ImageModelConfig& model, bool training) {
  if (!data.images_on_device) return std::nullopt;
  const ModelInput input(model);
  DeviceImageOptions options{
      .mean = input.mean, .deviation = input.stddev, .dtype = image_dtype(data), .planes = input.planes};
  if (!training || changes_colours(data)) return DeviceImages(options);
  if (const auto padded = padded_crop(data)) options.crop = DeviceCrop{input.height, input.width, *padded};
  if (data.aug_rand_hflip) options.flip_probability = 0.5;
  return DeviceImages(options);
}

class TrainingImage {
 public:
  TrainingImage(const ImageDataConfig& data, const ImageModelConfig& model)
      : input_(model),
        resized_(resized_crop(data)),
        padded_(padded_crop(data)),
        flips_(data.aug_rand_hflip),
        randaug_(randaug(data)),
        jitter_(jitter(data)),
        later_(left_to_devices(data, model, /*training=*/true)),
        crops_here_(!later_ || changes_colours(data)) {}

  Example operator()(Example example, at::Generator generator) const {
    const auto [height, width] = std::pair(input_.height, input_.width);
    torch::Tensor& x = example.x;
    x = with_channels(x, input_.channels);
    if (resized_) {
      x = random_resized_crop(x, height, width, generator, *resized_);
    } else {
      if (x.size(1) != height || x.size(2) != width) x = resize_image(x, height, width);
      if (padded_ && crops_here_) x = random_crop(x, height, width, generator, *padded_);
    }
    if (flips_ && crops_here_) x = random_horizontal_flip(x, generator);
    if (randaug_) x = rand_augment(x.contiguous(), generator, *randaug_);
    if (jitter_) x = color_jitter(x.contiguous(), generator, *jitter_);
    if (later_) return (*later_)(std::move(example), generator);
    x = input_(x);
    return example;
  }

 private:
  ModelInput input_;
  std::optional<RandomResizedCropOptions> resized_;
  std::optional<RandomCropOptions> padded_;
  bool flips_;
  std::optional<RandAugmentOptions> randaug_;
  std::optional<ColorJitterOptions> jitter_;
  std::optional<DeviceImages> later_;
  bool crops_here_;  // crops and flips
};

// Resizes the short side to the size divided by the fraction and crops the middle, as torchvision evaluates.
torch::Tensor middle(const torch::Tensor& image, int64_t height, int64_t width, double fraction) {
  if (image.size(1) == height && image.size(2) == width) return image;
  const double scale = std::max(static_cast<double>(height) / static_cast<double>(image.size(1)),
                                static_cast<double>(width) / static_cast<double>(image.size(2))) /
                       fraction;
  const auto scaled = [&](int64_t size, int64_t least) {
    return std::max(least, static_cast<int64_t>(std::llround(static_cast<double>(size) * scale)));
  };
  return center_crop(resize_image(image, scaled(image.size(1), height), scaled(image.size(2), width)), height, width);
}

std::function<Example(Example)> evaluated_image(const ImageSource& source, const ImageDataConfig& data,
                                                const ImageModelConfig& model) {
  const ModelInput input(model);
  const bool whole = source.size == std::vector<int64_t>{input.height, input.width};
  const double fraction = whole ? 1.0 : *data.center_crop_fraction;
  const bool later = data.images_on_device;
  return [input, fraction, later](Example example) {
    const torch::Tensor x = middle(with_channels(example.x, input.channels), input.height, input.width, fraction);
    example.x = later ? x.contiguous() : input(x);
    return example;
  };
}

// Returns the batches as the model takes them.
Dataset finished(const Dataset& batches, const ImageDataConfig& data, const ImageModelConfig& model, bool training) {
  if (const auto images = left_to_devices(data, model, training)) return images->finish(batches);
  return rounded(batches, data);
}

// Images that are mixed, and those that are not bytes, cannot be left to the devices.
void require_bytes(const ImageSource& source, const char* name, const ImageDataConfig& data, bool mixes) {
  if (!data.images_on_device) return;
  if (source.ready) {
    fail<InvalidArgument>("[task] task.", name, ".images_on_device is true, but ", source.description,
                          " come as the model takes them");
  }
  if (mixes) {
    fail<InvalidArgument>("[task] task.", name,
                          ".images_on_device is true, but mixup and cutmix mix images that are "
                          "normalised already; leave one of them out");
  }
}

}  // namespace

torch::ScalarType image_dtype(const ImageDataConfig& data) {
  return dtype_of(data.dtype);
}

Mixing mixing_of(const ImageDataConfig& data) {
  const auto& group = data.mixup_and_cutmix;
  Mixing mixing{.mixup_alpha = group.mixup_alpha, .cutmix_alpha = group.cutmix_alpha};
  if (mixing.any()) mixing.prob = group.prob;
  if (mixing.mixup_alpha > 0.0 && mixing.cutmix_alpha > 0.0) mixing.switch_prob = group.switch_prob;
  return mixing;
}

Dataset training_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                         bool one_hot) {
  const ImageDataConfig& data = task.train_data;
  const uint64_t seed = seed_of(data, runtime);
  const int64_t classes = task.model.num_classes;
  // Digits are in memory already.
  const bool caches = !source.ready && data.cache;
  Dataset images = (caches ? source.train.cache() : source.train).shuffle(data.shuffle_buffer_size, {.seed = seed});
  if (!source.ready) {
    images = images.random_map(TrainingImage(data, task.model),
                               {.seed = seed, .threads = {.num_parallel_calls = decoding_threads(runtime)}});
  }
  Dataset batches = images.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
  require_bytes(source, "train_data", data, mixing_of(data).any());
  const double cutmix_alpha = mixing_of(data).cutmix_alpha;
  if (source.ready && cutmix_alpha > 0.0) {
    fail<InvalidArgument>("[task] task.train_data.mixup_and_cutmix has a cutmix_alpha of ", cutmix_alpha, ", but ",
                          source.description, " have no channels, and are not cut");
  }
  if (one_hot) {
    batches = batches.random_map(
        [mixing = mixing_of(data), classes](Example batch, at::Generator generator) {
          const auto chance = [&] { return at::rand({1}, generator).item<float>(); };
          const bool any = mixing.prob >= 1.0 || chance() < mixing.prob;
          const bool both = mixing.mixup_alpha > 0.0 && mixing.cutmix_alpha > 0.0;
          const bool mix = any && mixing.mixup_alpha > 0.0 && (!both || chance() < 1.0 - mixing.switch_prob);
          if (mix) return mixup(std::move(batch), classes, generator, mixing.mixup_alpha);
          if (any && mixing.cutmix_alpha > 0.0)
            return cutmix(std::move(batch), classes, generator, mixing.cutmix_alpha);
          batch.y = one_hot_of(batch.y, classes);
          return batch;
        },
        {.seed = seed});
  }
  return ahead(finished(batches, data, task.model, /*training=*/true).repeat(), data.prefetch_buffer_size);
}

Dataset validation_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                           bool one_hot) {
  const ImageDataConfig& data = task.validation_data;
  require_bytes(source, "validation_data", data, /*mixes=*/false);
  Dataset ready = source.validation;
  if (!source.ready) {
    ready = ready.map(evaluated_image(source, data, task.model), {.num_parallel_calls = decoding_threads(runtime)});
    if (data.cache) ready = ready.cache();
  }
  Dataset batches = ready.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
  if (one_hot) {
    batches = batches.map([classes = task.model.num_classes.get()](Example batch) {
      batch.y = one_hot_of(batch.y, classes);
      return batch;
    });
  }
  return ahead(finished(batches, data, task.model, /*training=*/false), data.prefetch_buffer_size);
}

}  // namespace cohort
