// Reading files: photographs decoded, resized, normalised and batched; TFRecords with their checksums. It also measures
// training steps in bfloat16 beside float32.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "cohort/data/augment.h"
#include "cohort/data/datasets.h"
#include "cohort/data/tfrecord.h"
#include "cohort/models/zoo.h"
#include "cohort/train/model.h"

namespace cohort::bench {

namespace {

constexpr int64_t kProbeStride = 4801;  // torch_images.py has it, too

}  // namespace

void run_images(const std::string& folder, int threads) {
  datasets::ImageFolderOptions options{.shuffle = false};
  options.threads.num_parallel_calls = threads;
  const Dataset pictures = datasets::image_folder(folder, options).train;
  const Dataset batches =
      pictures
          .map(
              [](Example example) {
                example.x = normalize(resize_image(example.x, 224, 224), {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
                return example;
              },
              {.num_parallel_calls = threads})
          .batch(32)
          .prefetch();
  std::vector<double> rates;
  std::vector<float> probe;                  // of the first batch
  for (int round = 0; round < 3; ++round) {  // the first one fills the page cache
    int64_t images = 0;
    const double begin = now();
    Iterator iterator = batches.iterator();
    while (const auto batch = iterator.next()) {
      images += batch->x.size(0);
      if (!probe.empty()) continue;
      const torch::Tensor some = batch->x.flatten().slice(0, 0, batch->x.numel(), kProbeStride).contiguous();
      probe.assign(some.data_ptr<float>(), some.data_ptr<float>() + some.numel());
    }
    rates.push_back(static_cast<double>(images) / (now() - begin));
  }
  std::cout << nlohmann::json{{"images_per_second", median({rates[1], rates[2]})}, {"probe", probe}} << "\n";
}

void run_tfrecord() {
  constexpr int64_t kRecords = 4096;
  constexpr std::size_t kBytes = std::size_t{128} << 10;
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "cohort_bench.tfrecord";
  {
    TFRecordWriter writer(file);
    std::string record(kBytes, 'x');
    for (std::size_t i = 0; i < kBytes; ++i) record[i] = static_cast<char>(i * 2654435761U >> 13);
    for (int64_t i = 0; i < kRecords; ++i) writer.write(record);
    writer.close();
  }
  std::vector<double> rates;
  for (int round = 0; round < 4; ++round) {
    const double begin = now();
    TFRecordReader reader(file);
    std::size_t bytes = 0;
    while (const auto record = reader.next()) bytes += record->size();
    rates.push_back(static_cast<double>(bytes) / (now() - begin) / 1e9);
  }
  std::filesystem::remove(file);
  std::cout << "{\"tfrecord_gb_per_second\": " << median(rates) << "}\n";
}

void run_precision(double seconds) {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({16, 3, 64, 64});
  const torch::Tensor y = torch::randint(0, 10, {16}, torch::kLong);
  std::vector<double> times;
  for (const auto precision : {PrecisionPolicy::kFloat32, PrecisionPolicy::kMixedBFloat16}) {
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    const auto scope = strategy.scope();
    Model model([] { return models::resnet50({.num_classes = 10, .channels_last = true}); });
    model.compile({.optimizer = SGD({.learning_rate = 0.01}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .precision = precision});
    times.push_back(median_time(seconds, [&] { model.train_on_batch({.x = x, .y = y}); }));
  }
  std::cout << "{\"float32_ms\": " << times[0] * 1e3 << ", \"bfloat16_ms\": " << times[1] * 1e3 << "}\n";
}

}  // namespace cohort::bench
