// What a run finds in its model_dir, and what it leaves there: an evaluation has the data of its training, and what is
// no file of the run's own is not waited for and not written to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cohort/models/experiment.h"
#include "tests/support/files.h"

namespace cohort::model_dir_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

constexpr const char* kSmall =
    "--params_override=task.seq_length=8,task.model.hidden_size=8,task.model.intermediate_size=8,"
    "task.model.num_hidden_layers=1,task.model.num_attention_heads=2";

struct Ended {
  int status = 0;
  std::string said;
};

// Runs the experiment of text in the folder "run" of `place`.
Ended run(const TemporaryFolder& place, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"train", "--experiment=lm_tiny", "--model_dir=" + (place / "run").string()});
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = train_main(static_cast<int>(argv.size()), argv.data());
  return {status, ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr()};
}

Ended train(const TemporaryFolder& place, std::vector<std::string> more = {}) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "some text of the run's own, line " + std::to_string(i) + "\n";
  write_file(place / "text", text);
  more.insert(more.begin(), {"--mode=train", "--train_steps=2", "--batch_size=4", "--seed=3", kSmall,
                             "--data_dir=" + (place / "text").string()});
  return run(place, more);
}

nlohmann::json last_record(const TemporaryFolder& place) {
  std::istringstream lines(read_file(place / "run/metrics.jsonl"));
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return nlohmann::json::parse(last);
}

TEST(ModelDir, AnEvaluationHasTheDataAndTheModelOfItsTraining) {
  const TemporaryFolder place;
  ASSERT_EQ(train(place).status, 0);
  const Ended told =
      run(place, {"--mode=eval", kSmall, "--batch_size=4", "--seed=3", "--data_dir=" + (place / "text").string()});
  ASSERT_EQ(told.status, 0) << told.said;
  const double wanted = last_record(place)["loss"];

  const Ended by_itself = run(place, {"--mode=eval"});
  EXPECT_EQ(by_itself.status, 0) << by_itself.said;
  EXPECT_THAT(by_itself.said, AllOf(HasSubstr((place / "text").string()), Not(HasSubstr("drawn sums"))));
  EXPECT_EQ(last_record(place)["loss"].get<double>(), wanted);
  EXPECT_EQ(last_record(place)["step"], 2);

  // Flags win: other data, and another batch.
  write_file(place / "other", std::string(4000, 'x'));
  const Ended other = run(place, {"--mode=eval", "--data_dir=" + (place / "other").string()});
  EXPECT_EQ(other.status, 0) << other.said;
  EXPECT_THAT(other.said, HasSubstr((place / "other").string()));
  EXPECT_NE(last_record(place)["loss"].get<double>(), wanted);

  // The weights that are left at the end tell their step, too.
  std::filesystem::remove_all(place / "run/ckpt-2");
  EXPECT_EQ(run(place, {"--mode=eval"}).status, 0);
  EXPECT_EQ(last_record(place)["loss"].get<double>(), wanted);
  EXPECT_EQ(last_record(place)["step"], 2);
}

// What ran elsewhere is evaluated here: how a training was distributed is not a part of what it was.
TEST(ModelDir, AnEvaluationTakesNoStrategyFromItsTraining) {
  const TemporaryFolder place;
  ASSERT_EQ(train(place, {"--num_replicas=2"}).status, 0);
  EXPECT_THAT(run(place, {"--mode=eval"}).said, HasSubstr("under mirrored, 1 replica(s)"));
}

// At a pipe that nobody writes to a run would wait without end.
TEST(ModelDir, APipeIsAnError) {
  for (const char* name : {"metrics.jsonl", "checkpoint", ".writer", "ckpt-1/manifest.json"}) {
    const TemporaryFolder place;
    std::filesystem::create_directories((place / "run" / name).parent_path());
    ASSERT_EQ(::mkfifo((place / "run" / name).c_str(), 0600), 0);
    const Ended ended = train(place);
    EXPECT_NE(ended.status, 0) << name;
    EXPECT_THAT(ended.said, AllOf(HasSubstr(name), HasSubstr("is a pipe, wanted a file")));
  }
  for (const auto& [name, message] :
       {std::pair("model.safetensors", "cannot be opened"), {"params.yaml", "is a pipe"}}) {
    const TemporaryFolder place;
    std::filesystem::create_directories(place / "run");
    ASSERT_EQ(::mkfifo((place / "run" / name).c_str(), 0600), 0);
    const Ended ended = run(place, {"--mode=eval"});
    EXPECT_NE(ended.status, 0) << name;
    EXPECT_THAT(ended.said, AllOf(HasSubstr(name), HasSubstr(message)));
  }
}

TEST(ModelDir, ALinkIsNotWrittenThrough) {
  for (const char* name : {"metrics.jsonl", ".writer"}) {
    const TemporaryFolder place;
    std::filesystem::create_directories(place / "run");
    write_file(place / "precious", "precious\n");
    std::filesystem::create_symlink(place / "precious", place / "run" / name);
    const Ended ended = train(place);
    EXPECT_NE(ended.status, 0) << name;
    EXPECT_THAT(ended.said, AllOf(HasSubstr(name), HasSubstr("is a link, which would write to another place")));
    EXPECT_EQ(read_file(place / "precious"), "precious\n") << name;
  }
}

TEST(ModelDir, FoldersOfARunLieInIt) {
  const TemporaryFolder place;
  for (const std::string key :
       {"best_checkpoint_eval_metric=loss,trainer.best_checkpoint_export_subdir", "validation_summary_subdir"}) {
    for (const std::string& folder : {std::string("../out"), std::string("a/../../out"), (place / "out").string()}) {
      const Ended ended = train(place, {"--params_override=trainer." + key + "=" + folder});
      EXPECT_EQ(ended.status, 2) << key;
      EXPECT_THAT(ended.said, HasSubstr("subdir is \"" + folder + "\", wanted a folder in model_dir, without .."));
      EXPECT_FALSE(std::filesystem::exists(place / "out"));
    }
  }
}

}  // namespace
}  // namespace cohort::model_dir_test
