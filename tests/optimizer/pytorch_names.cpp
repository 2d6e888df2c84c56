// Does not compile, which CMakeLists.txt holds it to.
#include "cohort/update_rules.h"

using cohort::Adam, cohort::SGD;

const auto sgd = SGD({.lr = 0.1, .momentum = 0.9});
const auto adam = Adam({.lr = 1e-3, .betas = {0.9, 0.99}, .eps = 1e-8});
