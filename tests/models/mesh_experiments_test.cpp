// Experiments of the command line on a mesh that a flag gives: with parameters, stages and positions in parts.
#include <gmock/gmock.h>

#include <fstream>

#include "cohort/cohort.h"
#include "tests/models/every_key_data.h"
#include "tests/support/files.h"

namespace cohort::mesh_experiments_test {
namespace {

using ::testing::HasSubstr;

// Runs the command line and returns its exit status, and what it said to the error stream.
std::pair<int, std::string> run(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "train");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const int status = train_main(static_cast<int>(argv.size()), argv.data());
  (void)::testing::internal::GetCapturedStdout();
  return {status, ::testing::internal::GetCapturedStderr()};
}

double last_loss(const std::vector<std::string>& experiment, const std::vector<std::string>& flags) {
  const testing::TemporaryFolder folder;
  std::vector<std::string> all = experiment;
  all.insert(all.end(), flags.begin(), flags.end());
  all.push_back("--model_dir=" + folder.path().string());
  const auto [status, said] = run(all);
  EXPECT_EQ(status, 0) << said;
  std::ifstream file(folder.path() / "metrics.jsonl");
  std::string line, last;
  while (std::getline(file, line)) last = line;
  const std::size_t at = last.find("\"loss\":");
  EXPECT_NE(at, std::string::npos) << last;
  return at == std::string::npos ? 0.0 : std::stod(last.substr(at + 7));
}

const std::vector<std::string>& tiny_language_model() {
  static const std::vector<std::string> flags = {
      "--experiment=lm_tiny", "--batch_size=8", "--train_steps=4", "--mode=train",
      "--params_override=task.seq_length=16,task.model.hidden_size=16,task.model.intermediate_size=24,"
      "task.model.num_hidden_layers=2"};
  return flags;
}

const std::vector<std::string>& tiny_bert() {
  static const std::vector<std::string> flags = [] {
    const std::string encoder = "task.model.encoder.bert.";
    return std::vector<std::string>{"--experiment=bert_tiny", "--batch_size=8", "--train_steps=4", "--mode=train",
                                    "--params_override=" + encoder + "hidden_size=16," + encoder + "num_layers=2," +
                                        encoder + "intermediate_size=24"};
  }();
  return flags;
}

// A recommender on the clicks of a folder, with tables of so many rows.
std::vector<std::string> recommender(const std::filesystem::path& clicks, int64_t rows) {
  testing::make_clicks(clicks);
  return {"--experiment=dlrm_small",
          "--batch_size=8",
          "--train_steps=4",
          "--mode=train",
          "--data_dir=" + clicks.string(),
          "--params_override=task.model.vocab_sizes=[" + c10::Join(", ", std::vector<int64_t>(26, rows)) + "]"};
}

TEST(MeshExperiments, ExperimentsRunOnAMeshThatAFlagGives) {
  const std::vector<std::string> vit = {
      "--experiment=mnist_mlp", "--batch_size=4", "--train_steps=2", "--mode=train",
      "--params_override=task.model.backbone.type=vit,task.model.backbone.vit.model_name=vit-s16,"
      "task.model.backbone.vit.patch_size=14"};
  const testing::TemporaryFolder folder;
  const std::vector<std::string> clicks = recommender(folder / "clicks", 10);
  for (const auto& experiment : {tiny_language_model(), vit, tiny_bert(), clicks}) {
    SCOPED_TRACE(experiment.front());
    const double wanted = last_loss(experiment, {"--distribution_strategy=one_device"});
    EXPECT_NEAR(last_loss(experiment, {"--mesh=batch=2,model=2"}), wanted, 1e-4 * wanted);
    if (experiment == vit) continue;
    std::vector<std::string> flags = {"--mesh=model=2", "--vocab_parallel"};
    flags.emplace_back(experiment == clicks ? "--mlp_parallel" : "--sequence_parallel");
    EXPECT_NEAR(last_loss(experiment, flags), wanted, 1e-4 * wanted);
  }
}

TEST(MeshExperiments, ReplicasOfAMeshShareStatesAsAFlagSays) {
  const double wanted = last_loss(tiny_language_model(), {"--distribution_strategy=one_device"});
  for (const char* stage : {"--sharding_stage=1", "--sharding_stage=3"}) {
    EXPECT_NEAR(last_loss(tiny_language_model(), {"--mesh=batch=2,model=2", stage}), wanted, 1e-4 * wanted) << stage;
  }
  EXPECT_NEAR(last_loss(tiny_language_model(), {"--mesh=model=2,stage=2"}), wanted, 1e-4 * wanted);
}

TEST(MeshExperiments, ImagesAreInPartsOnAMeshThatAFlagGives) {
  const std::string unet = "task.model.backbone.unet.";
  const std::vector<std::string> experiment = {
      "--experiment=unet_small", "--batch_size=3", "--train_steps=2", "--mode=train",
      "--params_override=" + unet + "filters=2," + unet + "levels=2,task.train_input_partition_dims=[2, 1]"};
  std::vector<std::string> whole = experiment;
  whole.back().erase(whole.back().rfind(",task"));
  const double wanted = last_loss(whole, {"--distribution_strategy=one_device"});
  for (const char* strategy : {"mirrored", "multi_worker_mirrored"}) {  // of a single worker
    EXPECT_NEAR(last_loss(experiment, {"--mesh=batch=1,space=2", c10::str("--distribution_strategy=", strategy)}),
                wanted, 1e-4 * wanted);
  }
}

TEST(MeshExperiments, ExperimentsRunInStagesThatAFlagGives) {
  const auto wanted = [](const std::vector<std::string>& experiment) {
    return last_loss(experiment, {"--distribution_strategy=one_device"});
  };
  const double text = wanted(tiny_language_model());
  for (const char* schedule : {"1f1b", "interleaved", "zero_bubble_h1"}) {
    SCOPED_TRACE(schedule);
    const bool two = std::string(schedule) != "interleaved";  // chunks for two blocks
    const double got =
        last_loss(tiny_language_model(), {two ? "--mesh=batch=2,stage=2" : "--mesh=stage=1",
                                          c10::str("--pipeline_schedule=", schedule), "--pipeline_microbatches=3"});
    EXPECT_NEAR(got, text, 1e-4 * text);
  }
  const std::vector<std::string> digits = {"--experiment=mnist_mlp", "--batch_size=8", "--train_steps=2",
                                           "--mode=train_and_eval"};
  EXPECT_NEAR(last_loss(digits, {"--mesh=batch=2,stage=2", "--sharding_stage=1"}), wanted(digits), 1e-4);
}

TEST(MeshExperiments, ExperimentsOfAllKindsRunInStages) {
  const std::string backbone = "task.model.backbone.";
  const std::vector<std::string> resnet = {
      "--experiment=mnist_mlp", "--batch_size=6", "--train_steps=2", "--mode=train",
      "--params_override=" + backbone + "type=resnet_cifar," + backbone + "resnet_cifar.model_id=8"};
  const std::vector<std::string> unet = {
      "--experiment=unet_small", "--batch_size=3", "--train_steps=2", "--mode=train",
      "--params_override=" + backbone + "unet.filters=2," + backbone + "unet.levels=2"};
  std::vector<std::string> bert = tiny_bert();
  bert[1] = "--batch_size=6";
  bert[2] = "--train_steps=3";
  // A batch norm sees one microbatch at a time, on one device, too.
  for (const auto& experiment : {resnet, unet, bert}) {
    SCOPED_TRACE(experiment.front());
    const double wanted = last_loss(experiment, {"--mesh=stage=1", "--pipeline_microbatches=3"});
    EXPECT_NEAR(last_loss(experiment, {"--mesh=stage=2", "--pipeline_microbatches=3"}), wanted, 1e-4 * wanted);
    if (experiment == bert) {
      EXPECT_NEAR(last_loss(bert, {"--distribution_strategy=one_device"}), wanted, 1e-4 * wanted);
    }
  }
}

TEST(MeshExperiments, WrongStagesAreNamed) {
  const testing::TemporaryFolder folder;
  const auto expect = [&](const std::vector<std::string>& experiment, const std::vector<std::string>& flags,
                          const std::string& part) {
    std::vector<std::string> all = experiment;
    all.push_back("--model_dir=" + folder.path().string());
    all.insert(all.end(), flags.begin(), flags.end());
    const auto [status, said] = run(all);
    EXPECT_EQ(status, 2);
    EXPECT_THAT(said, HasSubstr(part));
  };
  const auto& text = tiny_language_model();
  expect(text, {"--mesh=stage=3"}, "a model of 2 blocks has no 3 chunks, 1 to 2 would fit");
  expect(text, {"--mesh=stage=2", "--pipeline_schedule=2f2b"},
         "--pipeline_schedule=2f2b is not known; there are 1f1b, gpipe, interleaved, zero_bubble_h1");
  expect(text, {"--mesh=stage=2", "--pipeline_microbatches=0"}, "--pipeline_microbatches is 0, wanted 1 to 1024");
  expect(text, {"--mesh=batch=2", "--pipeline_schedule=gpipe"},
         "--pipeline_schedule=gpipe has no meaning without an axis of stages in --mesh");
  expect(text, {"--pipeline_microbatches=2"}, "--pipeline_microbatches=2 has no meaning without an axis of stages");
  expect(text, {"--mesh=model=2,stage=2", "--sequence_parallel=true"},
         "--sequence_parallel=true has no meaning with --mesh=model=2,stage=2, whose stages have all positions");
  expect(text, {"--mesh=sequence=2,stage=2"}, "the axis \"sequence\" divides inputs and the mesh is");
  expect(text, {"--mesh=pipeline=1,stage=2"}, "both pipeline and stage divide layers, wanted one axis that does");
  expect({"--experiment=mnist_mlp"}, {"--mesh=stage=5"},
         "the model has 4 layers (flatten, dense, dense_1, dense_2), which cannot be cut into the 5 chunks");
  expect(text, {"--mesh=stage=2", "--sharding_stage=2"}, "sharding.stage is 2");
  expect({"--experiment=mnist_cnn"}, {"--mesh=stage=2", "--params_override=task.train_input_partition_dims=[1,2,1,1]"},
         "task.eval_input_partition_dims have no meaning with --mesh=stage=2, whose axis of stages divides the layers");
  expect(text, {"--mesh=stage=2", "--params_override=task.model.remat=true"},
         "task.model.remat is true and an axis of stages in --mesh makes a pipeline, which do not go together");
  expect({"--experiment=resnet20_cifar10"}, {"--mesh=stage=2", "--params_override=task.model.remat=true"},
         "task.model.remat is true");
  expect({"--experiment=resnet20_cifar10"}, {"--mesh=stage=11"}, "so that it has no 11 chunks, 1 to 10 would fit");
  expect({"--experiment=dlrm_small"}, {"--mesh=stage=2"}, "into 2 chunks, but its model has no places for that");
}

TEST(MeshExperiments, ExperimentsRunWithTheirTokensInParts) {
  const double wanted = last_loss(tiny_language_model(), {"--distribution_strategy=one_device"});
  EXPECT_NEAR(last_loss(tiny_language_model(), {"--mesh=batch=1,sequence=3"}), wanted, 1e-4 * wanted);
  EXPECT_NEAR(last_loss(tiny_language_model(), {"--mesh=batch=2,sequence=2", "--sequence_attention=ulysses"}), wanted,
              1e-4 * wanted);
}

TEST(MeshExperiments, WrongMeshesAreNamed) {
  const testing::TemporaryFolder folder;
  const auto expect = [&](const std::vector<std::string>& flags, const std::string& part) {
    std::vector<std::string> all = tiny_language_model();
    all.push_back("--model_dir=" + folder.path().string());
    all.insert(all.end(), flags.begin(), flags.end());
    const auto [status, said] = run(all);
    EXPECT_EQ(status, 2);
    EXPECT_THAT(said, HasSubstr(part));
  };
  expect({"--mesh=batch"}, "\"batch\" is no axis, wanted batch=2,model=2");
  expect({"--mesh=batch=0"}, "the axis batch has the size 0");
  for (const char* size : {"", "x", "2.5", " 2", "-1", "1025", "99999999999999999999"}) {
    expect({c10::str("--mesh=batch=", size)}, c10::str("the axis batch has the size ", size, ", wanted 1 to 1024"));
  }
  expect({"--mesh=batch=1024,model=1024"}, "the axes have more than 65536 places, wanted sizes whose product is that");
  expect({"--mesh=batch=1024,model=4"},
         "has 4096 places in a process, wanted axes whose sizes multiply to 1024 or less");
  expect({"--mesh=batch=2,batch=2"}, "two axes have the name batch, wanted one of each");
  expect({"--mesh=batches=2"}, "does not say what it divides");
  expect({"--mesh=model=3"}, "which 3 replicas along \"model\" do not divide; sizes of the axis that would: 1, 2, 4");
  expect({"--mesh=model=8"},
         "num_heads is 4, which 8 replicas along \"model\" do not divide; sizes of the axis that would: "
         "1, 2, 4");
  expect({"--mesh=model=2,tensor=2"}, "both model and tensor divide parameters");
  expect({"--mesh=batch=2,model=2", "--num_replicas=3"},
         "has 4 places, but there are 3 by --num_replicas; 4 would fit");
  expect({"--mesh=model=2", "--distribution_strategy=one_device"},
         "--mesh=model=2 has no meaning under --distribution_strategy=one_device, only under mirrored and "
         "multi_worker_mirrored");
  expect({"--mesh=sequence=2", "--sequence_attention=star"}, "--sequence_attention=star, wanted ring or ulysses");
  expect({"--mesh=batch=2", "--sequence_attention=ulysses"}, "has no meaning without an axis sequence");
  expect({"--mesh=stage=2", "--sequence_attention=ulysses"}, "has no meaning without an axis sequence");
  expect({"--sequence_attention=ulysses"}, "has no meaning without an axis sequence in --mesh");
  expect({"--mesh=sequence=3", "--sequence_attention=ulysses"}, "4 heads, dimension 1, which 3 replicas do not divide");
  expect({"--mesh=sequence=2,model=2"},
         "\"model\" divides parameters and the axis \"sequence\" divides inputs, which do");
  expect({"--mesh=batch=2,space=2"},
         "the axis space divides images into the parts of task.train_input_partition_dims (with --mode=eval "
         "task.eval_input_partition_dims), which is empty, wanted parts whose product is 2; an axis sequence divides");
  expect({"--sequence_parallel=true"}, "--sequence_parallel=true has no meaning without an axis that divides");
  expect({"--mesh=batch=2", "--sequence_parallel=true"}, "--sequence_parallel=true has no meaning without an axis");
  expect({"--mesh=sequence=2", "--vocab_parallel=true"}, "--vocab_parallel=true has no meaning without an axis that");
  expect({"--mesh=batch=2", "--mlp_parallel"}, "--mlp_parallel=true has no meaning without an axis that divides");
  expect({"--mesh=model=2", "--mlp_parallel"},
         "--mlp_parallel=true is for recommenders, whose dense layers are whole without it; \"model\" divides");
  expect({"--mesh=model=2", "--vocab_parallel=maybe"}, "runtime.vocab_parallel is \"maybe\", wanted true or false");
  expect({"--mesh=model=2", "--vocab_parallel=true", "--params_override=task.model.vocab_size=257"},
         "dimension 0 of model.embed_tokens.weight has 257 elements, which 2 replicas along \"model\" do not divide");
}

TEST(MeshExperiments, ModelsThatAMeshDoesNotDivideSoAreNamed) {
  const testing::TemporaryFolder folder;
  const auto expect = [&](std::vector<std::string> flags, const std::string& part) {
    flags.push_back("--model_dir=" + (folder / "run").string());
    const auto [status, said] = run(flags);
    EXPECT_EQ(status, 2);
    EXPECT_THAT(said, HasSubstr(part));
  };
  expect({"--experiment=mnist_mlp", "--mesh=model=2"},
         "only for language models, masked ones too, recommenders and vision transformers");
  expect({"--experiment=mnist_mlp", "--mesh=model=2", "--vocab_parallel=true",
          "--params_override=task.model.backbone.type=vit"},
         "--vocab_parallel=true: an image classifier has no vocabulary that \"model\" could divide");
  expect({"--experiment=mnist_mlp", "--mesh=sequence=2"},
         "this task has images; the axis space, with task.train_input");
  expect({"--experiment=unet_small", "--mesh=sequence=2"},
         "this task has images; the axis space, with task.train_input");
  expect({"--experiment=bert_tiny", "--mesh=sequence=2"},
         "the attention of BERT takes whole sequences; the axes batch");
  expect({"--experiment=dlrm_small", "--mesh=sequence=2"}, "this task has clicks; the axes batch and model divide");
  expect({"--experiment=dlrm_small", "--mesh=model=2", "--mlp_parallel",
          "--params_override=task.model.bottom_mlp=[16],task.model.top_mlp=[1]"},
         "task.model.bottom_mlp and task.model.top_mlp have a single layer each, which \"model\" does not divide");
  std::vector<std::string> clicks = recommender(folder / "clicks", 9);
  clicks.emplace_back("--mesh=model=2");
  clicks.emplace_back("--sequence_parallel");
  expect(clicks, "has no positions that it divides; decoder(), bert() and vision_transformer() have");
  clicks.back() = "--vocab_parallel=true";
  expect(clicks,
         "dimension 0 of emb_l.0.weight has 9 elements, which 2 replicas along \"model\" do not divide; sizes "
         "of the axis that would: 1, 3, 9");
}

TEST(MeshExperiments, PartsThatDoNotFitAreNamed) {
  const testing::TemporaryFolder folder;
  const auto expect = [&](const std::string& dims, const std::vector<std::string>& flags, const std::string& part) {
    std::vector<std::string> all = {"--experiment=unet_small", "--mode=train", "--model_dir=" + folder.path().string(),
                                    "--params_override=task.train_input_partition_dims=" + dims};
    all.insert(all.end(), flags.begin(), flags.end());
    const auto [status, said] = run(all);
    EXPECT_EQ(status, 2);
    EXPECT_THAT(said, HasSubstr(part));
  };
  expect("[1, 1, 2, 3]", {}, "task.train_input_partition_dims cuts channels in 3 parts, wanted [1, height, width, 1]");
  expect("[2, 1, 1, 1]", {"--mesh=space=2"}, "task.train_input_partition_dims cuts the batch in 2 parts, wanted [1, ");
  expect("[1, 1025]", {}, "task.train_input_partition_dims is [1, 1025], wanted numbers whose product is 1024 or less");
  expect("[4294967296, 4294967296]", {}, "wanted numbers whose product is 1024 or less");
  expect("[32, 32]", {"--num_replicas=2"}, "2 replicas of 1024 parts are 2048 CPUs, wanted 1024 or less");
}

}  // namespace
}  // namespace cohort::mesh_experiments_test
