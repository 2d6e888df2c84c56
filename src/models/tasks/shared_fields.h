// The descriptions of the fields that the tasks have in common, with the names of Model Garden's base configurations
// (cfg.DataConfig of official/core/config_definitions.py, common.NormActivation of official/vision/configs/common.py).
#pragma once

#include "cohort/models/config.h"

namespace cohort {

// Adds how the examples of a data set become batches.
template <typename Data>
void describe_batches(Data& data, ConfigFields& fields) {
  fields.add("global_batch_size", data.global_batch_size, "examples of a step over all replicas");
  fields.add("is_training", data.is_training, "whether these are the data to learn from");
  fields.add("drop_remainder", data.drop_remainder, "whether a last batch that is too short is left out");
  fields.add("shuffle_buffer_size", data.shuffle_buffer_size, "examples that the next one is drawn from");
  fields.add("prefetch_buffer_size", data.prefetch_buffer_size, "batches that are made ahead; -1: a few");
  fields.add("seed", data.seed, "seed of the order, and of the changes of images; -1: runtime.seed");
  fields.add("sharding", data.sharding, "whether each worker reads its part of the data; else all of it");
  fields.add("deterministic", data.deterministic, "whether the order is the same in every run");
  for (const char* relation : {"global_batch_size > 0", "shuffle_buffer_size > 0", "prefetch_buffer_size >= -1",
                               "seed >= -1", "deterministic == true"}) {
    fields.restrict(relation);
  }
}

// Adds where text lies and how it becomes batches.
template <typename Data>
void describe_text(Data& data, ConfigFields& fields) {
  fields.add("input_path", data.input_path,
             "text: a file, or a folder whose files, and those of its folders, are read one after the other "
             "(--data_dir). Empty for validation_data: a part of train_data");
  fields.add("suffixes", data.suffixes,
             "ends of the names of the files of a folder that are read; empty: all that is text");
  describe_batches(data, fields);
  fields.add("held_out", data.held_out, "part of the examples that is for validation");
}

// Adds what becomes of the images of a data set.
template <typename Data>
void describe_decoding(Data& data, ConfigFields& fields) {
  fields.add("cache", data.cache, "whether decoded images are kept in memory");
  fields.add("dtype", data.dtype, "dtype to which the images are rounded", {"float32", "float16", "bfloat16"});
}

// Adds the group norm_activation.
template <typename NormActivation>
void describe_norm_activation(NormActivation& own, const char* activation, ConfigFields& fields) {
  fields.group("norm_activation", [&](ConfigFields& inner) {
    inner.add("activation", own.activation, activation);
    inner.add("use_sync_bn", own.use_sync_bn, "whether batch norms see the batch of all replicas");
    inner.add("norm_momentum", own.norm_momentum,
              "momentum of batch norms in Keras' form, the share of the earlier statistics; negative: the model's own");
    inner.add("norm_epsilon", own.norm_epsilon, "epsilon of batch norms; negative: the model's own");
  });
}

// Adds the weights that a training starts from.
template <typename ImageTask>
void describe_initial_weights(ImageTask& task, ConfigFields& fields) {
  fields.add("init_checkpoint", task.init_checkpoint,
             "weights to start from: a safetensors file, or a checkpoint's folder");
  fields.add("init_checkpoint_modules", task.init_checkpoint_modules, "modules that take these weights",
             {"all", "backbone"});
}

// Adds the parts that an image is divided into among the cores of a replica.
template <typename ImageTask>
void describe_partitions(ImageTask& task, ConfigFields& fields) {
  fields.add(
      "train_input_partition_dims", task.train_input_partition_dims,
      "the parts in which tpu and xla divide the images of a training among the cores of a replica, and "
      "mirrored among devices that take a share together: batch, height, width, channels (1, 2, 2, 1), or height "
      "and width (2, 2); empty: a replica is one core or device");
  fields.add("eval_input_partition_dims", task.eval_input_partition_dims,
             "the same for an evaluation; if it follows a training in the same run: empty as there");
}

}  // namespace cohort
