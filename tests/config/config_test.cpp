#include "cohort/models/config.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/config/model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::config_test {
namespace {

using cohort::testing::Described;
using cohort::testing::expect_error;
using cohort::testing::RunConfig;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;

TEST(ConfigTest, LaterLayersWinAndSayWhoTheyAre) {
  const TemporaryFolder folder;
  write_file(folder / "a.yaml", "train:\n  batch: 64\n  path: here\nsteps: 5\n");
  write_file(folder / "b.json", R"({"train": {"batch": 128}, "rate": 1e-3})");
  Described it;
  it.config.apply_file(folder / "a.yaml");
  it.config.apply_file(folder / "b.json");
  it.config.set("steps", "7", "--steps");
  it.config.apply_override("test.batch=8");
  it.config.lock();
  EXPECT_EQ(it.run.train.batch, 128);
  EXPECT_EQ(it.run.train.path, "here");
  EXPECT_EQ(it.run.test.batch, 8);
  EXPECT_EQ(it.run.steps, 7);
  EXPECT_EQ(it.run.rate, 1e-3);
  std::map<std::string, std::string> origins;
  for (const Config::Change& change : it.config.changes()) origins[change.path] = change.origin;
  EXPECT_EQ(origins.size(), 5U);
  EXPECT_NE(origins["train.batch"].find("b.json"), std::string::npos);
  EXPECT_NE(origins["train.path"].find("a.yaml, line 3"), std::string::npos);
  EXPECT_EQ(origins["steps"], "--steps");
  EXPECT_EQ(origins["test.batch"], "--params_override");
}

TEST(ConfigTest, OverridesAreAssignmentsOrYamlOrAFile) {
  const TemporaryFolder folder;
  write_file(folder / "o.yaml", "steps: 3\n");
  Described it;
  it.config.apply_override("train.size=[1, 2], names=['a,b', c], strategy='off', train.path=gs://x/y, rate=1e-2");
  EXPECT_EQ(it.run.train.size, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(it.run.names, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(it.run.strategy, "off");
  EXPECT_EQ(it.run.train.path, "gs://x/y");
  EXPECT_EQ(it.run.rate, 1e-2);
  it.config.apply_override("{train: {cache: yes}, test.cache: True}");
  EXPECT_TRUE(it.run.train.cache && it.run.test.cache);
  it.config.apply_override("weights: [1, .5, 1e-3]\nsteps: 1e4");
  EXPECT_EQ(it.run.weights, (std::vector<double>{1.0, 0.5, 1e-3}));
  EXPECT_EQ(it.run.steps, 10'000);
  it.config.apply_override((folder / "o.yaml").string());
  EXPECT_EQ(it.run.steps, 3);
  it.config.apply_override("strategy=off");  // YAML reads it as false, the field as a text
  EXPECT_EQ(it.run.strategy, "off");
  it.config.apply_override("train.path=");
  EXPECT_EQ(it.run.train.path, "");
}

TEST(ConfigTest, WhatItWritesItReads) {
  Described it;
  it.config.apply_override(R"(train.path = "a: b # 'c'", names=["x, y", "\n"], rate=0.1, weights=[1e-300, 3])");
  Described other;
  other.config.apply_yaml(it.config.to_yaml(), "params.yaml");
  EXPECT_EQ(other.config.to_yaml(), it.config.to_yaml());
  EXPECT_EQ(other.run.train.path, "a: b # 'c'");
  EXPECT_EQ(other.run.names->at(1), "\n");
  other.config.reset("rate");
  other.config.reset("names");
  EXPECT_EQ(other.run.rate, 0.1);
  EXPECT_TRUE(other.run.names->empty());
  for (const Config::Change& change : other.config.changes()) EXPECT_NE(change.path, "names");
  EXPECT_EQ(Described().config.to_yaml().substr(0, 18), "train:\n  path: \"\"\n");
}

TEST(ConfigTest, WrongKeysSuggestAndWrongValuesSayWhatWasWanted) {
  const TemporaryFolder folder;
  write_file(folder / "a.yaml", "train:\n  bacth: 64\n");
  Described it;
  expect_error<NotFound>([&] { it.config.apply_file(folder / "a.yaml"); },
                         "a.yaml, line 2: there is no key train.bacth; did you mean train.batch?");
  expect_error<NotFound>([&] { it.config.apply_override("trian.batch=1"); }, "did you mean train.batch?");
  expect_error<NotFound>([&] { it.config.apply_override("zzzzzzzzzzzz=1"); },
                         "--params_override: there is no key zzzzzzzzzzzz");
  expect_error<NotFound>([&] { it.config.apply_override("train.size.0=1"); }, "there is no key train.size.0");
  expect_error<InvalidArgument>([&] { it.config.apply_override("steps=many"); }, "steps is \"many\", wanted integer");
  expect_error<InvalidArgument>([&] { it.config.apply_override("steps=1.5"); }, "wanted integer");
  expect_error<InvalidArgument>([&] { it.config.apply_override("steps=99999999999999999999"); }, "wanted integer");
  expect_error<InvalidArgument>([&] { it.config.apply_override("train=5"); },
                                "train is \"5\", wanted a map of its keys");
  expect_error<InvalidArgument>([&] { it.config.apply_override("train.size=[1, x]"); },
                                "train.size is [\"1\", \"x\"], wanted list of integers");
  expect_error<InvalidArgument>([&] { it.config.apply_override("strategy=tpu"); }, "wanted one of mirrored, off");
  EXPECT_EQ(it.run.strategy, "mirrored");
  expect_error<InvalidArgument>([&] { it.config.apply_override("steps=null"); }, "steps is null, wanted integer");
  EXPECT_EQ(it.run.steps, 1000);
}

TEST(ConfigTest, DamagedTextsAreErrorsWithAPlace) {
  Described it;
  expect_error<InvalidArgument>([&] { it.config.apply_yaml("a: [1,\nb: 2", "x.yaml"); }, "[config] x.yaml, line");
  expect_error<InvalidArgument>([&] { it.config.apply_yaml("- 1\n- 2", "x.yaml"); }, "wanted a map of keys to values");
  expect_error<InvalidArgument>([&] { it.config.apply_yaml("steps: 1\nsteps: 2", "x.yaml"); },
                                "line 2: \"steps\" is there twice");
  // yaml-cpp takes what stands behind the first value for documents without end.
  expect_error<InvalidArgument>([&] { it.config.apply_override("&a.b=1, 2]"); }, "or more than one document");
  expect_error<InvalidArgument>([&] { it.config.apply_yaml("a: 1\n---\nb: 2", "x.yaml"); },
                                "or more than one document");
  expect_error<InvalidArgument>([&] { it.config.apply_override("steps=[1"); }, "has no other half");
  expect_error<InvalidArgument>([&] { it.config.apply_override("steps"); },
                                "wanted key=value, YAML or the name of a file");
  expect_error<NotFound>([&] { it.config.apply_file("/there/is/none.yaml"); }, "cannot be opened");
  // Nothing is mapped at the beginning of this file, so that a read of it fails.
  expect_error<InvalidArgument>([&] { it.config.apply_override("/proc/self/mem"); }, "/proc/self/mem: cannot be read");
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const std::string inner = std::string("*") + static_cast<char>(c - 1);
    bomb += std::string(1, c) + ": &" + c + " [" + inner;
    for (int i = 0; i < 9; ++i) bomb += "," + inner;
    bomb += "]\n";
  }
  expect_error<InvalidArgument>([&] { it.config.apply_yaml(bomb, "x.yaml"); }, "more than 100000 values");
}

TEST(ConfigTest, RestrictionsAreCheckedAndThenNothingChanges) {
  Described it;
  it.config.apply_override("test.batch=64");
  expect_error<InvalidArgument>([&] { it.config.lock(); }, "train.batch is 32, wanted >= test.batch (64)");
  it.config.apply_override("train.batch=0, test.batch=0");
  expect_error<InvalidArgument>([&] { it.config.lock(); }, "train.batch is 0 (--params_override), wanted > 0");
  it.config.apply_override("train.batch=64, test.batch=64");
  it.config.lock();
  expect_error<FailedPrecondition>([&] { it.config.apply_override("steps=1"); }, "the configuration is locked");
}

TEST(ConfigTest, RelationsHoldForNumbersAndTexts) {
  Setting<int64_t> a = 2;
  Setting<std::string> b = "x";
  const auto with = [&](const char* relation) {
    Config config([&](ConfigFields& fields) {
      fields.add("a", a, "");
      fields.add("b", b, "");
      fields.restrict(relation);
    });
    config.lock();
  };
  for (const char* relation :
       {"a == 2", "a == 2.0", "a != 3", "a < 3", "a <= 2", "a > 1", "a >= 2", "b == x", "b != y"}) {
    with(relation);
  }
  for (const char* relation : {"a == 3", "a != 2", "a < 2", "a <= 1", "a > 2", "a >= 3", "b == y", "b != x", "b < y"}) {
    EXPECT_THROW(with(relation), InvalidArgument) << relation;
  }
  EXPECT_THROW(with("a 2"), InvalidArgument);
}

TEST(ConfigTest, WhatNothingReadsIsAnErrorThatNamesIt) {
  Described it;
  it.config.apply_override("train.cache=true, steps=5, rate=0.1, names=[a]");
  it.config.lock();
  expect_error<InvalidArgument>([&] { it.config.require_read("a run"); },
                                "a run has no use for what was set:\n  train.cache is true (--params_override): "
                                "nothing reads it here (whether it "
                                "is kept in memory); its default is false\n  steps is 5");
  EXPECT_EQ(it.config.unread().size(), 3U) << "the rate is what it was";
  const RunConfig copy = it.run;  // as good as the original
  EXPECT_EQ(copy.steps, 5);
  EXPECT_TRUE(it.run.train.cache);
  it.config.to_yaml();
  expect_error<InvalidArgument>([&] { it.config.require_read("a run"); }, "was set:\n  names is [\"a\"]");
  EXPECT_EQ(it.run.names->size(), 1U);
  it.config.require_read("a run");
  EXPECT_TRUE(it.config.was_read("steps"));
  EXPECT_FALSE(it.config.was_read("rate"));
  EXPECT_THROW(it.config.was_read("rat"), NotFound);
}

TEST(ConfigTest, AKeyOfATypeThatIsNotChosenSaysSo) {
  Setting<std::string> type = "sgd";
  Setting<double> momentum = 0.0;
  Setting<double> beta = 0.9;
  Config config([&](ConfigFields& fields) {
    fields.group("rule", [&](ConfigFields& inner) {
      inner.add("type", type, "", {"sgd", "adam"});
      inner.group("sgd", [&](ConfigFields& own) { own.add("momentum", momentum, ""); });
      inner.group("adam", [&](ConfigFields& own) { own.add("beta", beta, ""); });
    });
  });
  config.set("rule.adam.beta", "0.5", "--beta");
  expect_error<InvalidArgument>([&] { config.require_read("a run"); },
                                "rule.adam.beta is 0.5 (--beta): that is for rule.type adam, and the type is sgd");
}

TEST(ConfigTest, SettingsAreTheirValues) {
  Setting<std::vector<int64_t>> list = {1, 2};
  list = {3, 4, 5};
  EXPECT_EQ(list->size(), 3U);
  list = {};
  EXPECT_TRUE(list->empty());
  Setting<std::vector<double>> numbers = {0.5};
  numbers = {0.0};
  EXPECT_EQ(numbers->at(0), 0.0);
  Setting<std::string> text = "a";
  text = std::string("b");
  EXPECT_TRUE(text == "b" && text != "a");
  Setting<double> number = 1;
  number = 0.5;
  EXPECT_EQ(2 * number, 1.0);
  EXPECT_EQ(c10::str(text, number), "b0.5");
  Config config([&](ConfigFields& fields) { fields.add("text", text, ""); });
  const Setting<std::string> other = "c";
  config.set("text", "d", "--text");
  text = other;  // the field, with another value
  EXPECT_FALSE(config.was_read("text"));
  EXPECT_EQ(*text, "c");
  EXPECT_TRUE(config.was_read("text"));
}

TEST(ConfigTest, HelpHasEveryKeyWithTypeDefaultAndMeaning) {
  const std::string help = Described().config.help();
  EXPECT_NE(help.find("train.batch  (integer, default 32)\n    examples a step"), std::string::npos) << help;
  EXPECT_NE(help.find("strategy  (text, default \"mirrored\")\n    of distribution; mirrored, off"), std::string::npos);
  EXPECT_NE(help.find("test.size  (list of integers, default [32, 32])"), std::string::npos);
}

}  // namespace
}  // namespace cohort::config_test
