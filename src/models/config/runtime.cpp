#include "cohort/models/experiment.h"

namespace cohort {

void RuntimeConfig::describe(ConfigFields& fields) {
  StrategyFlags::describe(fields);
  fields
      .add("mixed_precision_dtype", mixed_precision_dtype, "dtype of the computation, float32 if it is empty",
           {"", "float32", "float16", "bfloat16"})
      .flag = "--mixed_precision";
  fields.add("loss_scale", loss_scale, "scale of the loss under float16: dynamic, or a number; empty: dynamic");
  fields
      .add("tensor_float_32", tensor_float_32,
           "whether GPUs of compute capability 8.0 and more round the factors of products and convolutions of float32 "
           "to TensorFloat-32; empty: those of convolutions",
           {"", "true", "false"})
      .flag = "--tf32";
  fields.add("cudnn_benchmark", cudnn_benchmark,
             "whether cuDNN tries its algorithms on each new shape and keeps the fastest; empty: until a model has had "
             "inputs of more than 8 shapes, and not with deterministic",
             {"", "true", "false"});
  fields.add("cudnn_enabled", cudnn_enabled, "whether GPUs use cuDNN");
  fields
      .add("deterministic", deterministic,
           "whether every run has the same bits, on GPUs, too: operations take forms that repeat, which may be slower, "
           "and one without such a form is an error")
      .flag = "--deterministic";
  fields.add("dataset_num_private_threads", dataset_num_private_threads,
             "threads that decode and augment; 0: as many as cores");
  fields.add("seed", seed, "seed of all random numbers").flag = "--seed";
  const std::string tensorflow = "a switch of TensorFlow's machinery, without a meaning here";
  fields.add("enable_xla", enable_xla, "whether XLA compiles the steps, which it does on its own devices only");
  fields.add("run_eagerly", run_eagerly, "whether the model runs in every step, so that it may look at values");
  fields
      .add("use_cuda_graph", use_cuda_graph,
           "whether the steps on GPUs are captured as graphs, once for each size of a share")
      .flag = "--use_cuda_graph";
  fields.add("gpu_thread_mode", gpu_thread_mode, tensorflow);
  fields.add("per_gpu_thread_count", per_gpu_thread_count, tensorflow);
  fields.add("batchnorm_spatial_persistent", batchnorm_spatial_persistent, tensorflow);
  fields.add("tpu_enable_xla_dynamic_padder", tpu_enable_xla_dynamic_padder, tensorflow);
  fields.add("num_cores_per_replica", num_cores_per_replica, "cores of a TPU that share a replica");
  fields.add("default_shard_dim", default_shard_dim, "dimension in which the cores of a replica divide values");
  fields.add("use_tpu_mp_strategy", use_tpu_mp_strategy, tensorflow);
  for (const char* relation : {"num_cores_per_replica == 1", "default_shard_dim == -1", "use_tpu_mp_strategy == false",
                               "seed >= 0", "dataset_num_private_threads >= 0"}) {
    fields.restrict(relation);
  }
}

}  // namespace cohort
