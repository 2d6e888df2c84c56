// Checkpoints that several workers write in shards: every cut of a tensor is read in every other one.
#include "checkpoint/shards.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include <fstream>

#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "cohort/checkpoint.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::shards_test {
namespace {

using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::names_in;
using testing::TemporaryFolder;

constexpr int kWorkers = 3;

torch::Tensor tensor_of(const std::vector<int64_t>& shape) {
  return at::arange(elements_in(shape), torch::kFloat).view(shape);
}

TensorPiece piece(const std::string& name, const torch::Tensor& whole, const Runs& runs,
                  const std::vector<int64_t>& order = {}) {
  const torch::Tensor flat = (order.empty() ? whole : whole.permute(order)).contiguous().view(-1);
  return {.name = name,
          .whole = {.dtype = whole.scalar_type(), .shape = whole.sizes().vec(), .order = order},
          .runs = runs,
          .values = flat.as_strided({runs.count, runs.length}, {runs.stride, 1}, runs.offset)};
}

const torch::Tensor kFlat = tensor_of({5, 7});
const torch::Tensor kRows = tensor_of({6, 4}) + 100;
const torch::Tensor kColumns = tensor_of({4, 9}) + 200;
const torch::Tensor kImages = tensor_of({2, 3, 4, 5}) + 300;
const torch::Tensor kWhole = tensor_of({3}) + 400;
const std::vector<int64_t> kChannelsLast = {0, 2, 3, 1};

CheckpointShards shards_of(int rank) {
  const auto part = static_cast<int64_t>(rank);
  CheckpointShards shards;
  std::vector<TensorPiece>& model = shards.pieces["model"];
  const Runs flat[] = {{.offset = 0, .length = 16}, {.offset = 16, .length = 16}, {.offset = 32, .length = 3}};
  model.push_back(piece("flat", kFlat, flat[rank]));
  model.push_back(piece("rows", kRows, runs_of({6, 4}, {.dim = 0, .part = part, .parts = kWorkers})));
  model.push_back(piece("columns", kColumns, runs_of({4, 9}, {.dim = 1, .part = part, .parts = kWorkers})));
  model.push_back(piece("images", kImages, {.offset = 40 * part, .length = 40}, kChannelsLast));
  if (rank == 1) model.push_back(whole_piece("whole", kWhole));
  return shards;
}

CheckpointData data_of_chief() {
  return {.tensors = {{"variables", {{"v", tensor_of({2})}}}}, .values = {{"step", "7"}}};
}

void write(const std::filesystem::path& folder, int workers = kWorkers) {
  const std::filesystem::path draft = folder.string() + ".draft";
  make_draft(draft);
  for (int rank = workers; rank-- > 0;) {
    write_shard(draft, {.rank = rank, .workers = kWorkers}, shards_of(rank),
                {{"worker-" + std::to_string(rank), "own"}});
  }
  publish_shards(folder, draft, 7, data_of_chief(), {.workers = kWorkers, .timeout = std::chrono::milliseconds(200)});
}

TEST(Shards, ComeBackAsWholes) {
  const TemporaryFolder folder;
  write(folder / "ckpt-7");
  const SavedCheckpoint saved = read_checkpoint(folder / "ckpt-7");
  EXPECT_EQ(saved.step, 7);
  EXPECT_EQ(saved.data.values, data_of_chief().values);
  const std::map<std::string, torch::Tensor> model(saved.data.tensors.at("model").begin(),
                                                   saved.data.tensors.at("model").end());
  for (const auto& [name, wanted] : {std::pair("flat", kFlat), std::pair("rows", kRows), std::pair("columns", kColumns),
                                     std::pair("images", kImages), std::pair("whole", kWhole)}) {
    EXPECT_TRUE(torch::equal(model.at(name), wanted)) << name;
  }
  EXPECT_EQ(model.size(), 5U);
  EXPECT_TRUE(torch::equal(saved.data.tensors.at("variables").front().second, tensor_of({2})));
  EXPECT_EQ(saved.data.bytes.size(), 3U);
  EXPECT_EQ(saved.data.bytes.at("worker-2"), "own");
  for (const std::string& name : names_in(folder / "ckpt-7")) EXPECT_THAT(name, ::testing::Not(HasSubstr(".json.")));
  EXPECT_FALSE(std::filesystem::exists(folder / "ckpt-7" / "shard-0-of-3.json"));
}

void expect_every_cut(const CheckpointReader& reader) {
  const auto model = reader.group("model");
  for (const auto& [name, whole] :
       {std::pair("flat", kFlat), std::pair("rows", kRows), std::pair("columns", kColumns)}) {
    const std::vector<int64_t> shape = whole.sizes().vec();
    for (int64_t dim = 0; dim < 2; ++dim) {
      const int64_t parts = shape[static_cast<std::size_t>(dim)];
      for (int64_t part = 0; part < parts; ++part) {
        const Runs runs = runs_of(shape, {.dim = dim, .part = part, .parts = parts});
        EXPECT_TRUE(torch::equal(model->read(name, runs, {}), whole.select(dim, part).contiguous().view(-1))) << name;
      }
    }
    const Runs middle{.offset = 5, .length = 17};
    EXPECT_TRUE(torch::equal(model->read(name, middle, {}), whole.reshape({-1}).slice(0, 5, 22))) << name;
  }
  const Runs some{.offset = 30, .length = 50};
  EXPECT_TRUE(torch::equal(model->read("images", some, {}), kImages.view(-1).slice(0, 30, 80)));
  EXPECT_TRUE(torch::equal(model->read("images", some, kChannelsLast),
                           kImages.permute(kChannelsLast).reshape({-1}).slice(0, 30, 80)));
}

TEST(Shards, AreReadInEveryOtherCut) {
  const TemporaryFolder folder;
  write(folder / "sharded");
  save_checkpoint(
      folder / "whole", 7,
      {.tensors = {{"model", {{"flat", kFlat}, {"rows", kRows}, {"columns", kColumns}, {"images", kImages}}}}});
  for (const char* name : {"sharded", "whole"}) {
    SCOPED_TRACE(name);
    const CheckpointReader reader(folder / name);
    reader.check();
    expect_every_cut(reader);
  }
  EXPECT_THAT(CheckpointReader(folder / "sharded").groups(), ::testing::ElementsAre("model", "variables"));
}

TEST(Shards, AreNotedByTheirPlacesWhoeverIsFirst) {
  const TemporaryFolder folder;
  const std::filesystem::path draft = folder / "draft";
  make_draft(draft);
  const std::jthread workers([&] {
    for (int rank = kWorkers; rank-- > 0;) {
      write_shard(draft, {.rank = rank, .workers = kWorkers}, shards_of(rank), {});
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  });
  publish_shards(folder / "ckpt-7", draft, 7, data_of_chief(),
                 {.workers = kWorkers, .timeout = std::chrono::seconds(20)});
  const CheckpointReader reader(folder / "ckpt-7");
  std::vector<int64_t> places;
  for (const PieceInFile& each : reader.manifest().pieces.at("model").at("flat").pieces)
    places.push_back(each.runs.offset);
  EXPECT_THAT(places, ::testing::ElementsAre(0, 16, 32));
}

TEST(Shards, OfAWorkerThatIsMissingAreNamedAndNothingIsLeft) {
  const TemporaryFolder folder;
  const std::string message = error_of<DeadlineExceeded>([&] { write(folder / "ckpt-7", 2); });
  EXPECT_THAT(message, HasSubstr("waited 200 ms for the shards of worker 2"));
  EXPECT_THAT(names_in(folder.path()), ::testing::IsEmpty());
}

TEST(Shards, AreNotWaitedForWhenAWorkerHasFailed) {
  const TemporaryFolder folder;
  make_draft(folder / "draft");
  Manifest manifest;
  expect_error<Cancelled>(
      [&] { gather_shards(folder / "draft", {.workers = 2, .given_up = [] { return true; }}, manifest); }, "given up");
}

TEST(Shards, ThatDoNotHaveAllElementsAreNotPublished) {
  const TemporaryFolder folder;
  make_draft(folder / "draft");
  CheckpointShards half;
  half.pieces["model"] = {piece("flat", kFlat, {.offset = 0, .length = 16})};
  write_shard(folder / "draft", {.rank = 0, .workers = 1}, half, {});
  expect_error<DataLoss>([&] { publish_shards(folder / "ckpt-1", folder / "draft", 1, {}, {.workers = 1}); },
                         "pieces.model.flat.pieces");
  EXPECT_THAT(names_in(folder.path()), ::testing::IsEmpty());
}

TEST(Shards, AMissingOrDamagedOneMakesTheCheckpointDamaged) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  manager.save(3, data_of_chief());
  manager.wait();
  write(folder / "ckpt-7");
  EXPECT_EQ(manager.restore_latest().value().step, 7);
  const std::filesystem::path shard = folder / "ckpt-7" / "model.shard-1-of-3.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.write("abcd", 4);
  }
  expect_error<DataLoss>([&] { CheckpointReader(folder / "ckpt-7").check(); },
                         "model.shard-1-of-3.safetensors: its bytes do not have the manifest's checksum");
  std::filesystem::remove(shard);
  expect_error<DataLoss>([&] { read_checkpoint(folder / "ckpt-7"); }, "model.shard-1-of-3.safetensors: is missing");
  EXPECT_EQ(manager.restore_latest().value().step, 3);
}

TEST(Shards, AreNotWrittenByOneProcessAlone) {
  const TemporaryFolder folder;
  const CheckpointData data{.shards = std::make_shared<CheckpointShards>(shards_of(0))};
  expect_error<FailedPrecondition>([&] { save_checkpoint(folder / "ckpt-1", 1, data); }, "one worker's shards");
  expect_error<FailedPrecondition>([&] { CheckpointManager(folder / "run").save(1, data); }, "one worker's shards");
}

// Each worker checks files of about the same size, and together all.
TEST(Shards, AreCheckedInShares) {
  const TemporaryFolder folder;
  write(folder / "ckpt-7");
  for (const std::string& name : names_in(folder / "ckpt-7")) {
    if (name == kManifestFile) continue;
    const std::filesystem::path file = folder / "ckpt-7" / name;
    const std::string bytes = testing::read_file(file);
    std::string other = bytes;
    other.back() = static_cast<char>(other.back() + 1);
    testing::write_file(file, other);
    int found = 0;
    for (int share = 0; share < 2; ++share) {
      try {
        CheckpointReader(folder / "ckpt-7").check(share, 2);
      } catch (const DataLoss&) {
        ++found;
      }
    }
    EXPECT_EQ(found, 1) << name;
    testing::write_file(file, bytes);
  }
}

}  // namespace
}  // namespace cohort::shards_test
