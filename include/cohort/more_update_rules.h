// Update rules beyond those of cohort/update_rules.h: Adadelta, Adamax, Nadam, FTRL, Lion, Adafactor, LAMB, LARS.
#pragma once

#include <string>
#include <vector>

#include "cohort/schedule.h"
#include "cohort/update_rules.h"

namespace cohort {

// s = rho * s + (1 - rho) * g^2; d = sqrt(u + epsilon) / sqrt(s + epsilon) * g; u = rho * u + (1 - rho) * d^2;
// p -= lr * d (Zeiler, 2012).
struct AdadeltaOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double rho = 0.95;                                        // decay of both means
  double epsilon = 1e-7;                                    // inside the roots
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// m as Adam's; u = max(beta_2 * u, |g|); p -= lr / (1 - beta_1^t) * m / (u + epsilon) (Kingma and Ba, 2015, section 7).
struct AdamaxOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;                                      // decay of the mean of the gradients
  double beta_2 = 0.999;                                    // decay of their largest magnitude
  double epsilon = 1e-7;                                    // added to that
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// Adam with Nesterov's momentum (Dozat, 2016): with u_t = beta_1 * (1 - 0.96^t / 2) and U_t = u_1 * ... * u_t,
// p -= lr * (u_(t+1) * m / (1 - U_(t+1)) + (1 - u_t) * g / (1 - U_t)) / (sqrt(v / (1 - beta_2^t)) + epsilon).
struct NadamOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;                                      // decay of the mean of the gradients
  double beta_2 = 0.999;                                    // decay of the mean of their squares
  double epsilon = 1e-7;                                    // added to the root of the squares
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// Follow the regularized leader (McMahan et al., "Ad Click Prediction", 2013). With q(x) = x^(-learning_rate_power) /
// lr: z += g + 2 * l2_shrinkage * p - (q(n + g^2) - q(n)) * p; n += g^2; p = (clip(z, -l1, l1) - z) / (q(n) + 2 * l2 +
// beta / lr). An update with a rate of 0 changes nothing.
struct FtrlOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double learning_rate_power = -0.5;                        // 0 or less
  double initial_accumulator_value = 0.1;                   // n starts at this
  double l1_regularization_strength = 0.0;                  // l1: small parameters become 0
  double l2_regularization_strength = 0.0;                  // l2
  double l2_shrinkage_regularization_strength = 0.0;        // l2_shrinkage: only where there are gradients
  double beta = 0.0;                                        // smoothes the rate at the beginning
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// p -= lr * sign(beta_1 * m + (1 - beta_1) * g); m = beta_2 * m + (1 - beta_2) * g (Chen et al., 2023).
struct LionOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;                                      // share of the mean in the step
  double beta_2 = 0.99;                                     // decay of the mean of the gradients
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// Adam's squares as the product of their means by row and by column, of the last two dimensions (Shazeer and Stern,
// 2018); of ranks below 2 as they are. Steps are scaled by the root mean square of the parameter, and the rate is at
// most 1 / sqrt(t), which is so in Keras whatever relative_step says.
struct AdafactorOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double beta_2_decay = -0.8;                               // the squares are averaged with beta_2 = 1 - t^beta_2_decay
  double epsilon_1 = 1e-30;                                 // added to the squares
  double epsilon_2 = 1e-3;                                  // the least scale of a step
  double clip_threshold = 1.0;                              // the largest root mean square of a step before the rate
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// m and v as Adam's; d = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon); p -= lr * |p| / |d| * d, with the
// norms of the whole parameter, and without their quotient where one is zero (You et al., "Large Batch Optimization for
// Deep Learning", 2020). kLegacy and kTorch add weight_decay * p to d, as the paper does.
struct LambOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;                                      // decay of the mean of the gradients
  double beta_2 = 0.999;                                    // decay of the mean of their squares
  double epsilon = 1e-7;                                    // added to the root of the squares
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  std::vector<std::string> exclude_from_layer_adaptation = {};  // no trust ratio; see adapts()
  GradientOptions gradient = {};                                // the changes to the gradient before the update
  EmaOptions ema = {};                                          // averages of the parameters
  Formulation formulation = Formulation::kKeras;                // the form of the rule
  bool master_weights = true;                                   // see Optimizer::master_weights()
};
// With d = g + weight_decay * p: r = trust_coefficient * |p| / |d|, 1 where a norm is zero; v = momentum * v +
// lr * r * d; p -= v (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017). Keras has no
// LARS: kKeras and kLegacy are Model Garden's. kTorch is the paper's, r = trust_coefficient * |p| /
// (|g| + weight_decay * |p| + epsilon).
struct LarsOptions {
  Schedule learning_rate = 0.1;     // lr in the formulas: a number or a schedule
  double momentum = 0.9;            // see above
  bool nesterov = false;            // p -= momentum * v + lr * r * d; needs momentum
  bool classic_momentum = true;     // false: v = momentum * v + d, r by |v|, p -= lr * r * v; not with kTorch
  double trust_coefficient = 1e-3;  // the norm of a step before the rate, as a part of the parameter's
  double epsilon = 1e-8;            // kTorch only
  double weight_decay = 0.0;        // share of the parameter that is added to the step
  std::vector<std::string> exclude_from_weight_decay = {};      // see Optimizer::decays()
  std::vector<std::string> exclude_from_layer_adaptation = {};  // no trust ratio; see adapts()
  GradientOptions gradient = {};                                // the changes to the gradient before the update
  EmaOptions ema = {};                                          // averages of the parameters
  Formulation formulation = Formulation::kKeras;                // the form of the rule
  bool master_weights = true;                                   // see Optimizer::master_weights()
};

// A step as large as those before, divided by the root of the mean of the squares; see AdadeltaOptions.
Optimizer Adadelta(const AdadeltaOptions& options = {});
// Adam with the largest magnitude in place of the squares.
Optimizer Adamax(const AdamaxOptions& options = {});
// Adam with Nesterov's momentum.
Optimizer Nadam(const NadamOptions& options = {});
// Follow the regularized leader; see FtrlOptions.
Optimizer Ftrl(const FtrlOptions& options = {});
// The sign of a mean of gradients.
Optimizer Lion(const LionOptions& options = {});
// Adam with factored squares. It has no update by rows, and a partitioner that would cut its variables is an error.
Optimizer Adafactor(const AdafactorOptions& options = {});
// Adam's step, scaled by the norm of each parameter: for large batches.
Optimizer LAMB(const LambOptions& options = {});
// Momentum, scaled by the norms of each parameter and its gradient: for large batches.
Optimizer LARS(const LarsOptions& options = {});

template <int = 0>
Optimizer Adadelta(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer Adamax(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer Nadam(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer Ftrl(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer Lion(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer Adafactor(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) =
    delete;
template <int = 0>
Optimizer LAMB(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer LARS(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;

}  // namespace cohort
