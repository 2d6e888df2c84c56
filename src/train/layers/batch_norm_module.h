// The module of a BatchNormalization() layer.
#pragma once

#include <string>
#include <string_view>

#include "cohort/mirrored.h"
#include "cohort/train/layers/normalization.h"
#include "train/layers/layer_form.h"

namespace cohort {

class BatchNormModule final : public LayerModule, public FirstReplicaBuffers, public FormedLayer {
 public:
  static constexpr std::string_view kType = "BatchNormalization";

  struct Running {
    torch::Tensor mean, var;
  };

  BatchNormModule(const BatchNormalizationOptions& options, const BuildContext& context);

  const std::string& layer_name() const { return name_; }
  int64_t rank() const { return rank_; }
  int64_t dim() const { return dim_; }
  int64_t channels() const { return channels_; }
  const torch::Tensor& weight() const { return weight_; }  // undefined: there is none
  const torch::Tensor& bias() const { return bias_; }      // undefined: there is none
  // Returns the statistics of all channels.
  Running running() const { return {running_mean_, running_var_}; }

  // Returns whether a call learns statistics.
  bool learns() const { return is_training() && !frozen_; }
  // Computes with some channels, or all, in dimension 1, and moves their statistics.
  torch::Tensor compute(const torch::Tensor& x, const Running& running);

  void set_frozen(bool frozen) override { frozen_ = frozen; }
  bool first_replica_counts() const override { return first_replica_counts_; }
  torch::Tensor forward(const torch::Tensor& x) override;
  // As Keras': what is masked is normalized, too, but does not count in the statistics.
  torch::Tensor forward_masked(const torch::Tensor& x, const torch::Tensor& mask) override;
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  torch::Tensor normalize(const torch::Tensor& x, const torch::Tensor& mean, const torch::Tensor& var,
                          bool learn) const;
  torch::Tensor by_rows(const torch::Tensor& x);
  torch::Tensor learn_masked(const torch::Tensor& x, const torch::Tensor& mask);
  void move_running(const torch::Tensor& number, const torch::Tensor& mean, const torch::Tensor& var) const;
  torch::Tensor learn(const torch::Tensor& x, const Running& running, double values) const;
  void learn_from_one(const torch::Tensor& x, const Running& running) const;
  void count_batch();
  torch::Tensor empty_output(const torch::Tensor& x) const;

  std::string name_;
  int64_t rank_;
  int64_t dim_;  // of the channels
  int64_t channels_;
  double momentum_;  // LibTorch's: the share of the new statistics
  double epsilon_;
  bool synchronized_;
  bool first_replica_counts_;
  bool unbiased_;  // the running variance is
  bool frozen_ = false;
  torch::Tensor weight_, bias_, running_mean_, running_var_, batches_;
};

}  // namespace cohort
