// The length of an epoch, which every task counts alike.
#pragma once

#include <string>

#include "base/fail.h"
#include "cohort/dataset.h"

namespace cohort {

// Returns the batches of training data in one pass; 0: their number is not known. InvalidArgument: this is a training,
// and there is none; it names the data by their description and what they consist of.
template <typename Data>
int64_t steps_per_epoch(const Data& data, const Dataset& examples, const std::string& description,
                        const std::string& what, bool training) {
  const int64_t count = examples.cardinality();
  if (count < 0) return 0;
  const int64_t batch = data.global_batch_size;
  const int64_t steps = count / batch + (!data.drop_remainder && count % batch > 0 ? 1 : 0);
  if (training && steps == 0) {
    fail<InvalidArgument>("[task] ", description, " has ", count, " ", what, " to train with, fewer than a batch, ",
                          batch);
  }
  return steps;
}

}  // namespace cohort
