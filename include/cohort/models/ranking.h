// Recommending as an experiment's task: DLRM, which tells the chance of a click, with the names of Model Garden's
// dlrm_criteo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/models/dlrm.h"
#include "cohort/models/experiment.h"

namespace cohort {

// The clicks. docs/settings.md has the meaning of each field.
struct RankingDataConfig {
  Setting<std::string> input_path;
  Setting<int64_t> global_batch_size = 256;
  Setting<bool> is_training = true;
  Setting<bool> drop_remainder = true;
  Setting<int64_t> shuffle_buffer_size = 100'000;
  Setting<int64_t> prefetch_buffer_size = -1;
  Setting<int64_t> seed = -1;
  Setting<bool> sharding = true;
  Setting<bool> deterministic = true;
  Setting<double> held_out = 0.1;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The model. docs/settings.md has the meaning of each field.
struct RankingModelConfig {
  Setting<int64_t> num_dense_features = 13;
  Setting<std::vector<int64_t>> vocab_sizes = std::vector<int64_t>(26, 201);
  Setting<int64_t> embedding_dim = 16;
  Setting<std::vector<int64_t>> bottom_mlp = {64, 16};
  Setting<std::vector<int64_t>> top_mlp = {64, 32, 1};
  Setting<std::string> interaction = "dot";

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
  // Returns them as the model takes them.
  models::DlrmOptions options() const;
};

// A task for experiments with clicks. Change its fields before you hand it over.
class RankingTask : public Task {
 public:
  RankingModelConfig model;                                                          // the group "model"
  RankingDataConfig train_data;                                                      // the group "train_data"
  RankingDataConfig validation_data{.is_training = false, .drop_remainder = false};  // the group "validation_data"
  Setting<double> label_smoothing = 0.0;
  std::string builtin_data;  // the data without a file: "clicks"; empty: none

  void describe(ConfigFields& fields) override;

  TaskData build_inputs(const RuntimeConfig& runtime, bool training) override;
  Example example_batch() const override;
  // The tables by their columns, or with `cuts_vocabulary` by their rows; dense layers are whole.
  LayoutMap mesh_layout(const std::string& axis, const MeshCuts& cuts) const override;
  // InvalidArgument: DLRM has no places where a pipeline could cut it.
  std::vector<std::string> pipeline_cut(int chunks) const override;
  void check_sequence(const std::string& axis) const override;
  Model build_model() override;
  std::optional<Loss> build_loss() override;
  std::vector<Metric> build_metrics() override;
};

}  // namespace cohort
