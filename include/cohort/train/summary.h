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
  // Writes what is left; errors are only logged.
  ~SummaryWriter();

  // A number at a step, a point of the curve called `tag`.
  void scalar(std::string_view tag, double value, int64_t step);
  // uint8 [channels, height, width], or floating point from 0 to 1; 1 or 3 channels.
  void image(std::string_view tag, const torch::Tensor& image, int64_t step);
  // The distribution of the tensor's elements, in `buckets` of the same width.
  void histogram(std::string_view tag, const torch::Tensor& values, int64_t step, int buckets = 30);
  // Markdown.
  void text(std::string_view tag, std::string_view text, int64_t step);
  // What the run was made with, for the table of runs (the HParams tab); once a file.
  void hparams(const std::map<std::string, HParam>& values);

  // So that others see what was written. Done by itself every few seconds.
  void flush();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
