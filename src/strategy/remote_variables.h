// RemoteVariables: variables that other processes keep (parameter servers), as the layers above see them. This process
// has a copy of a variable's value, which is as new as its last reading.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/optimizer.h"

namespace cohort {

class RemoteVariables {
 public:
  virtual ~RemoteVariables() = default;

  struct Local {
    std::string name;
    torch::Tensor value;                                // contiguous, on the CPU; readings write to it
    std::optional<Optimizer> optimizer = std::nullopt;  // trains the variable
    bool decay = true;                                  // weight decay applies
    bool adapt = true;                                  // a trust ratio applies
    // Steps read and update single rows (look_up()). The coordinator alone keeps such a value.
    bool by_rows = false;
    // They have the shape of the value, and are there only if keeps_slots() says so.
    std::vector<torch::Tensor> slots = {};
    int64_t iterations = 0;  // steps that the slots have seen
  };

  // Every task of the cluster declares the same variables, in the same order, before any of them is used. Returns the
  // variable's number.
  virtual std::size_t declare(Local local) = 0;
  virtual Local& local(std::size_t variable) = 0;
  virtual bool has(const std::string& name) const = 0;
  // Returns whether this process needs the values (a parameter server has them elsewhere) and the slots (the
  // coordinator, for checkpoints).
  virtual bool keeps_values() const = 0;
  virtual bool keeps_slots() const = 0;
  // Called when the values of all variables have been read; and before this process's values are given to the others.
  virtual void on_refresh(std::function<void()> callback) = 0;
  virtual void on_save(std::function<void()> callback) = 0;
  // Called when a process that does not keep the values has no use for its own any more.
  virtual void on_release(std::function<void()> callback) = 0;

  // A tensor that is to be added to a variable that is not trained.
  struct Change {
    std::size_t variable = 0;
    torch::Tensor delta;
  };
  // Returns the rows of these indices (whole numbers of any shape) of a variable that is read by rows. In a step their
  // gradient goes with the next ones. Several replicas may call it at a time. InvalidArgument: an index out of range.
  virtual torch::Tensor look_up(std::size_t variable, const torch::Tensor& indices) = 0;
  // Makes one step of the optimizers with these gradients, one for each of `variables`; and with those of the rows that
  // were looked up for it, times `row_factor`. The values are read back. All tensors are contiguous, on the CPU, like
  // the values.
  virtual void apply_gradients(std::span<const std::size_t> variables, std::span<const torch::Tensor> gradients,
                               std::span<const Change> changes = {}, double row_factor = 1.0) = 0;
  // Sets the rate from now on, in place of the optimizer's; on the coordinator.
  virtual void set_learning_rate(std::span<const std::size_t> variables, double rate) = 0;
  virtual void assign(std::size_t variable, const torch::Tensor& value) = 0;
  virtual void add(std::size_t variable, const torch::Tensor& delta) = 0;
  virtual void read(std::size_t variable) = 0;

  // Returns the part of a step's examples that this process has: 1, but where several share a step (synchronous
  // training).
  virtual double weight() const = 0;
  // Returns whether this process speaks for all that share the step.
  virtual bool leads_step() const = 0;
};

// The processes that keep them, as a strategy holds on to them.
class RemoteCluster {
 public:
  virtual ~RemoteCluster() = default;
  virtual RemoteVariables& variables() = 0;
};

}  // namespace cohort
