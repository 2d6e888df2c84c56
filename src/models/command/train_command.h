// What `cohort train` and train_main() are made of.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace cohort {

// The call was wrong, as opposed to: the run failed.
constexpr int kWrongCall = 2;

// Adds the flags of a training to `app`; what it returns trains, and gives the exit status.
std::function<int()> add_train_flags(CLI::App& app);

// That of a command: what it returns, or what stands for what it throws, which is told on standard error.
int exit_status(const std::function<int()>& command);

}  // namespace cohort
