// The descriptions of the fields of ImageClassificationTask.
#include "cohort/models/image_classification.h"
#include "models/tasks/shared_fields.h"

namespace cohort {

namespace {

void describe_augmentation(ImageDataConfig& data, ConfigFields& fields) {
  fields.add("aug_crop", data.aug_crop,
             "how an image is cropped: a part of random area, resized (also: true); after padding; not (also: false)",
             {"resized", "padded", "none", "true", "false"});
  fields.add("aug_crop_padding", data.aug_crop_padding, "pixels around an image before a padded crop");
  fields.add("aug_crop_padding_mode", data.aug_crop_padding_mode,
             "values of these pixels: zeros, the outermost pixels, a mirror image",
             {"constant", "edge", "reflect", "symmetric"});
  fields.add("aug_min_area", data.aug_min_area, "least area of a resized crop, as a part of the image");
  fields.add("aug_rand_hflip", data.aug_rand_hflip, "whether half of the images are flipped left to right");
  fields.add("brightness", data.brightness, "largest change of the brightness; 0: none");
  fields.add("contrast", data.contrast, "largest change of the contrast; 0: none");
  fields.add("saturation", data.saturation, "largest change of the saturation; 0: none");
  fields.add("hue", data.hue, "largest change of the hue, as a part of the circle of colours; 0: none");
  fields.add("aug_policy", data.aug_policy,
             "policy of further changes, with two operations of RandAugment; empty: none", {"", "randaug"});
  fields.add("randaug_magnitude", data.randaug_magnitude, "strength of the operations of aug_policy");
}

// Describes the groups of Model Garden.
void describe_mixing(ImageDataConfig& data, ConfigFields& fields) {
  fields.group("aug_type", [&](ConfigFields& inner) {
    inner.add("type", data.aug_type.type,
              "policy of further changes with Model Garden's options; empty: aug_policy decides", {"", "randaug"});
    inner.group("randaug", [&](ConfigFields& own) {
      own.add("num_layers", data.aug_type.randaug.num_layers, "operations on an image");
      own.add("magnitude", data.aug_type.randaug.magnitude, "strength of these operations");
      own.add("exclude_ops", data.aug_type.randaug.exclude_ops, "operations that are not drawn");
      own.add("translate_const", data.aug_type.randaug.translate_const, "pixels of the largest translation");
      own.add("cutout_const", data.aug_type.randaug.cutout_const, "size of Cutout, which is never drawn here");
      own.add("magnitude_std", data.aug_type.randaug.magnitude_std, "standard deviation of the strength");
    });
  });
  fields.group("mixup_and_cutmix", [&](ConfigFields& inner) {
    inner.add("mixup_alpha", data.mixup_and_cutmix.mixup_alpha, "alpha of mixing two images; 0: none");
    inner.add("cutmix_alpha", data.mixup_and_cutmix.cutmix_alpha, "alpha of pasting a box of another image; 0: none");
    inner.add("prob", data.mixup_and_cutmix.prob, "part of the batches that are mixed or pasted");
    inner.add("switch_prob", data.mixup_and_cutmix.switch_prob, "part of these batches that is pasted, if both are on");
    inner.add("label_smoothing", data.mixup_and_cutmix.label_smoothing,
              "part of each label that is spread over all classes, with losses.soft_labels");
  });
  for (const char* relation :
       {"aug_type.randaug.num_layers >= 0", "aug_type.randaug.magnitude >= 0", "aug_type.randaug.magnitude <= 10",
        "aug_type.randaug.cutout_const == 40", "aug_type.randaug.magnitude_std == 0",
        "mixup_and_cutmix.mixup_alpha >= 0", "mixup_and_cutmix.cutmix_alpha >= 0", "mixup_and_cutmix.prob >= 0",
        "mixup_and_cutmix.prob <= 1", "mixup_and_cutmix.switch_prob >= 0", "mixup_and_cutmix.switch_prob <= 1",
        "mixup_and_cutmix.label_smoothing >= 0", "mixup_and_cutmix.label_smoothing <= 1"}) {
    fields.restrict(relation);
  }
}

}  // namespace

void ImageDataConfig::describe(ConfigFields& fields) {
  fields.add(
      "input_path", input_path,
      "folder of the data: images in a folder for each class, a folder of TensorFlow Datasets, the files of MNIST "
      "or of CIFAR-10 (--data_dir); or files of records of TensorFlow, as patterns (data/train*), separated by commas. "
      "Empty for validation_data if the folder of train_data has both");
  fields.add("tfds_name", tfds_name, "name of a data set of TensorFlow Datasets in tfds_data_dir or input_path");
  fields.add("tfds_data_dir", tfds_data_dir, "folder of TensorFlow Datasets");
  fields.add("tfds_split", tfds_split,
             "split of that data set, such as train[:80%]; empty: train, and validation or test");
  describe_batches(*this, fields);
  describe_decoding(*this, fields);
  fields.add("file_type", file_type, "format of the files of input_path", {"tfrecord"});
  fields.add("image_field_key", image_field_key, "the feature of a record that is the image, JPEG or PNG");
  fields.add("label_field_key", label_field_key, "the feature of a record that is its class");
  fields.add("cycle_length", cycle_length, "files of records that are read in turns; 0: ten");
  fields.add("block_length", block_length, "records from one file of records before the turn of the next one");
  fields.add(
      "skip_damaged", skip_damaged,
      "whether a damaged file of an image folder, or a damaged record or its picture, is left out instead of an error");
  fields.add("held_out", held_out, "part of a folder of images that is for validation");
  describe_augmentation(*this, fields);
  describe_mixing(*this, fields);
  fields.add("center_crop_fraction", center_crop_fraction, "part of an image that is evaluated, in height and width");
  fields.add(
      "images_on_device", images_on_device,
      "whether images travel to the devices as bytes, and are cropped, flipped and normalised there, to the same "
      "numbers");
  for (const char* relation :
       {"held_out >= 0", "held_out < 1", "aug_min_area > 0", "aug_min_area <= 1", "aug_crop_padding >= 0",
        "brightness >= 0", "contrast >= 0", "saturation >= 0", "hue >= 0", "center_crop_fraction > 0",
        "center_crop_fraction <= 1", "hue <= 0.5", "randaug_magnitude >= 0", "randaug_magnitude <= 10",
        "cycle_length >= 0", "block_length >= 1"}) {
    fields.restrict(relation);
  }
}

void ImageModelConfig::describe(ConfigFields& fields) {
  fields.add("num_classes", num_classes, "outputs of the model");
  fields.add("input_size", input_size, "height, width and channels of the input");
  fields.add("input_mean", input_mean, "mean of each channel, subtracted from the image, whose values are from 0 to 1");
  fields.add("input_stddev", input_stddev, "standard deviation of each channel, by which the image is divided then");
  fields.add("dropout_rate", dropout_rate, "rate of dropout before the classifier; 0: the model's own");
  fields.add("channels_last", channels_last,
             "whether ResNets and EfficientNets compute with the channels last in memory: faster, mostly");
  fields.add("remat", remat, "whether backward computes blocks again, so that their activations are not kept");
  fields.add("kernel_initializer", kernel_initializer, "how the classifier's weights start; empty: as the model's own",
             {"", "zeros", "random_uniform"});
  describe_norm_activation(norm_activation, "activation of ResNets and EfficientNets; empty: the model's own", fields);
  fields.group("backbone", [this](ConfigFields& inner) {
    inner.add("type", backbone.type, "the model", {"mlp", "cnn", "resnet", "resnet_cifar", "efficientnet", "vit"});
    inner.group("resnet", [this](ConfigFields& own) {
      own.add("model_id", backbone.resnet.model_id, "number of layers: 18, 34, 50, 101 or 152");
      own.add("zero_init_residual", backbone.resnet.zero_init_residual, "whether blocks start as identities");
    });
    inner.group("resnet_cifar", [this](ConfigFields& own) {
      own.add("model_id", backbone.resnet_cifar.model_id, "number of layers: 20, 32, 44, 56 or 110");
      own.add("zero_init_residual", backbone.resnet_cifar.zero_init_residual, "whether blocks start as identities");
    });
    inner.group("efficientnet", [this](ConfigFields& own) {
      own.add("model_id", backbone.efficientnet.model_id, "variant: b0 to b7");
      own.add("stochastic_depth_drop_rate", backbone.efficientnet.stochastic_depth_drop_rate,
              "rate at which the last block is dropped; that of earlier ones is smaller");
      own.add("se_ratio", backbone.efficientnet.se_ratio,
              "width of squeeze and excitation, as a part of the block's; 0: none");
    });
    inner.group("vit", [this](ConfigFields& own) {
      own.add("model_name", backbone.vit.model_name, "variant: vit-ti16, vit-s16, vit-b16 or vit-l16");
      own.add("patch_size", backbone.vit.patch_size, "pixels of the side of a patch; 0: as the variant says");
      own.add("representation_size", backbone.vit.representation_size,
              "units of a layer before the classifier; 0: there is none");
      own.add("init_stochastic_depth_rate", backbone.vit.init_stochastic_depth_rate,
              "rate at which the last block is dropped; that of earlier ones is smaller");
      own.add("original_init", backbone.vit.original_init,
              "whether weights start as in the paper; else normally distributed with a deviation of 0.02");
    });
  });
  fields.restrict("num_classes > 0");
  fields.restrict("dropout_rate >= 0");
  fields.restrict("dropout_rate < 1");
}

void ImageClassificationTask::describe(ConfigFields& fields) {
  fields.nest("model", model);
  fields.nest("train_data", train_data);
  fields.nest("validation_data", validation_data);
  fields.group("losses", [this](ConfigFields& inner) {
    inner.add("label_smoothing", label_smoothing, "part of each label that is spread over all classes");
    inner.add("l2_weight_decay", l2_decay,
              "decay of the weights, added to the gradient; not a part of the loss that is shown");
    inner.add("loss_weight", loss_weight, "factor of the loss");
    inner.add("one_hot", one_hot, "whether labels are vectors; smoothing and mixing make them so anyway");
    inner.add("soft_labels", soft_labels_of_data,
              "whether train_data.mixup_and_cutmix, and its label_smoothing, makes the labels");
  });
  fields.group("evaluation", [this](ConfigFields& inner) {
    inner.add("top_k", top_k,
              "k of a second accuracy, by the k most probable classes; 1, or the number of classes: none");
  });
  describe_initial_weights(*this, fields);
  fields.add("freeze_backbone", freeze_backbone, "whether only the classifier learns");
  fields.add("freeze_backbone_steps", freeze_backbone_steps,
             "steps at the beginning in which only the classifier learns");
  describe_partitions(*this, fields);
  for (const char* relation :
       {"freeze_backbone_steps >= 0", "losses.label_smoothing >= 0", "losses.label_smoothing <= 1",
        "losses.l2_weight_decay >= 0", "losses.loss_weight > 0"}) {
    fields.restrict(relation);
  }
}

}  // namespace cohort
