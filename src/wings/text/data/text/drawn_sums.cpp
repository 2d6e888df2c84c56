// Text without a file: sums of two numbers, a line each.
#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "data/random.h"
#include "wings/text/data/text/windows.h"

namespace cohort::datasets {

namespace {

Dataset draw(const char* name, int64_t count, const DrawnSumsOptions& options, uint64_t part) {
  if (count < 1) fail<InvalidArgument>("[data] drawn_sums: ", name, " is ", count, ", wanted 1 or more");
  constexpr uint64_t kBelow = 1'000;
  Random random(options.seed, part);
  std::string text;
  const int64_t size = count * std::max<int64_t>(options.seq_length, 1) + 1;
  while (static_cast<int64_t>(text.size()) < size) {
    const uint64_t first = random.below(kBelow);
    const uint64_t second = random.below(kBelow);
    text += c10::str(first, "+", second, "=", first + second, "\n");
  }
  text.resize(static_cast<std::size_t>(size));
  return examples_of(windows_of("drawn_sums", text, options.seq_length));
}

}  // namespace

TrainTest drawn_sums(const DrawnSumsOptions& options) {
  return {.train = draw("train_size", options.train_size, options, 0),
          .test = draw("test_size", options.test_size, options, 1)};
}

}  // namespace cohort::datasets
