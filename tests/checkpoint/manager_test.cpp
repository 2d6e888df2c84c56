#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/crc32c.h"
#include "checkpoint/manifest.h"
#include "cohort/checkpoint.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::manager_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::names_in;
using testing::read_file;
using ::testing::StartsWith;
using testing::TemporaryFolder;
using testing::write_file;

CheckpointData data_of(double number) {
  return {.tensors = {{"model", {{"w", torch::full({3, 2}, number)}, {"b", torch::full({2}, number, torch::kDouble)}}},
                      {"optimizer", {{"w/exp_avg", torch::full({3, 2}, -number)}}}},
          .bytes = {{"input-0", std::string("\0position", 9)}},
          .values = {{"epoch", std::to_string(static_cast<int64_t>(number))}}};
}

void expect_data(const SavedCheckpoint& checkpoint, double number) {
  const CheckpointData wanted = data_of(number);
  EXPECT_EQ(checkpoint.data.bytes, wanted.bytes);
  EXPECT_EQ(checkpoint.data.values, wanted.values);
  ASSERT_EQ(checkpoint.data.tensors.size(), wanted.tensors.size());
  for (const auto& [group, tensors] : wanted.tensors) {
    std::map<std::string, torch::Tensor> found(checkpoint.data.tensors.at(group).begin(),
                                               checkpoint.data.tensors.at(group).end());
    ASSERT_EQ(found.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      EXPECT_TRUE(torch::equal(found.at(name), tensor)) << name;
      EXPECT_EQ(found.at(name).scalar_type(), tensor.scalar_type());
    }
  }
}

// Returns the number of drafts, which the folder of one writer has.
std::size_t drafts_in(const std::filesystem::path& folder) {
  std::size_t writers = 0;
  std::size_t drafts = 0;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(".writer-")) continue;
    ++writers;
    drafts += names_in(folder / name).size();
  }
  EXPECT_EQ(writers, 1U);
  return drafts;
}

TEST(Crc32c, IsTheOneOfTheStandard) {
  const auto crc = [](std::string_view text, uint32_t before = 0) {
    return crc32c(std::as_bytes(std::span(text)), before);
  };
  EXPECT_EQ(crc("123456789"), 0xE3069283U);  // RFC 3720, B.4 and the usual check value
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc(""), 0U);
  EXPECT_EQ(crc("6789", crc("12345")), crc("123456789"));
}

TEST(CheckpointManager, WhatIsSavedComesBack) {
  const TemporaryFolder folder;
  for (const bool asynchronous : {false, true}) {
    CheckpointManager manager(folder / "run", {.asynchronous = asynchronous});
    EXPECT_EQ(manager.save(7, data_of(7)), folder / "run/ckpt-7");
    EXPECT_EQ(manager.latest(), 7);
    const auto restored = manager.restore_latest();
    ASSERT_TRUE(restored);
    EXPECT_EQ(restored->step, 7);
    expect_data(*restored, 7);
    EXPECT_THAT(names_in(folder / "run"), ElementsAre(".writer", StartsWith(".writer-"), "checkpoint", "ckpt-7"));
  }
  EXPECT_THAT(names_in(folder / "run/ckpt-7"),
              ElementsAre("input-0.bin", "manifest.json", "model.safetensors", "optimizer.safetensors"));
  CheckpointManager empty(folder / "other");
  EXPECT_EQ(empty.latest(), std::nullopt);
  EXPECT_FALSE(empty.restore_latest());
}

TEST(CheckpointManager, TheDataMayChangeAsSoonAsSaveReturns) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  torch::Tensor w = torch::zeros({4'000'000});
  for (int step = 1; step <= 3; ++step) {
    w.fill_(step);
    manager.save(step, {.tensors = {{"model", {{"w", w}, {"t", w.view({2, -1}).t()}}}}});
    w.fill_(-1);
  }
  for (int step = 1; step <= 3; ++step) {
    manager.wait();
    const SavedCheckpoint saved = read_checkpoint(manager.folder(step));
    for (const auto& [name, tensor] : saved.data.tensors.at("model")) EXPECT_TRUE((tensor == step).all().item<bool>());
  }
}

TEST(CheckpointManager, KeepsTheLatest) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.max_to_keep = 2});
  for (const int64_t step : {1, 2, 3, 10, 9}) manager.save(step, data_of(1));
  EXPECT_THAT(manager.steps(), ElementsAre(9, 10));
  EXPECT_THAT(read_file(folder / "checkpoint"), HasSubstr("\"latest\": \"ckpt-10\""));
  CheckpointManager all(folder / "all", {.max_to_keep = 0});
  for (int64_t step = 0; step < 8; ++step) all.save(step, data_of(1));
  EXPECT_EQ(all.steps().size(), 8U);
}

TEST(CheckpointManager, KeepsOneEverySoManyHoursForGood) {
  const TemporaryFolder folder;
  {
    CheckpointManager manager(folder.path(), {.max_to_keep = 1, .keep_every_n_hours = 2});
    for (int64_t step = 1; step <= 3; ++step) manager.save(step, data_of(1));
    EXPECT_THAT(manager.steps(), ElementsAre(3)) << "no hours have passed";
    // The run is made to look as if it had begun 5 hours ago.
    write_file(folder / "checkpoint", c10::str("{\"kept\": [], \"last_kept\": ", std::time(nullptr) - 5 * 3600, "}"));
  }
  {
    CheckpointManager manager(folder.path(), {.max_to_keep = 1, .keep_every_n_hours = 2});
    for (int64_t step = 4; step <= 6; ++step) manager.save(step, data_of(1));
    EXPECT_THAT(manager.steps(), ElementsAre(3, 6));
  }
  CheckpointManager later(folder.path(), {.max_to_keep = 1, .keep_every_n_hours = 2});
  later.save(7, data_of(1));
  EXPECT_THAT(later.steps(), ElementsAre(3, 7)) << "it is remembered";
}

// A process was killed after it had written a checkpoint and before it removed the oldest.
TEST(CheckpointManager, WhatIsTooMuchGoesBeforeTheNextOneNeedsRoom) {
  const auto left_after_a_failed_save = [](int64_t max_to_keep, bool damaged) {
    const TemporaryFolder folder;
    {
      CheckpointManager before(folder.path(), {.max_to_keep = 0, .asynchronous = false});
      for (int64_t step = 1; step <= 3; ++step) before.save(step, data_of(1));
    }
    CheckpointManager manager(folder.path(), {.max_to_keep = max_to_keep, .asynchronous = false});
    if (damaged) std::filesystem::resize_file(manager.folder(3) / "model.safetensors", 40);
    EXPECT_EQ(manager.restore_latest()->step, damaged ? 2 : 3);
    EXPECT_THROW(manager.save(4, {.bytes = {{"no/file", "x"}}}), InvalidArgument);
    return manager.steps();
  };
  EXPECT_THAT(left_after_a_failed_save(2, /*damaged=*/false), ElementsAre(2, 3));
  EXPECT_THAT(left_after_a_failed_save(2, /*damaged=*/true), ElementsAre(2, 3));
  EXPECT_THAT(left_after_a_failed_save(1, /*damaged=*/true), ElementsAre(2, 3)) << "the whole one stays";
}

TEST(CheckpointManager, ADamagedOneIsSkippedForTheOneBefore) {
  const auto damage = [](const std::string& what, const std::function<void(const std::filesystem::path&)>& by,
                         const std::string& message) {
    SCOPED_TRACE(what);
    const TemporaryFolder folder;
    CheckpointManager manager(folder.path());
    manager.save(1, data_of(1));
    manager.save(2, data_of(2));
    manager.wait();
    by(manager.folder(2));
    const auto restored = manager.restore_latest();
    ASSERT_TRUE(restored);
    EXPECT_EQ(restored->step, 1);
    expect_data(*restored, 1);
    if (message.empty()) return;
    EXPECT_THAT(error_of<DataLoss>([&] { read_checkpoint(manager.folder(2)); }), HasSubstr(message));
  };
  damage(
      "one bit",
      [](const auto& folder) {
        std::string bytes = read_file(folder / "model.safetensors");
        bytes.back() = static_cast<char>(bytes.back() ^ 1);
        write_file(folder / "model.safetensors", bytes);
      },
      "model.safetensors: its bytes do not have the manifest's checksum");
  damage(
      "half a file", [](const auto& folder) { std::filesystem::resize_file(folder / "optimizer.safetensors", 40); },
      "optimizer.safetensors: has 40 bytes, the manifest says");
  damage(
      "a file is gone", [](const auto& folder) { std::filesystem::remove(folder / "input-0.bin"); },
      "input-0.bin: is missing");
  damage(
      "no manifest", [](const auto& folder) { std::filesystem::remove(folder / "manifest.json"); }, "");
  damage(
      "half a manifest", [](const auto& folder) { std::filesystem::resize_file(folder / "manifest.json", 60); },
      "manifest.json: its bytes do not have the checksum in its first line");
  damage(
      "an empty folder",
      [](const auto& folder) {
        std::filesystem::remove_all(folder);
        std::filesystem::create_directory(folder);
      },
      "");
}

TEST(CheckpointManager, AKilledWriterLeavesTheOneBefore) {
  const TemporaryFolder folder;
  {
    CheckpointManager manager(folder.path(), {.max_to_keep = 2});
    manager.save(1, data_of(1));
  }
  for (int round = 0; round < 8; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      // Writes without end, the same step over and over too, until it is killed.
      at::set_num_threads(1);
      CheckpointManager manager(folder.path(), {.max_to_keep = 2, .asynchronous = false});
      for (int64_t step = 1;; ++step) manager.save(100 + step / 2, data_of(100));
    }
    ::usleep(20'000 + 7'000 * static_cast<unsigned>(round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CheckpointManager manager(folder.path(), {.max_to_keep = 2});
    ASSERT_FALSE(manager.steps().empty());
    for (const int64_t step : manager.steps()) (void)read_checkpoint(manager.folder(step));  // all are whole
    EXPECT_EQ(drafts_in(folder.path()), 0) << "of those of the killed ones";
  }
}

TEST(CheckpointManager, ErrorsOfTheThreadArriveAtTheNextCall) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  manager.save(1, {.bytes = {{"a/b", "no name of a file"}}});
  expect_error<InvalidArgument>([&] { manager.save(2, data_of(2)); }, "\"a/b\" cannot name a part of a checkpoint");
  manager.save(3, data_of(3));
  EXPECT_EQ(manager.latest(), 3);

  // Whose folder is gone does not know who has written there since.
  std::filesystem::remove_all(folder / "run");
  manager.save(4, data_of(4));
  expect_error<FailedPrecondition>([&] { manager.wait(); }, "run is no longer written by pid ");
  expect_error<FailedPrecondition>([&] { manager.finish(); },
                                   "another run has taken it over meanwhile, or it was removed");
}

TEST(CheckpointManager, AFullDiskLeavesWhatWasThere) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.asynchronous = false});
  manager.save(1, data_of(1));
  // A limit on the size of files stands in for the disk.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string once = error_of<Unavailable>([&] { manager.save(1, data_of(2)); });
  const std::string again = error_of<Unavailable>([&] { manager.save(2, data_of(2)); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(once, HasSubstr("cannot be written: File too large"));
  EXPECT_THAT(again, HasSubstr("cannot be written: File too large"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".writer", StartsWith(".writer-"), "checkpoint", "ckpt-1"));
  EXPECT_EQ(drafts_in(folder.path()), 0) << "nothing half done";
  expect_data(*manager.restore_latest(), 1);
  manager.save(1, data_of(3));
  expect_data(*manager.restore_latest(), 3);
}

TEST(CheckpointManager, AWriteThatHangsIsNamedAtTheDeadline) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.timeout = std::chrono::milliseconds(0)});
  manager.save(4, {.tensors = {{"model", {{"w", torch::zeros({20'000'000})}}}}});
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { manager.save(5, data_of(1)); }),
              HasSubstr("waited 0 ms for the write of " + (folder / "ckpt-4").string()));
  std::string problem = "waited";
  for (int i = 0; i < 3000 && problem.find("waited") != std::string::npos; ++i) {
    ::usleep(10'000);
    problem = error_of<DeadlineExceeded>([&] { manager.wait(); });
  }
  EXPECT_EQ(problem, "no error");
  EXPECT_EQ(manager.latest(), 4) << "it was only slow";
}

TEST(CheckpointManager, EveryBitOfTheManifestCounts) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "one", 120, {.values = {{"epoch", "3"}}});
  const std::string whole = testing::read_file(folder / "one" / "manifest.json");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    testing::write_file(folder / "one" / "manifest.json", damaged);
    EXPECT_THROW(read_checkpoint(folder / "one"), DataLoss) << "byte " << i;
  }
  testing::write_file(folder / "one" / "manifest.json", whole);
  EXPECT_EQ(read_checkpoint(folder / "one").data.values.at("epoch"), "3");
}

TEST(CheckpointManager, WrongCallsAreNamed) {
  const TemporaryFolder folder;
  expect_error<InvalidArgument>([&] { CheckpointManager(folder.path(), {.name = "../x"}); }, "../x");
  expect_error<InvalidArgument>([&] { CheckpointManager(folder.path(), {.max_to_keep = -1}); }, "max_to_keep is -1");
  expect_error<Unavailable>([] { CheckpointManager("/dev/null/x"); }, "cannot be made");
  CheckpointManager manager(folder.path(), {.asynchronous = false});
  expect_error<InvalidArgument>([&] { manager.save(-1, {}); }, "the step is -1");
  expect_error<InvalidArgument>([&] { manager.save(1, {.bytes = {{"../x", ""}}}); }, "\"../x\" cannot name a part");
  expect_error<InvalidArgument>([&] { manager.save(1, {.values = {{"x", "\xff"}}}); }, "no UTF-8 text");
  expect_error<NotFound>([&] { read_checkpoint(folder / "nothing"); }, "cannot be opened");
  EXPECT_TRUE(manager.steps().empty());
}

TEST(Manifest, WhatIsWrongIsNamedWithItsPlace) {
  const Manifest good{.step = 5, .time = 6, .values = {{"a", "b"}}, .files = {{"x.bin", {.size = 3, .crc32c = 0xAB}}}};
  const Manifest back = parse_manifest(to_json(good), "m");
  EXPECT_EQ(back.step, 5);
  EXPECT_EQ(back.values, good.values);
  EXPECT_EQ(back.files.at("x.bin").crc32c, 0xABU);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = to_json(good);
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "m: no JSON, [json.exception.parse_error.101]"},
      {with("\"step\": 5", "\"step\": 2e828"), "m: no JSON, [json.exception.out_of_range.406]"},
      {"[]", "it is [], wanted a map"},
      {with("\"step\": 5", "\"stop\": 5"), "step is missing"},
      {with("\"step\": 5", "\"step\": -5"), "step is -5, wanted 0 or more"},
      {with("\"step\": 5", "\"step\": 18446744073709551615"), "wanted 0 or more"},
      {with("\"step\": 5", "\"step\": 5.5"), "step is 5.5, wanted a whole number"},
      {with("\"b\"", "7"), "values.a is 7, wanted a text"},
      {with("000000ab", "xyz"), "files.x.bin.crc32c is \"xyz\", wanted 8 hex digits"},
      {with("\"kind\": \"tensors\"", "\"kind\": \"code\""), "files.x.bin.kind is \"code\""},
      {with("x.bin", "../x"), "files is"},
  };
  for (const auto& [text, message] : cases) {
    expect_error<DataLoss>([&, text = text] { (void)parse_manifest(text, "m"); }, message);
  }
  expect_error<Unimplemented>([&] { (void)parse_manifest(with("\"format\": 1", "\"format\": 3"), "m"); },
                              "format 3, this version reads formats 1 and 2");
}

TEST(Manifest, PiecesHaveToLieWithinTheirWholes) {
  const TensorInPieces tensor{
      .whole = {.shape = {4, 3}, .order = {1, 0}},
      .pieces = {{.file = "m.shard-0-of-2.safetensors", .entry = "w@0", .runs = {.length = 2, .stride = 4, .count = 3}},
                 {.file = "m.shard-0-of-2.safetensors",
                  .entry = "w@2",
                  .runs = {.offset = 2, .length = 2, .stride = 4, .count = 3}}}};
  const Manifest good{.files = {{"m.shard-0-of-2.safetensors", {}}, {"x.bin", {.kind = ManifestFile::Kind::kBytes}}},
                      .pieces = {{"m", {{"w", tensor}}}}};
  const TensorInPieces back = parse_manifest(to_json(good), "m").pieces.at("m").at("w");
  EXPECT_EQ(back.whole.order, tensor.whole.order);
  EXPECT_EQ(back.pieces.at(1).runs, tensor.pieces.at(1).runs);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = to_json(good);
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {with("\"count\": 3", "\"count\": 4"), "pieces.m.w.pieces.count is 4, wanted runs within the tensor"},
      {with("\"count\": 3", "\"count\": 1"), "wanted runs that lie apart"},
      {with("\"count\": 3", "\"count\": 2"), "pieces.m.w.pieces is"},
      {with("\"stride\": 4", "\"stride\": 1"), "wanted runs that lie apart"},
      {with("\"stride\": 4", "\"stride\": 9223372036854775807"), "wanted runs within the tensor"},
      {with("\"offset\": 0", "\"offset\": 9223372036854775807"), "wanted a place in the tensor"},
      {with("\"length\": 2", "\"length\": 13"), "wanted"},
      {with("\"dtype\": \"F32\"", "\"dtype\": \"F33\""), "pieces.m.w.dtype is \"F33\", wanted one of safetensors"},
      {with("\"file\": \"m.shard-0-of-2.safetensors\"", "\"file\": \"x.bin\""), "wanted a file of tensors"},
      {with("\"file\": \"m.shard-0-of-2.safetensors\"", "\"file\": \"m.shard-1-of-2.safetensors\""),
       "wanted a file of tensors"},
      {with("\"m\": {", "\"../m\": {"), "wanted names of groups"}};
  for (const auto& [text, message] : cases) {
    expect_error<DataLoss>([&, text = text] { (void)parse_manifest(text, "m"); }, message);
  }
}

}  // namespace
}  // namespace cohort::manager_test
