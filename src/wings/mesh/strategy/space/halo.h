// The exchange of rows between the parts of a dimension, differentiable.
#pragma once

#include <torch/custom_class.h>
#include <torch/types.h>

#include <vector>

#include "wings/mesh/strategy/space/divided.h"

namespace cohort::space {

// One replica's part in an exchange of rows, which are counted in the whole dimension. Rows travel as messages: the
// sender copies them out and goes on, the receiver waits for those who have what it lacks. Gradients of rows go the
// other way.
class RowExchange final : public torch::CustomClassHolder {
 public:
  // `needs` has for each part of the axis the rows that it needs, and is the same on all replicas.
  RowExchange(const Layout& layout, int64_t dim, const std::vector<Range>& needs);

  int64_t dim() const { return dim_; }
  const Range& own() const { return own_; }
  const Range& need() const { return need_; }
  bool sends() const { return !sends_.empty(); }
  bool receives() const { return !receives_.empty(); }

  // Sends the rows that others lack. `part` has the own rows.
  void send(const torch::Tensor& part) const;
  // Returns the rows within `rows` that others have sent, one after the other; undefined if there are none. Called for
  // ascending ranges, which together are all that is needed. `like` has the sizes in the other dimensions.
  torch::Tensor receive(const torch::Tensor& like, const Range& rows) const;
  // Sends the gradients of the rows within `rows` back; `gradient` begins with the row `first`.
  void send_back(const torch::Tensor& gradient, int64_t first, const Range& rows) const;
  // Adds the gradients of the rows that were sent to `sum`, which has the own rows.
  void add_returned(const torch::Tensor& sum) const;

 private:
  struct Message {
    int rank;
    Range rows;
  };
  void post(const torch::Tensor& rows, Peer to) const;
  torch::Tensor take(const torch::Tensor& like, const Message& from, int tag) const;

  Communicator* line_;
  int64_t dim_;
  Range own_, need_;
  std::vector<Message> sends_, receives_;
};

// Returns the rows needs[own part] of a dimension that is cut, from the parts that have them; needs has a range for
// each part of the axis, each between 0 and the dimension's size, and is the same on all replicas. `part` need not be
// all that layout says in its other dimensions. What other parts took adds its gradient. Nothing is sent where every
// part needs what it has.
torch::Tensor fetch(const torch::Tensor& part, const Layout& layout, int64_t dim, const std::vector<Range>& needs);

}  // namespace cohort::space
