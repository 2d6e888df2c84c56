#include "models/tasks/image_data.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "cohort/augment.h"
#include "cohort/datasets.h"
#include "cohort/tfds.h"

namespace cohort {

namespace {

int threads(const RuntimeConfig& runtime) {
  if (runtime.dataset_num_private_threads > 0) return static_cast<int>(runtime.dataset_num_private_threads);
  return hardware_cores();
}

bool holds(const std::filesystem::path& folder, std::initializer_list<const char*> beginnings) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    for (const char* beginning : beginnings) {
      if (name.starts_with(beginning)) return true;
    }
  }
  return false;
}

// Whether it, or a version of it below, has what TensorFlow Datasets writes.
bool is_tfds(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "dataset_info.json")) return true;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (std::filesystem::exists(entry.path() / "dataset_info.json")) return true;
  }
  return false;
}

// A data set that TensorFlow Datasets made: the folder itself, or one in it.
std::optional<std::filesystem::path> tfds_folder(const std::filesystem::path& folder, const std::string& name) {
  if (!name.empty()) return is_tfds(folder / name) ? std::optional(folder / name) : std::nullopt;
  if (is_tfds(folder)) return folder;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory() && is_tfds(entry.path())) found.push_back(entry.path());
  }
  if (found.size() > 1) {
    fail<InvalidArgument>("[task] ", folder.string(), " has ", found.size(), " data sets, ",
                          found[0].filename().string(), " and others; say which one by task.train_data.tfds_name");
  }
  return found.empty() ? std::nullopt : std::optional(found.front());
}

ImageSource open_tfds(const std::filesystem::path& folder, const ImageClassificationTask& task,
                      const RuntimeConfig& runtime) {
  const TFDSFolder made(folder);
  const auto split = [&](const ImageDataConfig& data, std::initializer_list<const char*> usual) {
    std::string name = data.tfds_split;
    for (const char* each : usual) {
      if (name.empty() && made.splits().contains(each)) name = each;
    }
    if (name.empty()) {
      fail<InvalidArgument>("[task] ", folder.string(), " has no split \"", *usual.begin(),
                            "\"; say which one by tfds_split");
    }
    TFDSOptions options;
    options.threads.num_parallel_calls = threads(runtime);
    options.decode.channels = static_cast<int>(task.model.channels());
    return made.split(name, options);
  };
  return {split(task.train_data, {"train"}), split(task.validation_data, {"validation", "test"}),
          made.name() + " of " + folder.string(), made.num_classes()};
}

ImageSource open_image_folder(const std::filesystem::path& folder, const ImageClassificationTask& task,
                              const RuntimeConfig& runtime) {
  datasets::ImageFolderOptions options{
      .held_out = task.train_data.held_out, .shuffle = false, .skip_damaged = task.train_data.skip_damaged};
  options.threads.num_parallel_calls = threads(runtime);
  options.decode.channels = static_cast<int>(task.model.channels());
  // What is resized anyway need not be decoded in full.
  const int64_t larger = std::max(task.model.input_size.at(0), task.model.input_size.at(1));
  options.decode.at_least =
      static_cast<int64_t>(std::ceil(static_cast<double>(larger) / task.validation_data.center_crop_fraction));
  const datasets::ImageFolder made = datasets::image_folder(folder, options);
  return {made.train, made.test, folder.string(), static_cast<int64_t>(made.class_names.size())};
}

ImageSource open_pair(const datasets::TrainTest& data, std::string description, bool ready) {
  return {data.train, data.test, std::move(description), 10, ready};
}

}  // namespace

ImageSource open_images(const ImageClassificationTask& task, const RuntimeConfig& runtime) {
  const ImageDataConfig& data = task.train_data;
  const std::string& given = data.tfds_data_dir.empty() ? data.input_path : data.tfds_data_dir;
  if (given.empty()) {
    if (task.builtin_data == "digits") {
      return open_pair(datasets::drawn_digits({.seed = static_cast<uint64_t>(runtime.seed)}), "drawn digits",
                       /*ready=*/true);
    }
    fail<InvalidArgument>("[task] there is no data: --data_dir (task.train_data.input_path) is empty");
  }
  const std::filesystem::path folder = given;
  if (!std::filesystem::is_directory(folder)) fail<NotFound>("[task] ", given, " is not a folder");
  if (const auto made = tfds_folder(folder, data.tfds_name)) return open_tfds(*made, task, runtime);
  if (!data.tfds_name.empty() || !data.tfds_data_dir.empty()) {
    fail<NotFound>("[task] ", (folder / data.tfds_name).string(),
                   " has no dataset_info.json, wanted a folder of TensorFlow Datasets");
  }
  if (holds(folder, {"data_batch_1.bin", "cifar-10-batches-bin"}))
    return open_pair(datasets::cifar10(folder), given, /*ready=*/false);
  if (task.builtin_data == "digits" || holds(folder, {"train-images"}))
    return open_pair(datasets::mnist(folder), given, /*ready=*/true);
  return open_image_folder(folder, task, runtime);
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

class TrainingImage {
 public:
  TrainingImage(const ImageDataConfig& data, const ImageModelConfig& model)
      : data_(data),
        model_(model),
        crop_{.padding = data.aug_crop_padding, .padding_mode = padding_mode(data.aug_crop_padding_mode)} {}

  Example operator()(Example example, at::Generator generator) const {
    const int64_t height = model_.input_size.at(0);
    const int64_t width = model_.input_size.at(1);
    torch::Tensor& x = example.x;
    if (data_.aug_crop == "resized") {
      x = random_resized_crop(x, height, width, generator, {.min_area = data_.aug_min_area});
    } else {
      if (x.size(1) != height || x.size(2) != width) x = resize_image(x, height, width);
      if (data_.aug_crop == "padded") x = random_crop(x, height, width, generator, crop_);
    }
    if (data_.aug_rand_hflip) x = random_horizontal_flip(x, generator);
    if (data_.aug_policy == "randaug") {
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
    x = normalize(x, model_.input_mean, model_.input_stddev);
    return example;
  }

 private:
  ImageDataConfig data_;
  ImageModelConfig model_;
  RandomCropOptions crop_;
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

Dataset training_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                         bool one_hot) {
  const ImageDataConfig& data = task.train_data;
  const auto seed = static_cast<uint64_t>(runtime.seed);
  const int64_t classes = task.model.num_classes;
  Dataset images = (data.cache ? source.train.cache() : source.train).shuffle(data.shuffle_buffer_size, {.seed = seed});
  if (!source.ready) {
    images = images.random_map(TrainingImage(data, task.model),
                               {.seed = seed, .threads = {.num_parallel_calls = threads(runtime)}});
  }
  Dataset batches = images.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
  if (one_hot) {
    batches = batches.random_map(
        [data, classes](Example batch, at::Generator generator) {
          const bool both = data.mixup_alpha > 0.0 && data.cutmix_alpha > 0.0;
          const bool mix = data.mixup_alpha > 0.0 && (!both || at::rand({1}, generator).item<float>() < 0.5F);
          if (mix) return mixup(std::move(batch), classes, generator, data.mixup_alpha);
          if (data.cutmix_alpha > 0.0) return cutmix(std::move(batch), classes, generator, data.cutmix_alpha);
          batch.y = one_hot_of(batch.y, classes);
          return batch;
        },
        {.seed = seed});
  }
  return batches.repeat().prefetch();
}

Dataset validation_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                           bool one_hot) {
  const ImageDataConfig data = task.validation_data;
  const ImageModelConfig model = task.model;
  Dataset ready = source.validation;
  if (!source.ready) {
    ready = ready.map(
        [data, model](Example example) {
          const torch::Tensor part =
              middle(example.x, model.input_size.at(0), model.input_size.at(1), data.center_crop_fraction);
          example.x = normalize(part, model.input_mean, model.input_stddev);
          return example;
        },
        {.num_parallel_calls = threads(runtime)});
  }
  if (data.cache) ready = ready.cache();
  Dataset batches = ready.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
  if (!one_hot) return batches.prefetch();
  return batches
      .map([classes = model.num_classes](Example batch) {
        batch.y = one_hot_of(batch.y, classes);
        return batch;
      })
      .prefetch();
}

}  // namespace cohort
