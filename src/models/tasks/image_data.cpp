#include "models/tasks/image_data.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "cohort/augment.h"
#include "data/images/adjust.h"

namespace cohort {

int decoding_threads(const RuntimeConfig& runtime) {
  if (runtime.dataset_num_private_threads > 0) return static_cast<int>(runtime.dataset_num_private_threads);
  return hardware_cores();
}

uint64_t seed_of(const ImageDataConfig& data, const RuntimeConfig& runtime) {
  return static_cast<uint64_t>(data.seed >= 0 ? data.seed : runtime.seed);
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

torch::ScalarType dtype_of(const std::string& name) {
  if (name == "float16") return torch::kHalf;
  return name == "bfloat16" ? torch::kBFloat16 : torch::kFloat;
}

Dataset rounded(const Dataset& batches, const std::string& dtype) {
  if (dtype == "float32") return batches;
  return batches.map([type = dtype_of(dtype)](Example batch) {
    batch.x = batch.x.to(type);
    return batch;
  });
}

Dataset ahead(const Dataset& batches, int64_t count) {
  if (count == 0) return batches;
  return batches.prefetch(count < 0 ? kAuto : count);
}

// Model Garden's strengths are 0 to 10.
RandAugmentOptions rand_augment_options(const ImageDataConfig& data) {
  const auto& given = data.aug_type.randaug;
  RandAugmentOptions options{.num_ops = given.num_layers,
                             .magnitude = given.magnitude,
                             .num_magnitude_bins = 11,
                             .translation = given.translate_const};
  constexpr std::array kNotHere = {"Cutout", "Invert", "SolarizeAdd"};  // excluded anyway
  for (const std::string& name : given.exclude_ops) {
    if (std::find(kNotHere.begin(), kNotHere.end(), name) == kNotHere.end()) options.exclude.push_back(name);
  }
  return options;
}

// The image in the channels that the model takes: grey is repeated, colours become their brightness.
torch::Tensor with_channels(const torch::Tensor& image, const ImageModelConfig& model) {
  const int64_t wanted = model.channels();
  const int64_t channels = image.size(0);
  if (channels == wanted) return image;
  if (channels == 3 && wanted == 1) return images::grey(image);
  if (channels == 1) return image.expand({wanted, image.size(1), image.size(2)}).contiguous();
  fail<InvalidArgument>("[task] an image of ", channels, " channels came, but task.model.input_size wants ", wanted);
}

torch::Tensor model_input(const torch::Tensor& image, const ImageModelConfig& model) {
  const torch::Tensor input = normalize(image, model.input_mean, model.input_stddev);
  return model.takes_planes() ? input.squeeze(0) : input;
}

class TrainingImage {
 public:
  TrainingImage(const ImageDataConfig& data, const ImageModelConfig& model)
      : data_(data),
        model_(model),
        crop_{.padding = data.aug_crop_padding, .padding_mode = padding_mode(data.aug_crop_padding_mode)},
        augment_(rand_augment_options(data)) {}

  Example operator()(Example example, at::Generator generator) const {
    const int64_t height = model_.input_size.at(0);
    const int64_t width = model_.input_size.at(1);
    torch::Tensor& x = example.x;
    x = with_channels(x, model_);
    if (data_.aug_crop == "resized" || data_.aug_crop == "true") {
      x = random_resized_crop(x, height, width, generator, {.min_area = data_.aug_min_area});
    } else {
      if (x.size(1) != height || x.size(2) != width) x = resize_image(x, height, width);
      if (data_.aug_crop == "padded") x = random_crop(x, height, width, generator, crop_);
    }
    if (data_.aug_rand_hflip) x = random_horizontal_flip(x, generator);
    if (data_.aug_type.type == "randaug") {
      x = rand_augment(x.contiguous(), generator, augment_);
    } else if (data_.aug_policy == "randaug") {
      x = rand_augment(x.contiguous(), generator,
                       {.num_ops = data_.randaug_num_layers, .magnitude = data_.randaug_magnitude});
    }
    if (data_.brightness > 0.0 || data_.contrast > 0.0 || data_.saturation > 0.0 || data_.hue > 0.0) {
      x = color_jitter(x.contiguous(), generator,
                       {.brightness = data_.brightness,
                        .contrast = data_.contrast,
                        .saturation = data_.saturation,
                        .hue = data_.hue});
    }
    x = model_input(x, model_);
    return example;
  }

 private:
  ImageDataConfig data_;
  ImageModelConfig model_;
  RandomCropOptions crop_;
  RandAugmentOptions augment_;
};

// The short side to the size over the fraction, then the middle (torchvision's evaluation).
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

}  // namespace

Mixing mixing_of(const ImageDataConfig& data) {
  const auto& group = data.mixup_and_cutmix;
  const Mixing mixing{.mixup_alpha = std::max(data.mixup_alpha, group.mixup_alpha),
                      .cutmix_alpha = std::max(data.cutmix_alpha, group.cutmix_alpha),
                      .prob = group.prob,
                      .switch_prob = group.switch_prob};
  const bool flat = data.mixup_alpha > 0.0 || data.cutmix_alpha > 0.0;
  if (flat && (group.mixup_alpha > 0.0 || group.cutmix_alpha > 0.0)) {
    fail<InvalidArgument>("[task] task.train_data has mixup_alpha ", data.mixup_alpha, " and cutmix_alpha ",
                          data.cutmix_alpha, ", and in mixup_and_cutmix ", group.mixup_alpha, " and ",
                          group.cutmix_alpha, ": say it in one place");
  }
  return mixing;
}

Dataset training_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                         bool one_hot) {
  const ImageDataConfig& data = task.train_data;
  const uint64_t seed = seed_of(data, runtime);
  const int64_t classes = task.model.num_classes;
  Dataset images = (data.cache ? source.train.cache() : source.train).shuffle(data.shuffle_buffer_size, {.seed = seed});
  if (!source.ready) {
    images = images.random_map(TrainingImage(data, task.model),
                               {.seed = seed, .threads = {.num_parallel_calls = decoding_threads(runtime)}});
  }
  Dataset batches = images.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
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
  return ahead(rounded(batches, data.dtype).repeat(), data.prefetch_buffer_size);
}

Dataset validation_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                           bool one_hot) {
  const ImageDataConfig data = task.validation_data;
  const ImageModelConfig model = task.model;
  Dataset ready = source.validation;
  if (!source.ready) {
    ready = ready.map(
        [data, model](Example example) {
          const torch::Tensor part = middle(with_channels(example.x, model), model.input_size.at(0),
                                            model.input_size.at(1), data.center_crop_fraction);
          example.x = model_input(part, model);
          return example;
        },
        {.num_parallel_calls = decoding_threads(runtime)});
  }
  if (data.cache) ready = ready.cache();
  Dataset batches = ready.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
  if (one_hot) {
    batches = batches.map([classes = model.num_classes](Example batch) {
      batch.y = one_hot_of(batch.y, classes);
      return batch;
    });
  }
  return ahead(rounded(batches, data.dtype), data.prefetch_buffer_size);
}

}  // namespace cohort
