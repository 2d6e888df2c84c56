#include "cohort/models/experiment.h"

namespace cohort {

void StrategyFlags::describe(ConfigFields& fields) {
  fields.add("distribution_strategy", distribution_strategy,
             "off, one_device, mirrored, multi_worker_mirrored, parameter_server, central_storage or tpu");
  fields.add("num_gpus", num_gpus, "GPUs to use; 0: the CPU");
  fields.add("num_replicas", num_replicas, "replicas on the CPU; 0: one");
  fields.add("all_reduce_alg", all_reduce_alg,
             "mirrored: auto, ring, nccl, hierarchical_copy or reduction_to_one_device; multi_worker_mirrored: auto, "
             "ring, mpi or nccl");
  fields.add("num_packs", num_packs, "messages that the gradients are packed into; 0: no packing");
  fields.add("worker_hosts", worker_hosts,
             "multi_worker_mirrored: addresses of all workers, host:port,host:port; empty: the environment says");
  fields.add("task_index", task_index, "multi_worker_mirrored: which of the worker_hosts this process is");
  fields.add("tpu", tpu,
             "a TPU: its name, its address (grpc://host:port), local, or empty for the one of this machine");
  fields.add("consistency", consistency, "parameter_server: asynchronous, bounded_staleness or synchronous");
  fields.add("staleness", staleness, "bounded_staleness: steps that a worker may be ahead of the slowest");
  fields.add("ps_replicas", ps_replicas, "parameter_server: servers that have each variable, 1 or 2");
}

void RuntimeConfig::describe(ConfigFields& fields) {
  StrategyFlags::describe(fields);
  fields.add("mixed_precision_dtype", mixed_precision_dtype, "what is computed in; empty: float32",
             {"", "float32", "float16", "bfloat16"});
  fields.add("loss_scale", loss_scale, "with float16: dynamic, or a number; empty: dynamic");
  fields.add("dataset_num_private_threads", dataset_num_private_threads,
             "threads that decode and augment; 0: as many as cores");
  fields.add("seed", seed, "of everything random");
  const std::string tensorflow = "of TensorFlow's machinery, without a meaning here";
  fields.add("enable_xla", enable_xla, tensorflow);
  fields.add("run_eagerly", run_eagerly, tensorflow);
  fields.add("gpu_thread_mode", gpu_thread_mode, tensorflow);
  fields.add("per_gpu_thread_count", per_gpu_thread_count, tensorflow);
  fields.add("batchnorm_spatial_persistent", batchnorm_spatial_persistent, tensorflow);
  fields.add("tpu_enable_xla_dynamic_padder", tpu_enable_xla_dynamic_padder, tensorflow);
  fields.add("num_cores_per_replica", num_cores_per_replica, "cores of a TPU that share a replica; only 1");
  fields.add("default_shard_dim", default_shard_dim, "of values over the cores of a replica; only -1");
  fields.add("use_tpu_mp_strategy", use_tpu_mp_strategy, tensorflow);
  for (const char* relation :
       {"enable_xla == false", "run_eagerly == false", "num_cores_per_replica == 1", "default_shard_dim == -1",
        "use_tpu_mp_strategy == false", "seed >= 0", "dataset_num_private_threads >= 0"}) {
    fields.restrict(relation);
  }
}

}  // namespace cohort
