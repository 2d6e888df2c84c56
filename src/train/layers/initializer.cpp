// Initializers: each is a function that fills a tensor, given the fans of its layer. Names and defaults are Keras'.
#include "cohort/train/layers/initializer.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/fail.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

using Mode = VarianceScalingOptions::Mode;
using Distribution = VarianceScalingOptions::Distribution;

// Standard deviation of a unit normal that is cut off at two: what to divide by to get the one that was asked for.
constexpr double kCutOffDeviation = 0.87962566103423978;

// Fills with unit normal numbers, those beyond two deviations drawn again.
void cut_off_normal(torch::Tensor& parameter) {
  parameter.normal_();
  for (;;) {
    const torch::Tensor outside = parameter.abs() > 2.0;
    const auto count = outside.sum().item<int64_t>();
    if (count == 0) break;
    parameter.masked_scatter_(outside, torch::randn({count}, parameter.options().requires_grad(false)));
  }
}

void scaled_by_fans(torch::Tensor& parameter, const Fans& fans, const VarianceScalingOptions& options) {
  double count = fans.in;
  if (options.mode == Mode::kFanOut) count = fans.out;
  if (options.mode == Mode::kFanAvg) count = (fans.in + fans.out) / 2.0;
  const double variance = options.scale / std::max(1.0, count);
  switch (options.distribution) {
    case Distribution::kTruncatedNormal:
      cut_off_normal(parameter);
      parameter.mul_(std::sqrt(variance) / kCutOffDeviation);
      break;
    case Distribution::kUntruncatedNormal:
      parameter.normal_(0.0, std::sqrt(variance));
      break;
    case Distribution::kUniform: {
      const double limit = std::sqrt(3.0 * variance);
      parameter.uniform_(-limit, limit);
      break;
    }
  }
}

// The orthogonal part of a matrix of normal numbers, with the signs that make it unique (Mezzadri, 2007).
void make_orthogonal(torch::Tensor& parameter, double gain) {
  if (parameter.dim() < 2) {
    fail_option("Initializer", "orthogonal fills tensors of 2 dimensions or more, got ", parameter.sizes());
  }
  const int64_t rows = parameter.size(0);
  const int64_t columns = parameter.numel() / std::max<int64_t>(1, rows);
  const torch::Tensor normal =
      at::randn({std::max(rows, columns), std::min(rows, columns)}, at::TensorOptions(torch::kDouble));
  const auto [q, r] = at::linalg_qr(normal);
  const torch::Tensor unique = q * r.diagonal().sign();
  parameter.copy_((rows < columns ? unique.t() : unique).reshape(parameter.sizes()).mul(gain));
}

void make_identity(torch::Tensor& parameter, double gain) {
  if (parameter.dim() != 2) fail_option("Initializer", "identity fills matrices, got ", parameter.sizes());
  parameter.zero_();
  parameter.diagonal().fill_(gain);
}

struct InitializerName {
  std::string_view name;
  Initializer::Kind kind;
};

// "variance_scaling" and "constant" are made with their defaults by parse() itself.
constexpr std::array kInitializerNames = {
    InitializerName{"zeros", Initializer::kZeros},
    InitializerName{"ones", Initializer::kOnes},
    InitializerName{"glorot_uniform", Initializer::kGlorotUniform},
    InitializerName{"glorot_normal", Initializer::kGlorotNormal},
    InitializerName{"he_uniform", Initializer::kHeUniform},
    InitializerName{"he_normal", Initializer::kHeNormal},
    InitializerName{"lecun_uniform", Initializer::kLecunUniform},
    InitializerName{"lecun_normal", Initializer::kLecunNormal},
    InitializerName{"random_uniform", Initializer::kUniform},
    InitializerName{"uniform", Initializer::kUniform},
    InitializerName{"random_normal", Initializer::kNormal},
    InitializerName{"normal", Initializer::kNormal},
    InitializerName{"truncated_normal", Initializer::kTruncatedNormal},
    InitializerName{"orthogonal", Initializer::kOrthogonal},
    InitializerName{"identity", Initializer::kIdentity},
};

Initializer of_kind(Initializer::Kind kind) {
  const auto scaled = [](double scale, Mode mode, Distribution distribution) {
    return Initializer::variance_scaling({.scale = scale, .mode = mode, .distribution = distribution});
  };
  switch (kind) {
    case Initializer::kZeros:
      return Initializer::constant(0.0);
    case Initializer::kOnes:
      return Initializer::constant(1.0);
    case Initializer::kGlorotUniform:
      return scaled(1.0, Mode::kFanAvg, Distribution::kUniform);
    case Initializer::kGlorotNormal:
      return scaled(1.0, Mode::kFanAvg, Distribution::kTruncatedNormal);
    case Initializer::kHeUniform:
      return scaled(2.0, Mode::kFanIn, Distribution::kUniform);
    case Initializer::kHeNormal:
      return scaled(2.0, Mode::kFanIn, Distribution::kTruncatedNormal);
    case Initializer::kLecunUniform:
      return scaled(1.0, Mode::kFanIn, Distribution::kUniform);
    case Initializer::kLecunNormal:
      return scaled(1.0, Mode::kFanIn, Distribution::kTruncatedNormal);
    case Initializer::kUniform:
      return Initializer::random_uniform();
    case Initializer::kNormal:
      return Initializer::random_normal();
    case Initializer::kTruncatedNormal:
      return Initializer::truncated_normal();
    case Initializer::kOrthogonal:
      return Initializer::orthogonal();
    case Initializer::kIdentity:
      return Initializer::identity();
  }
  fail_option("Initializer", "there is no kind number ", static_cast<int>(kind));
}

}  // namespace

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char letter : name) {
    if (letter != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return plain;
}

Fans Fans::of_kernel(torch::IntArrayRef shape) {
  if (shape.empty()) return {};
  if (shape.size() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double field = 1.0;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) field *= static_cast<double>(shape[i]);
  return {field * static_cast<double>(shape[shape.size() - 2]), field * static_cast<double>(shape.back())};
}

Initializer::Initializer(Kind kind) : Initializer(of_kind(kind)) {}

Initializer::Initializer(Function function) {
  if (!function) fail_option("Initializer", "the function is empty");
  fill_ = [function = std::move(function)](torch::Tensor& parameter, const Fans& /*fans*/) { function(parameter); };
}

Initializer Initializer::parse(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "variancescaling") return variance_scaling();
  if (plain == "constant") return constant(0.0);
  std::string known = "variance_scaling, constant";
  for (const InitializerName& each : kInitializerNames) {
    if (plain_name(each.name) == plain) return each.kind;
    known.append(", ").append(each.name);
  }
  fail<NotFound>("[layers] there is no initializer \"", name, "\"; there are ", known);
}

Initializer Initializer::constant(double value) {
  return {{"constant", {value}}, [value](torch::Tensor& parameter, const Fans& /*fans*/) { parameter.fill_(value); }};
}

Initializer Initializer::random_uniform(double low, double high) {
  if (!(low <= high)) fail_option("Initializer", "random_uniform from ", low, " to ", high);
  return {{"random_uniform", {low, high}},
          [low, high](torch::Tensor& parameter, const Fans& /*fans*/) { parameter.uniform_(low, high); }};
}

Initializer Initializer::random_normal(const NormalOptions& options) {
  if (!(options.stddev >= 0.0)) fail_option("Initializer", "random_normal with the deviation ", options.stddev);
  return {{"random_normal", {options.mean, options.stddev}}, [options](torch::Tensor& parameter, const Fans& /*fans*/) {
            parameter.normal_(options.mean, options.stddev);
          }};
}

Initializer Initializer::truncated_normal(const NormalOptions& options) {
  if (!(options.stddev >= 0.0)) fail_option("Initializer", "truncated_normal with the deviation ", options.stddev);
  return {{"truncated_normal", {options.mean, options.stddev}},
          [options](torch::Tensor& parameter, const Fans& /*fans*/) {
            cut_off_normal(parameter);
            parameter.mul_(options.stddev).add_(options.mean);
          }};
}

Initializer Initializer::variance_scaling(const VarianceScalingOptions& options) {
  if (!(options.scale > 0.0)) fail_option("Initializer", "variance_scaling with the scale ", options.scale);
  return {{"variance_scaling",
           {options.scale, static_cast<double>(options.mode), static_cast<double>(options.distribution)}},
          [options](torch::Tensor& parameter, const Fans& fans) { scaled_by_fans(parameter, fans, options); }};
}

Initializer Initializer::orthogonal(double gain) {
  return {{"orthogonal", {gain}},
          [gain](torch::Tensor& parameter, const Fans& /*fans*/) { make_orthogonal(parameter, gain); }};
}

Initializer Initializer::identity(double gain) {
  return {{"identity", {gain}},
          [gain](torch::Tensor& parameter, const Fans& /*fans*/) { make_identity(parameter, gain); }};
}

void Initializer::fill(torch::Tensor parameter, const Fans& fans) const {
  const torch::NoGradGuard no_grad;
  fill_(parameter, fans);
}

}  // namespace cohort
