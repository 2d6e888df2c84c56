// The pipelines of segmentation: what task.train_data and task.validation_data ask for, as transformations of datasets.
// Masks go through what the pictures go through, but take the nearest pixel where those are interpolated.
#include "wings/vision/models/segmentation_data.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/data/augment.h"
#include "cohort/data/datasets.h"
#include "wings/vision/data/shapes/draw_shapes.h"
#include "wings/vision/models/image_data.h"

namespace cohort {

namespace {

// Returns the mask in another size, each pixel of which is the one at the same place.
torch::Tensor resized_mask(const torch::Tensor& mask, int64_t height, int64_t width) {
  const auto nearest = [](int64_t from, int64_t to) {
    // The pixel that the middle of the new one lies in.
    return (at::arange(to, torch::kLong) * (2 * from) + from).floor_divide(2 * to);
  };
  torch::Tensor made = mask;
  if (mask.size(0) != height) made = made.index_select(0, nearest(mask.size(0), height));
  if (mask.size(1) != width) made = made.index_select(1, nearest(mask.size(1), width));
  return made;
}

// Makes the input of the model, and the mask that goes with it.
class ModelPicture {
 public:
  ModelPicture(const SegmentationModelConfig& model, int64_t ignore_label, bool flips)
      : height_(model.input_size->at(0)),
        width_(model.input_size->at(1)),
        channels_(model.input_size->at(2)),
        mean_(model.input_mean),
        stddev_(model.input_stddev),
        num_classes_(model.num_classes),
        ignore_label_(ignore_label),
        flips_(flips) {}

  Example operator()(Example example, at::Generator generator) const {
    const bool flip = flips_ && at::rand({1}, generator).item<float>() < 0.5F;
    return made(std::move(example), flip);
  }
  Example operator()(Example example) const { return made(std::move(example), /*flip=*/false); }

 private:
  Example made(Example example, bool flip) const {
    torch::Tensor x = with_channels(example.x, channels_);
    torch::Tensor y = example.y;
    require_labels(y);
    if (x.size(1) != height_ || x.size(2) != width_) x = resize_image(x, height_, width_);
    y = resized_mask(y, height_, width_);
    if (flip) {
      x = x.flip({2});
      y = y.flip({1});
    }
    example.x = normalize(x, mean_, stddev_);
    example.y = y.contiguous();
    return example;
  }

  void require_labels(const torch::Tensor& mask) const {
    const torch::Tensor wrong = mask.lt(0).logical_or(mask.ge(num_classes_)).logical_and(mask.ne(ignore_label_));
    if (!wrong.any().item<bool>()) return;
    fail<InvalidArgument>("[task] a mask has the value ", mask.masked_select(wrong)[0].item<int64_t>(),
                          ", wanted 0 to ", num_classes_ - 1, " (task.model.num_classes) or ", ignore_label_,
                          " (task.losses.ignore_label)");
  }

  int64_t height_;
  int64_t width_;
  int64_t channels_;
  std::vector<double> mean_;
  std::vector<double> stddev_;
  int64_t num_classes_;
  int64_t ignore_label_;
  bool flips_;
};

Dataset in_batches(const Dataset& pictures, const SegmentationDataConfig& data) {
  Dataset batches = pictures.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
  if (data.dtype == "float32") return batches;
  return batches.map([type = dtype_of(data.dtype)](Example batch) {
    batch.x = batch.x.to(type);
    return batch;
  });
}

datasets::TrainTest open_folder(const std::string& folder, const SemanticSegmentationTask& task,
                                const RuntimeConfig& runtime, double held_out) {
  if (!std::filesystem::is_directory(folder)) {
    fail<NotFound>("[task] ", folder, " is not a folder, wanted one with the folders images and masks");
  }
  datasets::SegmentationFolderOptions options{.held_out = held_out};
  options.threads.num_parallel_calls = decoding_threads(runtime);
  options.decode.channels = static_cast<int>(task.model.input_size->at(2));
  return datasets::segmentation_folder(folder, options);
}

}  // namespace

TaskSource open_pictures(const SemanticSegmentationTask& task, const RuntimeConfig& runtime, bool training) {
  const auto open = [&](const std::string& folder, const SegmentationDataConfig& /*data*/, double held_out) {
    return open_folder(folder, task, runtime, held_out);
  };
  const auto draw = [&] {
    if (task.model.num_classes < datasets::kShapeClasses) {
      fail<InvalidArgument>("[task] drawn shapes have ", datasets::kShapeClasses,
                            " classes, but task.model.num_classes is ", task.model.num_classes);
    }
    return datasets::drawn_shapes({.height = task.model.input_size->at(0),
                                   .width = task.model.input_size->at(1),
                                   .seed = static_cast<uint64_t>(runtime.seed)});
  };
  return open_source(task, training, {.missing = "there is no data", .builtin = "shapes"}, open, draw);
}

Dataset training_pictures(const TaskSource& source, const SemanticSegmentationTask& task,
                          const RuntimeConfig& runtime) {
  const SegmentationDataConfig& data = task.train_data;
  const auto seed = static_cast<uint64_t>(data.seed >= 0 ? *data.seed : *runtime.seed);
  const Dataset pictures =
      (data.cache ? source.train.cache() : source.train)
          .shuffle(data.shuffle_buffer_size, {.seed = seed})
          .random_map(ModelPicture(task.model, task.losses.ignore_label, data.aug_rand_hflip),
                      {.seed = seed, .threads = {.num_parallel_calls = decoding_threads(runtime)}});
  return ahead(in_batches(pictures, data).repeat(), data.prefetch_buffer_size);
}

Dataset validation_pictures(const TaskSource& source, const SemanticSegmentationTask& task,
                            const RuntimeConfig& runtime) {
  const SegmentationDataConfig& data = task.validation_data;
  const ModelPicture picture(task.model, task.losses.ignore_label, /*flips=*/false);
  Dataset pictures = source.validation.map([picture](Example example) { return picture(std::move(example)); },
                                           {.num_parallel_calls = decoding_threads(runtime)});
  if (data.cache) pictures = pictures.cache();
  return ahead(in_batches(pictures, data), data.prefetch_buffer_size);
}

}  // namespace cohort
