// What all parties compute from the same numbers comes out as the same bits on all of them, whatever their processors:
// first factors are made orthonormal by loops over doubles in a fixed order, which take a pointer into a CPU tensor,
// and products of the factors are multiplied and added element by element.
#include "wings/comm_hooks/step/power_sgd.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"

namespace cohort {

namespace {

// What is added to a matrix's stream of random numbers for rows of its factors that depend on those before.
constexpr uint64_t kFirst = 1;
constexpr uint64_t kSecond = 129;

// Returns the number of this place in a stream of random bits (Steele, Lea and Flood, "Fast Splittable Pseudorandom
// Number Generators", 2014), in [-1, 1).
double draw(uint64_t stream, uint64_t place) {
  uint64_t bits = stream + (place + 1) * 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return static_cast<double>((bits ^ (bits >> 31)) >> 11) * 0x1p-52 - 1.0;
}

void fill(double* values, int64_t count, uint64_t stream) {
  for (int64_t i = 0; i < count; ++i) values[i] = draw(stream, static_cast<uint64_t>(i));
}

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Makes the rows of a matrix orthonormal by Gram and Schmidt's process, done twice. A row that depends on those before
// is replaced by a drawn one, so that a direction that was not there in one step can be found in the next.
void make_orthonormal(double* rows, int64_t count, int64_t size, uint64_t stream) {
  for (int64_t k = 0; k < count; ++k) {
    double* const own = rows + k * size;
    for (uint64_t attempt = 0;; ++attempt) {
      const double before = std::sqrt(dot(own, own, size));
      if (!std::isfinite(before)) break;  // the gradient is not, and neither shall the sum be
      for (int64_t j = 0; j < 2 * k; ++j) {
        const double* const other = rows + (j % k) * size;
        const double along = dot(own, other, size);
        for (int64_t i = 0; i < size; ++i) own[i] -= along * other[i];
      }
      const double after = std::sqrt(dot(own, own, size));
      if (!std::isfinite(after)) break;  // one of the rows before is not
      if (after > 1e-12 * before) {
        for (int64_t i = 0; i < size; ++i) own[i] /= after;
        break;
      }
      fill(own, size, stream + static_cast<uint64_t>(k) + (attempt << 32));
    }
  }
}

torch::Tensor orthonormal(const torch::Tensor& factor, uint64_t stream) {
  torch::Tensor rows = factor.t().to(torch::kCPU, torch::kDouble).contiguous();
  make_orthonormal(rows.data_ptr<double>(), rows.size(0), rows.size(1), stream);
  return rows.t().to(factor.device(), factor.scalar_type());
}

// Returns first * second^T, added up column by column.
torch::Tensor product(const torch::Tensor& first, const torch::Tensor& second) {
  torch::Tensor sum = first.narrow(1, 0, 1) * second.narrow(1, 0, 1).t();
  for (int64_t k = 1; k < first.size(1); ++k) sum += first.narrow(1, k, 1) * second.narrow(1, k, 1).t();
  return sum;
}

// Sums tensors over the ranks in one message.
std::vector<torch::Tensor> sums_of(Communicator& group, const std::vector<torch::Tensor>& parts) {
  if (parts.empty()) return {};
  std::vector<torch::Tensor> flat;
  std::vector<int64_t> sizes;
  for (const torch::Tensor& part : parts) {
    flat.push_back(part.reshape({-1}));
    sizes.push_back(part.numel());
  }
  torch::Tensor message = at::cat(flat);
  group.all_reduce({&message, 1}, ReduceOp::kSum);
  std::vector<torch::Tensor> sums = message.split_with_sizes(sizes);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i].view(parts[i].sizes());
  return sums;
}

}  // namespace

PowerSgd::PowerSgd(const FlatParameters& flat, const PowerSgdOptions& options, int local_id)
    : flat_(flat), options_(options), local_id_(local_id) {
  const std::vector<std::string>& names = flat.all_names();
  for (const FlatGroup& group : flat.groups()) {
    Members& members = groups_.emplace_back();
    for (const std::size_t p : group.members) {
      const FlatParameter& parameter = flat.parameters()[p];
      const int64_t rows = parameter.shape.size() < 2 || parameter.size == 0 ? 1 : parameter.shape[0];
      const int64_t columns = parameter.size / rows;
      const int64_t rank = std::min({options.matrix_approximation_rank, rows, columns});
      const auto factors = static_cast<double>((rows + columns) * rank);
      const bool pays = factors * options.min_compression_rate < static_cast<double>(parameter.size);
      if (rows == 1 || columns == 1 || !pays) {
        members.others.push_back(p);
      } else {
        const auto number = std::find(names.begin(), names.end(), parameter.name) - names.begin();
        members.matrices.push_back({.parameter = p,
                                    .number = static_cast<std::size_t>(number),
                                    .rows = rows,
                                    .columns = columns,
                                    .rank = rank});
      }
    }
  }
}

void PowerSgd::sum(Communicator& group, const std::vector<torch::Tensor>& gradients, int64_t update) {
  for (std::size_t g = 0; g < groups_.size(); ++g) sum_group(group, groups_[g], gradients[g], update);
}

// Returns the second factor that a step begins with: that of the step before, or drawn numbers.
torch::Tensor PowerSgd::begin(const Matrix& matrix, const torch::Tensor& like, int64_t update) const {
  if (options_.warm_start && matrix.second.defined()) return matrix.second;
  torch::Tensor drawn = torch::empty({matrix.columns, matrix.rank}, torch::kDouble);
  const auto step = options_.warm_start ? uint64_t{0} : static_cast<uint64_t>(update);
  fill(drawn.data_ptr<double>(), drawn.numel(), (matrix.number << 40) + (step << 8));
  return drawn.to(like.device(), like.scalar_type());
}

void PowerSgd::sum_group(Communicator& group, Members& members, const torch::Tensor& gradients, int64_t update) {
  const torch::ScalarType dtype = sum_dtype(gradients.scalar_type());
  std::vector<torch::Tensor> wholes;  // the gradients of the matrices, with what earlier ones have lost
  std::vector<torch::Tensor> parts;
  for (const std::size_t p : members.others) parts.push_back(flat_.part_of(gradients, p).to(dtype));
  for (const Matrix& matrix : members.matrices) {
    const torch::Tensor own = flat_.part_of(gradients, matrix.parameter).to(dtype);
    torch::Tensor whole = own.reshape({matrix.rows, matrix.columns});
    if (matrix.error.defined()) whole = whole + matrix.error;
    parts.push_back(whole.mm(begin(matrix, whole, update)));
    wholes.push_back(whole);
  }
  parts = sums_of(group, parts);
  for (const std::size_t p : members.others) {
    flat_.part_of(gradients, p).copy_(parts.front());
    parts.erase(parts.begin());
  }
  std::vector<torch::Tensor> seconds;
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    parts[i] = orthonormal(parts[i], (members.matrices[i].number << 40) + kFirst);
    seconds.push_back(wholes[i].t().mm(parts[i]));
  }
  seconds = sums_of(group, seconds);
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    Matrix& matrix = members.matrices[i];
    const torch::Tensor sum = product(parts[i], seconds[i]);
    if (options_.use_error_feedback) matrix.error = wholes[i] - sum / group.size();
    // The first factors of the next step have the size of its gradients, whatever the size of these.
    if (options_.warm_start) matrix.second = orthonormal(seconds[i], (matrix.number << 40) + kSecond);
    torch::Tensor home = flat_.part_of(gradients, matrix.parameter);
    home.copy_(sum.view(home.sizes()));
  }
}

std::vector<torch::Tensor> PowerSgd::state() const {
  std::vector<torch::Tensor> list(2 * flat_.all_names().size(), torch::empty({0}));
  for (const Members& members : groups_) {
    for (const Matrix& matrix : members.matrices) {
      for (const auto& [own, place] : {std::pair(matrix.second, 0), std::pair(matrix.error, 1)}) {
        if (own.defined()) list[2 * matrix.number + place] = own.to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
      }
    }
  }
  return list;
}

void PowerSgd::load(std::span<const torch::Tensor> state) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const torch::Tensor& copy = flat_.groups()[g].copies[static_cast<std::size_t>(local_id_)];
    const auto options = copy.options().dtype(sum_dtype(copy.scalar_type()));
    for (Matrix& matrix : groups_[g].matrices) {
      const auto take = [&](std::size_t place, bool wanted, int64_t rows, int64_t columns) {
        const torch::Tensor& given = state[2 * matrix.number + place];
        if (given.numel() == 0) return torch::Tensor();
        if (!wanted || given.sizes() != at::IntArrayRef({rows, columns})) {
          fail<InvalidArgument>("[optimizer] load_accumulated: the ", place == 0 ? "factor" : "error",
                                " of gradient_compression power_sgd for ", flat_.parameters()[matrix.parameter].name,
                                " has shape ", given.sizes(), ", wanted ",
                                wanted ? c10::str(at::IntArrayRef({rows, columns})) : std::string("none"));
        }
        return given.to(options, /*non_blocking=*/false, /*copy=*/true);
      };
      matrix.second = take(0, options_.warm_start, matrix.columns, matrix.rank);
      matrix.error = take(1, options_.use_error_feedback, matrix.rows, matrix.columns);
    }
  }
}

void PowerSgd::forget() {
  for (Members& members : groups_) {
    for (Matrix& matrix : members.matrices) {
      matrix.second = torch::Tensor();
      matrix.error = torch::Tensor();
    }
  }
}

}  // namespace cohort
