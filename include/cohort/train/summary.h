// SummaryWriter: event files, which TensorBoard shows.
//
//   SummaryWriter summaries("run/train");
//   summaries.scalar("loss", loss, step);
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace cohort {

// A value of a hyperparameter.
using HParam = std::variant<bool, double, std::string>;

// Writes events.out.tfevents.<time>... into a folder, which it makes; a new file for each writer. Not thread-safe.
// Unavailable: the disk is full and the like.
class SummaryWriter {
 public:
  // Opens a new file in the folder.
  explicit SummaryWriter(const std::filesystem::path& folder);
  SummaryWriter(SummaryWriter&&) noexcept;
  SummaryWriter& operator=(SummaryWriter&&) noexcept;
  // Writes what is not written yet; errors are only logged.
  ~SummaryWriter();

  // Adds a number at a step, a point of the curve called `tag`.
  void scalar(std::string_view tag, double value, int64_t step);
  // Adds an image of 1 or 3 channels: uint8 [channels, height, width], or floating point from 0 to 1.
  void image(std::string_view tag, const torch::Tensor& image, int64_t step);
  // Adds the distribution of the elements of a tensor, in `buckets` of the same width.
  void histogram(std::string_view tag, const torch::Tensor& values, int64_t step, int buckets = 30);
  // Adds a text in Markdown.
  void text(std::string_view tag, std::string_view text, int64_t step);
  // Adds the hyperparameters of the run, for the table of runs (the HParams tab); once in a file.
  void hparams(const std::map<std::string, HParam>& values);

  // Makes everything visible to readers of the file, which otherwise happens every few seconds.
  void flush();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
