#include "models/experiment.h"

#include "base/fail.h"
#include "models/mnist.h"

namespace cohort {

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> table = {
      {.name = "mnist_mlp",
       .description = "dense 256, 128, 10 on MNIST or drawn digits",
       .epochs = 5,
       .batch_size = 128,
       .model = mnist_mlp,
       .compile = mnist_compile,
       .data = digits},
      {.name = "mnist_cnn",
       .description = "two convolutions and two dense layers on MNIST or drawn digits",
       .epochs = 5,
       .batch_size = 128,
       .model = mnist_cnn,
       .compile = mnist_compile,
       .data = digits},
  };
  return table;
}

const Experiment& find_experiment(std::string_view name) {
  std::string known;
  for (const Experiment& experiment : experiments()) {
    if (experiment.name == name) return experiment;
    known += c10::str(known.empty() ? "" : ", ", experiment.name);
  }
  fail<NotFound>("[train] there is no experiment \"", name, "\"; there are ", known);
}

}  // namespace cohort
