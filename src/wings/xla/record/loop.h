// A Loop is several runs of one program, each of which takes what the run before has made, as one program: the body
// runs on the device as often as an input says. stablehlo/loop.h has its text, gathering.h makes it of single launches.
#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include "wings/xla/record/program.h"

namespace cohort::record {

// Where a run of the body has an input from.
struct Feed {
  enum class Kind {
    kCarried,   // the first run has an input of the loop, each later one an output of the run before
    kConstant,  // all runs have the same input of the loop
    kFresh,     // each run has an input of the loop for itself
  };
  Kind kind = Kind::kConstant;
  // The output of the body that a carried input is.
  int output = -1;

  bool operator==(const Feed&) const = default;
  bool operator<(const Feed& other) const { return std::tie(kind, output) < std::tie(other.kind, other.output); }
};

struct Loop {
  std::shared_ptr<const Program> body;
  // How many runs there is room for: the inputs of so many are given.
  int64_t most = 1;
  // One for each input of the body. What is carried has the type of its output.
  std::vector<Feed> feeds;
  // The outputs of the body whose value of every run is asked for, ascending.
  std::vector<int> kept;
};

// Returns the number of the loop's first input for each input of the body. A fresh one has `most` inputs in a row, any
// other one. The last input, behind all of these, is the number of runs: int64, without dimensions, 1 to `most`.
std::vector<int> inputs_of_loop(const Loop& loop);
// Returns how many inputs there are, with the number of runs.
int count_inputs(const Loop& loop);

// Makes the program, whose loop() is the loop. Its outputs are those of the body's last run and then, for each kept
// output, the values of the runs in their order; those of runs that did not take place are zero. An output takes the
// memory of the loop's input where it does so in the body and is carried there.
std::shared_ptr<const Program> make_loop(const Loop& loop);

}  // namespace cohort::record
