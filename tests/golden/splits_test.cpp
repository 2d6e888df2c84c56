// The elements that each replica gets at each step, against TensorFlow's.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "cohort/data/tfrecord.h"
#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "tests/golden/golden.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::splits_test {
namespace {

using nlohmann::json;
using testing::check_golden;
using testing::TemporaryFolder;

AutoShard policy_of(const std::string& name) {
  const std::map<std::string, AutoShard> policies{
      {"AUTO", AutoShard::kAuto}, {"FILE", AutoShard::kFile}, {"DATA", AutoShard::kData}, {"OFF", AutoShard::kOff}};
  return policies.at(name);
}

// Throws if a case says something that this test does not know, so that none is held to less than it says.
void require_known(const json& golden) {
  const std::set<std::string> known{"about",
                                    "after",
                                    "batch_per_replica",
                                    "block_length",
                                    "cycle_length",
                                    "drop_remainder",
                                    "elements",
                                    "error",
                                    "file_sizes",
                                    "files",
                                    "function",
                                    "global_batch",
                                    "message",
                                    "policy",
                                    "reader",
                                    "replicas_per_worker",
                                    "skip",
                                    "source",
                                    "steps",
                                    "take",
                                    "workers"};
  for (const auto& [key, value] : golden.items()) {
    if (!known.contains(key)) throw std::invalid_argument("the key " + key + " is not known");
  }
}

Dataset records_of(const std::vector<std::filesystem::path>& files, const json& golden) {
  const std::string reader = golden.value("reader", "flat");
  if (reader == "flat") return datasets::tfrecord(files);
  if (reader != "interleave") throw std::invalid_argument("the reader " + reader + " is not known");
  return Dataset::range(static_cast<int64_t>(files.size()))
      .interleave(
          [files](const Example& number) {
            return datasets::tfrecord({files.at(static_cast<std::size_t>(number.x.item<int64_t>()))});
          },
          {.cycle_length = golden.at("cycle_length"), .block_length = golden.value("block_length", 1)});
}

// Returns the numbers 0, 1, ... from files of these sizes, as a dataset that reads the files as the case says.
Dataset numbers_in_files(const TemporaryFolder& folder, const std::vector<int64_t>& sizes, const json& golden) {
  std::vector<std::filesystem::path> files;
  int64_t number = 0;
  for (std::size_t f = 0; f < sizes.size(); ++f) {
    files.push_back(folder / c10::str("numbers-", f, ".tfrecord"));
    TFRecordWriter writer(files.back());
    for (int64_t i = 0; i < sizes[f]; ++i) writer.write(std::to_string(number++));
    writer.close();
  }
  return records_of(files, golden).map([](const Example& record) {
    const torch::Tensor text = record.x.contiguous();
    const std::string digits(static_cast<const char*>(text.data_ptr()), static_cast<std::size_t>(text.numel()));
    return Example{.x = torch::scalar_tensor(static_cast<int64_t>(std::stoll(digits)), torch::kLong)};
  });
}

std::vector<int64_t> even_sizes(int64_t elements, int64_t files) {
  std::vector<int64_t> sizes(static_cast<std::size_t>(files), elements / files);
  for (int64_t f = 0; f < elements % files; ++f) ++sizes[static_cast<std::size_t>(f)];
  return sizes;
}

Dataset transformed(Dataset data, const json& golden) {
  for (const std::string operation : golden.value("after", json::array({"batch"}))) {
    if (operation == "batch") {
      const char* size = golden.contains("global_batch") ? "global_batch" : "batch_per_replica";
      data = data.batch(golden.at(size), {.drop_remainder = golden.value("drop_remainder", false)});
    } else if (operation == "repeat2") {
      data = data.repeat(2);
    } else if (operation == "take") {
      data = data.take(golden.at("take"));
    } else if (operation == "skip") {
      data = data.skip(golden.at("skip"));
    } else if (operation == "cache") {
      data = data.cache();
    } else if (operation == "prefetch") {
      data = data.prefetch(2);
    } else if (operation == "map") {
      data = data.map([](const Example& example) { return example; });
    } else {
      throw std::invalid_argument("the operation " + operation + " is not known");
    }
  }
  return data;
}

// Returns the elements of each local replica at each step: [step][replica].
json steps_of(const Strategy& strategy, const Dataset& data, const json& golden) {
  const InputOptions options{.auto_shard = policy_of(golden.at("policy"))};
  const DistributedDataset distributed =
      golden.value("function", false)
          ? strategy.distribute_from_function([&](const InputContext&) { return data; }, options)
          : strategy.distribute(data, options);
  json steps = json::array();
  for (const GlobalBatch& batch : distributed) {
    json step = json::array();
    for (const Example& share : batch.values()) {
      const torch::Tensor x = share.x.contiguous();
      step.push_back(std::vector<int64_t>(x.data_ptr<int64_t>(), x.data_ptr<int64_t>() + x.numel()));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

// Returns the elements of every replica at each step: [step][worker][replica].
json steps_of_workers(int workers, int replicas, const Dataset& data, const json& golden) {
  if (workers == 1) {
    json steps = json::array();
    for (json& step : steps_of(MirroredStrategy({.devices = cpu_devices(replicas)}), data, golden)) {
      steps.push_back(json::array({std::move(step)}));
    }
    return steps;
  }
  std::vector<json> seen(static_cast<std::size_t>(workers));
  testing::with_workers({.workers = workers, .replicas = replicas}, [&](const MultiWorkerMirroredStrategy& strategy) {
    seen[static_cast<std::size_t>(strategy.worker_rank())] = steps_of(strategy, data, golden);
  });
  json steps = json::array();
  for (std::size_t s = 0; s < seen.front().size(); ++s) {
    json step = json::array();
    for (const json& worker : seen) step.push_back(worker.at(s));
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string compare(const json& actual, const json& golden) {
  return actual == golden.at("steps") ? "" : c10::str("the steps are ", actual.dump(), ", wanted ", golden.dump());
}

TEST(Splits, OneWorkerAndMany) {
  check_golden("splits.json", [](const json& golden) -> std::string {
    require_known(golden);
    const TemporaryFolder folder;
    const Dataset source = golden.contains("file_sizes") ? numbers_in_files(folder, golden.at("file_sizes"), golden)
                                                         : Dataset::range(golden.at("elements").get<int64_t>());
    const Dataset data = transformed(source, golden);
    const auto run = [&] {
      return steps_of_workers(golden.at("workers"), golden.at("replicas_per_worker"), data, golden);
    };
    if (!golden.contains("error")) return compare(run(), golden);
    try {
      return c10::str("the steps are ", run().dump(), ", wanted an error");
    } catch (const InvalidArgument&) {
      return "";
    }
  });
}

TEST(Splits, PoliciesOfOneWorker) {
  check_golden("splits_one_worker.json", [](const json& golden) -> std::string {
    const TemporaryFolder folder;
    const int64_t files = golden.at("tfrecord_files");
    const int64_t elements = golden.at("elements");
    const Dataset source =
        files > 0 ? numbers_in_files(folder, even_sizes(elements, files), golden) : Dataset::range(elements);
    const MirroredStrategy strategy({.devices = cpu_devices(golden.at("replicas"))});
    return compare(steps_of(strategy, transformed(source, golden), golden), golden);
  });
}

// Each worker reads one global batch by itself, which is what its sizes add up to.
TEST(Splits, SizesOfAWorker) {
  check_golden("batch_sizes.json", [](const json& golden) -> std::string {
    const int workers = golden.at("workers");
    const int replicas = golden.at("replicas_per_worker");
    const int64_t cycle = golden.at("global_batch");
    json asked = golden;
    asked["policy"] = "OFF";
    const json steps =
        steps_of_workers(workers, replicas, Dataset::range(cycle).batch(golden.at("global_batch")), asked);
    std::vector<json> sizes(static_cast<std::size_t>(workers), json::array());
    for (const json& step : steps) {
      for (std::size_t w = 0; w < step.size(); ++w) {
        for (const json& share : step[w]) sizes[w].push_back(share.size());
      }
    }
    return json(sizes) == golden.at("batch_sizes")
               ? ""
               : c10::str("the sizes are ", json(sizes).dump(), ", wanted ", golden.dump());
  });
}

}  // namespace
}  // namespace cohort::splits_test
