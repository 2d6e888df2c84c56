// Walks through the arguments and results of functions: tensors are put in the places of others, taken and given back.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/function.h"

namespace cohort::detail {

// Puts tensors into the places of those that are defined.
class Replacer final : public FunctionVisitor {
 public:
  explicit Replacer(const std::vector<torch::Tensor>& by) : by_(by) {}
  void tensor(torch::Tensor& tensor) override {
    if (tensor.defined()) tensor = by_.at(next_++);
  }
  void spec(const TensorSpec& /*spec*/, torch::Tensor& tensor) override { tensor = by_.at(next_++); }
  void value(std::string /*text*/) override {}
  void object(const void* /*address*/, std::shared_ptr<const void> /*keep*/) override {}

 private:
  const std::vector<torch::Tensor>& by_;
  std::size_t next_ = 0;
};

// Takes all tensors, undefined ones too, and leaves undefined ones.
class Taker final : public FunctionVisitor {
 public:
  void tensor(torch::Tensor& tensor) override {
    taken.push_back(std::move(tensor));
    tensor = torch::Tensor();
  }
  void spec(const TensorSpec& /*spec*/, torch::Tensor& /*tensor*/) override {}
  void value(std::string /*text*/) override {}
  void object(const void* /*address*/, std::shared_ptr<const void> /*keep*/) override {}

  std::vector<torch::Tensor> taken;
};

// Gives back what Taker took.
class Giver final : public FunctionVisitor {
 public:
  explicit Giver(std::vector<torch::Tensor> given) : given_(std::move(given)) {}
  void tensor(torch::Tensor& tensor) override { tensor = std::move(given_.at(next_++)); }
  void spec(const TensorSpec& /*spec*/, torch::Tensor& /*tensor*/) override {}
  void value(std::string /*text*/) override {}
  void object(const void* /*address*/, std::shared_ptr<const void> /*keep*/) override {}

 private:
  std::vector<torch::Tensor> given_;
  std::size_t next_ = 0;
};

// Puts a call's arguments back at its end.
class Substituted {
 public:
  Substituted(FunctionCall& call, const std::vector<torch::Tensor>& given, const std::vector<torch::Tensor>& by)
      : call_(call), given_(given) {
    Replacer replacer(by);
    call_.visit_arguments(replacer);
  }
  Substituted(const Substituted&) = delete;
  Substituted& operator=(const Substituted&) = delete;
  ~Substituted() {
    Replacer replacer(given_);
    call_.visit_arguments(replacer);
  }

 private:
  FunctionCall& call_;
  const std::vector<torch::Tensor>& given_;
};

// Says that a result required gradients, which do not flow out of what a function has recorded: who asks for them gets
// an Unimplemented that names the function.
void end_gradients(torch::Tensor& result, const std::string& name, torch::Device device);

}  // namespace cohort::detail
