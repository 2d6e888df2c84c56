// Wrong calls of cohort train: exit status 2 and a message that says what came and what was wanted. train_main() is
// called in this process; loading LibTorch anew for every call would take most of the time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "cohort/models/experiment.h"
#include "tests/support/files.h"

namespace cohort::train_command_test {
namespace {

using ::testing::HasSubstr;

// In the flags DIR is a folder that is removed afterwards.
void expect_refused(const std::string& message, std::vector<std::string> flags) {
  const testing::TemporaryFolder folder;
  for (std::string& flag : flags) {
    if (const std::size_t at = flag.find("DIR"); at != std::string::npos) flag.replace(at, 3, folder.path().string());
  }
  flags.insert(flags.begin(), "train");
  std::vector<char*> argv;
  std::transform(flags.begin(), flags.end(), std::back_inserter(argv), [](std::string& flag) { return flag.data(); });
  ::testing::internal::CaptureStderr();
  const int status = train_main(static_cast<int>(argv.size()), argv.data());
  const std::string said = ::testing::internal::GetCapturedStderr();
  ::unsetenv("TF_CONFIG");  // --worker_hosts sets it
  EXPECT_EQ(status, 2) << said;
  EXPECT_THAT(said, HasSubstr(message));
}

void expect_training_refused(const std::string& message, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--experiment=mnist_mlp", "--model_dir=DIR"});
  expect_refused(message, std::move(flags));
}

TEST(TrainCommand, RefusesFlagsThatItDoesNotKnow) {
  expect_training_refused("not expected", {"--speed=3"});
  expect_training_refused("--epochs: trainer.train_epochs is \"many\", wanted number", {"--epochs=many"});
}

TEST(TrainCommand, ReadsWholeNumbersAsDecimalOnes) {
  expect_training_refused("fewer than a batch, 700007", {"--batch_size=0700007"});
  expect_training_refused("--batch_size: 0x10 is not a whole decimal number", {"--batch_size=0x10"});
  expect_training_refused("trainer.train_steps is \"0x10\", wanted integer", {"--train_steps=0x10"});
}

TEST(TrainCommand, RefusesADataSetWithoutAFolder) {
  expect_training_refused("task.train_data.tfds_name is nosuch, but there is no folder",
                          {"--params_override=task.train_data.tfds_name=nosuch"});
  expect_training_refused("there is no data: --data_dir", {"--params_override=task.validation_data.tfds_name=nosuch"});
}

TEST(TrainCommand, RefusesSizesThatAreNone) {
  for (const char* size : {"[]", "[28,28]", "[0,28,1]", "[28,28,-1]", "[28,4611686018427387904,1]"}) {
    for (const char* experiment : {"mnist_mlp", "resnet18", "unet_small"}) {
      expect_refused("task.model.input_size is [", {std::string("--experiment=") + experiment, "--model_dir=DIR",
                                                    std::string("--params_override=task.model.input_size=") + size});
    }
  }
}

TEST(TrainCommand, RefusesWrongExperimentsModesAndFolders) {
  expect_refused("there is no experiment \"mnist\"; there are mnist_mlp, mnist_cnn",
                 {"--experiment=mnist", "--model_dir=DIR"});
  expect_refused("--experiment is missing; there are mnist_mlp", {"--model_dir=DIR"});
  expect_refused("did you mean efficientnet?", {"--experiment=eficientnet", "--model_dir=DIR"});
  expect_refused(
      "Model Garden's mobilenet_imagenet trains a MobileNet, which is not among the models here; efficientnet_b0 is "
      "the nearest",
      {"--experiment=mobilenet_imagenet", "--model_dir=DIR"});
  expect_refused("--model_dir is missing", {"--experiment=mnist_mlp"});
  expect_refused("cannot be made", {"--experiment=mnist_mlp", "--model_dir=/dev/null/x"});
  expect_training_refused("--mode=fly is not known", {"--mode=fly"});
  expect_training_refused("trainer.train_epochs is -1 (--epochs), wanted >= 0", {"--epochs=-1"});
  expect_training_refused("--batch_size is -5, wanted 1 or more", {"--batch_size=-5"});
  expect_training_refused("--batch_size is 0, wanted 1 or more", {"--batch_size=0"});
  expect_training_refused("fewer than a batch", {"--batch_size=9000000000000000000"});
  // With 117 steps an epoch.
  for (const char* epochs : {"1e17", "inf", "nan"}) {
    expect_training_refused(c10::str("trainer.train_epochs is ", epochs == std::string("1e17") ? "1e+17" : epochs),
                            {std::string("--epochs=") + epochs});
  }
  expect_training_refused("trainer.continuous_eval_timeout is 9000000000000000000",
                          {"--params_override=trainer.continuous_eval_timeout=9000000000000000000"});
  expect_training_refused("--train_steps=3 and --epochs=2 both say how long to train",
                          {"--train_steps=3", "--epochs=2"});
  expect_training_refused("--data_dir: 1 required TEXT missing", {"--data_dir="});
  expect_training_refused("--num_gpus", {"--num_gpus="});
  expect_training_refused("trainer.checkpoint_interval is -1 (--save_freq), wanted >= 0", {"--save_freq=-1"});
  expect_training_refused("runtime.seed is -1 (--seed), wanted >= 0", {"--seed=-1"});
  expect_training_refused("there is no folder /there/is", {"--trace=/there/is/none.json"});
  expect_training_refused("has no train-images-idx3-ubyte", {"--data_dir=DIR"});
  expect_training_refused("model.safetensors: cannot be opened", {"--mode=eval"});
  for (const char* key : {"task.freeze_backbone=true", "task.freeze_backbone_steps=2"}) {
    const std::string set = key;
    expect_training_refused("[task] " + set.substr(0, set.find('=')) + ": the model mlp has no backbone",
                            {"--params_override=" + set});
  }
  const std::string folder = std::filesystem::temp_directory_path().string();
  expect_training_refused(folder + " is a folder, wanted the name of a file", {"--trace=" + folder});
  for (const std::string scheme : {"gs", "s3", "hdfs"}) {
    expect_refused("--model_dir=" + scheme + "://bucket/run is an address of " + scheme +
                       ", wanted a folder or files: object stores are not read; mount it",
                   {"--experiment=mnist_mlp", "--model_dir=" + scheme + "://bucket/run"});
    EXPECT_FALSE(std::filesystem::exists(scheme + ":"));
    for (const char* experiment : {"mnist_mlp", "resnet18", "lm_tiny", "unet_small", "dlrm_small"}) {
      expect_refused(
          "--data_dir)=" + scheme + "://bucket/data is an address of " + scheme +
              ", wanted a folder or files: object stores are not read; mount it",
          {std::string("--experiment=") + experiment, "--model_dir=DIR", "--data_dir=" + scheme + "://bucket/data"});
    }
  }
}

TEST(TrainCommand, RefusesWrongStrategies) {
  expect_training_refused("--distribution_strategy=tpu_pod is not known", {"--distribution_strategy=tpu_pod"});
  expect_training_refused("YAML reads an unquoted off as false", {"--distribution_strategy=false"});
  expect_training_refused("--num_gpus is -1", {"--num_gpus=-1"});
  expect_training_refused("--distribution_strategy=off uses one device, but --num_gpus is 2",
                          {"--distribution_strategy=off", "--num_gpus=2"});
  expect_training_refused("one_device has one replica, but --num_replicas is 2",
                          {"--distribution_strategy=one_device", "--num_replicas=2"});
  expect_training_refused("--num_gpus=2 and --num_replicas=3 disagree", {"--num_gpus=2", "--num_replicas=3"});
  expect_training_refused("there is no /device:GPU:", {"--num_gpus=99"});
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  expect_training_refused("; CUDA_VISIBLE_DEVICES is \"\", which hides every GPU", {"--num_gpus=99"});
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  expect_training_refused("\"tree\" are not known, only auto", {"--num_replicas=2", "--all_reduce_alg=tree"});
  expect_training_refused("--tpu=my-tpu has no meaning under --distribution_strategy=mirrored, only under tpu",
                          {"--tpu=my-tpu"});
  expect_training_refused("has no meaning under", {"--distribution_strategy=central_storage", "--all_reduce_alg=ring"});
  expect_training_refused("--num_packs is -1", {"--num_packs=-1"});
  expect_training_refused("there are no messages to pack gradients into: there is one replica", {"--num_packs=2"});
  expect_training_refused("there are no messages to pack gradients into: the replicas add them up in place",
                          {"--num_packs=2", "--num_replicas=2"});
  expect_training_refused("--num_packs=2 has no meaning under --distribution_strategy=one_device",
                          {"--num_packs=2", "--distribution_strategy=one_device"});
  expect_training_refused("gradient_compression is \"int8\", wanted none, bfloat16, float16 or power_sgd",
                          {"--gradient_compression=int8"});
  expect_training_refused("gradient_compression is bfloat16, but there are no messages of gradients: the replicas add",
                          {"--gradient_compression=bfloat16", "--num_replicas=2"});
  expect_training_refused("--gradient_compression=float16 has no meaning under --distribution_strategy=one_device",
                          {"--gradient_compression=float16", "--distribution_strategy=one_device"});
  expect_training_refused(
      "--power_sgd_rank=4 has no meaning under --gradient_compression=float16, only under power_sgd",
      {"--gradient_compression=float16", "--power_sgd_rank=4"});
  expect_training_refused("--local_sgd_every=4 has no meaning under --distribution_strategy=mirrored",
                          {"--local_sgd_every=4"});
  expect_training_refused("--outer_momentum=0.9 has no meaning without --local_sgd_every", {"--outer_momentum=0.9"});
  expect_training_refused(
      "--collective_algorithm=tree has no meaning under --distribution_strategy=mirrored, only under "
      "multi_worker_mirrored",
      {"--collective_algorithm=tree"});
  expect_training_refused(
      "--collective_algorithm=star: [collective] there is no algorithm \"star\" of collectives between workers, only "
      "auto, direct, hierarchical and tree",
      {"--collective_algorithm=star", "--distribution_strategy=multi_worker_mirrored"});
  expect_training_refused("sharding.stage is 2 and gradient_compression is power_sgd",
                          {"--gradient_compression=power_sgd", "--sharding_stage=2", "--num_replicas=2"});
  expect_training_refused("--sharding_stage is 4, wanted 0 (none) to 3", {"--sharding_stage=4"});
  expect_training_refused("--sharding_min_unit_bytes is -1, wanted 0", {"--sharding_min_unit_bytes=-1"});
  expect_training_refused("--reshard_after_forward=false has no meaning under --sharding_stage=2, only under 3",
                          {"--sharding_stage=2", "--reshard_after_forward=false"});
  expect_training_refused("--sharding_min_unit_bytes=7 has no meaning under --sharding_stage=0, only under 3",
                          {"--sharding_min_unit_bytes=7"});
  expect_training_refused("--sharding_offload_states=true has no meaning under --sharding_stage=0, only under 1 to 3",
                          {"--sharding_offload_states=true"});
  expect_training_refused(
      "--sharding_stage=1 has no meaning under --distribution_strategy=central_storage, only under mirrored and "
      "multi_worker_mirrored",
      {"--sharding_stage=1", "--distribution_strategy=central_storage"});
  expect_training_refused("--num_replicas is 1000000000, wanted 1 to 1024", {"--num_replicas=1000000000"});
  expect_training_refused("--num_gpus is 1000000000, wanted 0 to 1024", {"--num_gpus=1000000000"});
  expect_training_refused("--staleness=3 has no meaning under --consistency=asynchronous", {"--staleness=3"});
  expect_training_refused("--task_index=1 has no meaning without --worker_hosts",
                          {"--distribution_strategy=multi_worker_mirrored", "--task_index=1"});
  expect_training_refused("worker_hosts names 1 hosts and task_index is 1",
                          {"--distribution_strategy=multi_worker_mirrored", "--worker_hosts=a:1", "--task_index=1"});
  expect_training_refused("--consistency and --ps_replicas have no meaning under", {"--consistency=synchronous"});
  for (const std::string flag : {"--secret_file=x", "--tls_ca=x", "--tls_cert=x", "--tls_key=x", "--insecure=true"}) {
    expect_training_refused(flag + " has no meaning under --distribution_strategy=mirrored", {flag});
  }
  expect_training_refused("--insecure has no meaning with --secret_file or --tls_ca",
                          {"--distribution_strategy=multi_worker_mirrored", "--insecure", "--secret_file=x"});
  for (const std::string key : {"tensor_float_32", "cudnn_benchmark"}) {
    expect_training_refused(
        "runtime." + key + " is true, but a replica of mirrored is on cpu, which has no such switch",
        {"--params_override=runtime." + key + "=true"});
  }
  expect_training_refused("runtime.tensor_float_32 is false, but a replica of one_device",
                          {"--tf32=false", "--distribution_strategy=one_device"});
  expect_training_refused("runtime.cudnn_enabled is false", {"--params_override=runtime.cudnn_enabled=false"});
  expect_training_refused("needs a cluster", {"--distribution_strategy=parameter_server"});
  expect_training_refused("--consistency=eventual is not known",
                          {"--distribution_strategy=parameter_server", "--consistency=eventual"});
}

TEST(TrainCommand, UnderstandsTpusAndRefusesThoseOfOtherMachines) {
  for (const std::string tpu : {"my-tpu", "grpc://10.1.2.3:8470"}) {
    expect_training_refused("the TPU " + tpu + " is not this machine's",
                            {"--distribution_strategy=tpu", "--tpu=" + tpu});
  }
  expect_training_refused("tpu is grpc://10.1.2.3, which is no address, wanted grpc://host:port",
                          {"--distribution_strategy=tpu", "--tpu=grpc://10.1.2.3"});
  ::setenv("TPU_NAME", "named-by-the-environment", 1);
  expect_training_refused("the TPU named-by-the-environment is not this machine's", {"--distribution_strategy=tpu"});
  ::unsetenv("TPU_NAME");
  for (const std::string tpu : {"", "local"}) {
    expect_training_refused("/there/is/none.so",
                            {"--distribution_strategy=tpu", "--tpu=" + tpu, "--xla_plugin=/there/is/none.so"});
  }
  expect_training_refused("/there/is/none.so", {"--distribution_strategy=xla", "--xla_plugin=/there/is/none.so"});
  expect_training_refused("--xla_plugin=cpu has no meaning under --distribution_strategy=mirrored, only under tpu and",
                          {"--xla_plugin=cpu"});
  expect_training_refused("--xla_options=a=1 has no meaning under --distribution_strategy=mirrored",
                          {"--xla_options=a=1"});
  expect_training_refused("--matmul_precision=high has no meaning under --distribution_strategy=mirrored",
                          {"--matmul_precision=high"});
  expect_training_refused("--num_gpus=2 has no meaning under --distribution_strategy=xla",
                          {"--distribution_strategy=xla", "--num_gpus=2"});
}

TEST(TrainCommand, RefusesPartitionsThatCannotBe) {
  const auto key = [](const std::string& name, const std::string& dims) {
    return "--params_override=task." + name + "_input_partition_dims=" + dims;
  };
  expect_training_refused(
      "task.train_input_partition_dims has no meaning under --distribution_strategy=central_storage, only under "
      "mirrored, tpu and xla",
      {"--distribution_strategy=central_storage", key("train", "[2,2]")});
  expect_training_refused("task.eval_input_partition_dims has no meaning under --distribution_strategy=one_device",
                          {"--mode=eval", "--distribution_strategy=one_device", key("eval", "[1,2,1,1]")});
  expect_training_refused(
      "task.train_input_partition_dims is [2], wanted numbers of 1 or more for batch, height, width",
      {key("train", "[2]")});
  expect_training_refused("task.eval_input_partition_dims is [0, 2], wanted numbers of 1 or more",
                          {key("eval", "[0,2]")});
  expect_training_refused("the model takes images without a dimension of channels", {key("train", "[1,1,1,2]")});
  expect_training_refused(
      "task.train_input_partition_dims has 2 parts and task.eval_input_partition_dims 4, but with "
      "--mode=train_and_eval",
      {"--distribution_strategy=xla",
       "--params_override=task.train_input_partition_dims=[2,1],"
       "task.eval_input_partition_dims=[2,2]"});
}

}  // namespace
}  // namespace cohort::train_command_test
