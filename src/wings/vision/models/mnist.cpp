#include "wings/vision/models/mnist.h"

namespace cohort {

Sequential mnist_mlp(int64_t num_classes) {
  return Sequential({Flatten(), Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(num_classes)},
                    {.name = "mnist_mlp"});
}

Sequential mnist_cnn(int64_t num_classes) {
  return Sequential({Conv2D({.filters = 32, .kernel_size = 3, .activation = Activation::kRelu}),
                     Conv2D({.filters = 64, .kernel_size = 3, .activation = Activation::kRelu}),
                     MaxPooling2D({.pool_size = 2}), Flatten(), Dense(64, Activation::kRelu), Dense(num_classes)},
                    {.name = "mnist_cnn"});
}

}  // namespace cohort
