#include "wings/ranking/models/experiments.h"

#include "cohort/models/ranking.h"

namespace cohort {

namespace {

// M. Naumov et al. (2019), with tables for the drawn clicks, on which Adagrad learns what a row's examples say.
ExperimentConfig dlrm_small() {
  auto task = std::make_shared<RankingTask>();
  task->builtin_data = "clicks";
  ExperimentConfig config{.task = task, .trainer = trainer_by_epochs()};
  config.trainer.train_epochs = 2;
  config.trainer.optimizer_config.optimizer.type = "adagrad";
  config.trainer.optimizer_config.optimizer.adagrad.initial_accumulator_value = 1e-8;
  config.trainer.optimizer_config.learning_rate.constant.learning_rate = 0.02;
  return config;
}

std::vector<Experiment> click_experiments() {
  return {{"dlrm_small", "a deep recommender (DLRM) on clicks in Criteo's format or drawn ones", dlrm_small}};
}

}  // namespace

std::vector<ExperimentGroup> ranking_experiments() {
  return {{.wing = "ranking", .place = 2, .make = click_experiments}};
}

std::vector<TaskKind> ranking_tasks() {
  return {{.name = "ranking", .place = 4, .make = []() -> std::shared_ptr<Task> {
             return std::make_shared<RankingTask>();
           }}};
}

}  // namespace cohort
