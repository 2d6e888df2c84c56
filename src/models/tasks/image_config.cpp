// The fields of ImageClassificationTask.
#include "cohort/image_classification.h"

namespace cohort {

void ImageDataConfig::describe(ConfigFields& fields) {
  fields.add(
      "input_path", input_path,
      "folder of the data: images in a folder for each class, a folder of TensorFlow Datasets, the files of MNIST "
      "or of CIFAR-10 (--data_dir)");
  fields.add("tfds_name", tfds_name, "data set of TensorFlow Datasets in tfds_data_dir or input_path");
  fields.add("tfds_data_dir", tfds_data_dir, "folder of TensorFlow Datasets");
  fields.add("tfds_split", tfds_split,
             "which examples of it, such as train[:80%]; empty: train, and validation or test");
  fields.add("global_batch_size", global_batch_size, "examples of a step over all replicas");
  fields.add("is_training", is_training, "whether these are the data to learn from");
  fields.add("drop_remainder", drop_remainder, "whether a last batch that is too short is left out");
  fields.add("shuffle_buffer_size", shuffle_buffer_size, "examples that the next one is drawn from");
  fields.add("cache", cache, "whether decoded images are kept in memory");
  fields.add("skip_damaged", skip_damaged, "whether a damaged file of an image folder is left out instead of an error");
  fields.add("held_out", held_out, "part of an image folder that is for validation");
  fields.add("aug_crop", aug_crop, "what is cut out: a part of random area, resized; after padding; nothing",
             {"resized", "padded", "none"});
  fields.add("aug_crop_padding", aug_crop_padding, "pixels around an image before a padded crop");
  fields.add("aug_crop_padding_mode", aug_crop_padding_mode,
             "what they are: zeros, the outermost pixels, a mirror image",
             {"constant", "edge", "reflect", "symmetric"});
  fields.add("aug_min_area", aug_min_area, "of a resized crop, as a part of the image");
  fields.add("aug_rand_hflip", aug_rand_hflip, "whether half of the images are flipped left to right");
  fields.add("brightness", brightness, "most that it is changed by; 0: not");
  fields.add("contrast", contrast, "the same");
  fields.add("saturation", saturation, "the same");
  fields.add("hue", hue, "the same, as a part of the circle of colours, at most 0.5");
  fields.add("aug_policy", aug_policy, "further changes; empty: none", {"", "randaug"});
  fields.add("randaug_num_layers", randaug_num_layers, "RandAugment's operations on an image");
  fields.add("randaug_magnitude", randaug_magnitude, "their strength, 0 to 30");
  fields.add("mixup_alpha", mixup_alpha, "of mixing two images; 0: none");
  fields.add("cutmix_alpha", cutmix_alpha, "of pasting a box of another image; 0: none");
  fields.add("center_crop_fraction", center_crop_fraction, "part of an image that is evaluated, in height and width");
  for (const char* relation :
       {"global_batch_size > 0", "shuffle_buffer_size > 0", "held_out >= 0", "held_out < 1", "aug_min_area > 0",
        "aug_min_area <= 1", "center_crop_fraction > 0", "center_crop_fraction <= 1", "mixup_alpha >= 0", "hue <= 0.5",
        "randaug_num_layers >= 0", "randaug_magnitude >= 0", "randaug_magnitude <= 30", "cutmix_alpha >= 0"}) {
    fields.restrict(relation);
  }
}

void ImageModelConfig::describe(ConfigFields& fields) {
  fields.add("num_classes", num_classes, "outputs of the model");
  fields.add("input_size", input_size, "height, width, channels");
  fields.add("input_mean", input_mean, "of each channel, taken from the image, whose values are from 0 to 1");
  fields.add("input_stddev", input_stddev, "of each channel, by which it is divided then");
  fields.add("dropout_rate", dropout_rate, "before the classifier; 0: the model's own");
  fields.add("channels_last", channels_last,
             "whether ResNets and EfficientNets compute with the channels last in memory: faster, mostly");
  fields.group("backbone", [this](ConfigFields& inner) {
    inner.add("type", backbone.type, "which model", {"mlp", "cnn", "resnet", "resnet_cifar", "efficientnet", "vit"});
    inner.group("resnet", [this](ConfigFields& own) {
      own.add("model_id", backbone.resnet.model_id, "layers: 18, 34, 50, 101 or 152");
      own.add("zero_init_residual", backbone.resnet.zero_init_residual, "whether blocks start as identities");
    });
    inner.group("resnet_cifar", [this](ConfigFields& own) {
      own.add("model_id", backbone.resnet_cifar.model_id, "layers: 20, 32, 44, 56, 110");
      own.add("zero_init_residual", backbone.resnet_cifar.zero_init_residual, "whether blocks start as identities");
    });
    inner.group("efficientnet", [this](ConfigFields& own) {
      own.add("model_id", backbone.efficientnet.model_id, "b0 to b7");
      own.add("stochastic_depth_drop_rate", backbone.efficientnet.stochastic_depth_drop_rate, "of the last block");
    });
    inner.group("vit", [this](ConfigFields& own) {
      own.add("model_name", backbone.vit.model_name, "vit-ti16, vit-s16, vit-b16 or vit-l16");
    });
  });
  fields.restrict("num_classes > 0");
}

void ImageClassificationTask::describe(ConfigFields& fields) {
  fields.nest("model", model);
  fields.nest("train_data", train_data);
  fields.nest("validation_data", validation_data);
  fields.group("losses", [this](ConfigFields& inner) {
    inner.add("label_smoothing", label_smoothing, "part of each label that is spread over all classes");
  });
  fields.group("evaluation", [this](ConfigFields& inner) {
    inner.add("top_k", top_k, "of a second accuracy; 1, or as many as classes: none");
  });
  fields.add("init_checkpoint", init_checkpoint, "weights to start from: a safetensors file, or a checkpoint's folder");
  fields.add("init_checkpoint_modules", init_checkpoint_modules, "which of them", {"all", "backbone"});
  fields.add("freeze_backbone", freeze_backbone, "whether only the classifier learns");
  fields.add("freeze_backbone_steps", freeze_backbone_steps,
             "steps at the beginning in which only the classifier learns");
  fields.restrict("freeze_backbone_steps >= 0");
}

void ImageClassificationTask::set_data(Config& config, const std::string& folder, const std::string& origin) {
  config.set("task.train_data.input_path", folder, origin);
}

void ImageClassificationTask::set_batch(Config& config, int64_t size, const std::string& origin) {
  config.set("task.train_data.global_batch_size", std::to_string(size), origin);
  config.set("task.validation_data.global_batch_size", std::to_string(size), origin);
}

}  // namespace cohort
