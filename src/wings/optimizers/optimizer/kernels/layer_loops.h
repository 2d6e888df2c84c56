// The updates of layers (LAMB and LARS): whole parameters whose steps depend on their norms. A block of a card takes a
// part of a layer; norms are added up in an order that the sizes alone decide, and stay in the memory of the kernels.
#pragma once

#include "optimizer/kernels/half.h"
#include "wings/optimizers/optimizer/kernels/layer_steps.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

// Returns the ratio for the squared norms of a parameter and its direction. A NaN stays.
COHORT_ON_DEVICE inline double trust_ratio(const double* norms, const TrustArgs& args) {
  if (norms[0] == 0.0 || norms[1] == 0.0) return 1.0;
  const double weights = root(norms[0]);
  const double length = root(norms[1]);
  return args.coefficient * weights / (length + args.decay * weights + args.epsilon);
}

// Leaves the norms of the parts. The step gets copies of the slots and stores nothing.
template <typename Step, typename P>
COHORT_LOOP layer_norms_loop(int64_t parts, LayerMemory<P, typename Step::Number> at, Layers layers,
                             LayerArgs<typename Step::Args> args) {
  using T = typename Step::Number;
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(row, parts) {
    const int64_t number = layers.first_part + row;
    const LayerPart part = layers.all_parts[number];
    const int decays = layers.all[part.layer].decays != 0 ? 1 : 0;
    const CommonArgs in = now(args.in[decays]);
    const Reader<T, true> read(in);
    const Surrounding<T, false> around(in);
    const Step step(now(in, args.rule[decays]), 1.0);
    RowSum weights;
    RowSum lengths;
    COHORT_EACH_IN_ROW(e, part.size) {
      const int64_t i = part.begin - layers.origin + e;
      T none = T(0);
      const T x = around.before(weight_at(at.p, i, in), none);
      T slot_a = at.slots[0][i];
      T slot_b = Step::kSlots > 1 ? at.slots[1][i] : T(0);
      const auto direction = static_cast<double>(step.direction(x, read(widen(at.g[i]), x), slot_a, slot_b));
      const auto weight = static_cast<double>(x);
      weights.add(e, weight * weight);
      lengths.add(e, direction * direction);
    }
    const double weight = weights.total();
    const double length = lengths.total();
    COHORT_ONCE {
      layers.part_norms[2 * number] = weight;
      layers.part_norms[2 * number + 1] = length;
    }
  }
}

// Adds the norms of the parts up.
COHORT_LOOP add_norms_loop(int64_t count, Layers layers) {
  COHORT_EACH_ROW(row, count) {
    const int64_t number = layers.first + row;
    const LayerShape layer = layers.all[number];
    RowSum weights;
    RowSum lengths;
    COHORT_EACH_IN_ROW(e, layer.parts) {
      const double* part = layers.part_norms + 2 * (layer.first_part + e);
      weights.add(e, part[0]);
      lengths.add(e, part[1]);
    }
    const double weight = weights.total();
    const double length = lengths.total();
    COHORT_ONCE {
      layers.norms[2 * number] = weight;
      layers.norms[2 * number + 1] = length;
    }
  }
}

// Updates the parameters by the norms of their layers.
template <typename Step, typename P, bool kAverages>
COHORT_LOOP layer_update_loop(int64_t parts, LayerMemory<P, typename Step::Number> at, Layers layers,
                              LayerArgs<typename Step::Args> args) {
  using T = typename Step::Number;
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(row, parts) {
    const LayerPart part = layers.all_parts[layers.first_part + row];
    const LayerShape layer = layers.all[part.layer];
    const int decays = layer.decays != 0 ? 1 : 0;
    const double ratio = layer.adapts != 0 ? trust_ratio(layers.norms + 2 * part.layer, args.trust) : 1.0;
    const CommonArgs in = now(args.in[decays]);
    const Reader<T, true> read(in);
    const Surrounding<T, kAverages> around(in);
    const Step step(now(in, args.rule[decays]), ratio);
    T* const average = static_cast<T*>(in.average);
    COHORT_EACH_IN_ROW(e, part.size) {
      const int64_t i = part.begin - layers.origin + e;
      T mean = kAverages ? average[i] : T(0);
      T x = around.before(weight_at(at.p, i, in), mean);
      T slot_a = at.slots[0][i];
      T slot_b = Step::kSlots > 1 ? at.slots[1][i] : T(0);
      T unused = T(0);
      step(x, read(widen(at.g[i]), x), slot_a, slot_b, unused);
      at.slots[0][i] = slot_a;
      if constexpr (Step::kSlots > 1) at.slots[1][i] = slot_b;
      around.after(x, mean);
      store_at(kAverages && in.overwrite ? mean : x, at.p, i, in);
      if constexpr (kAverages) average[i] = mean;
    }
  }
}

template <typename Step, typename P, typename T>
void find_norms(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<typename Step::Args>& args) {
  run_lanes<layer_norms_loop<Step, P>>(layers.parts, at, layers, args);
}

inline void add_norms(const Layers& layers) {
  run_lanes<add_norms_loop>(layers.count, layers);
}

template <typename Step, typename P, typename T>
void update_layers(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<typename Step::Args>& args) {
  return args.in[0].average != nullptr ? run_lanes<layer_update_loop<Step, P, true>>(layers.parts, at, layers, args)
                                       : run_lanes<layer_update_loop<Step, P, false>>(layers.parts, at, layers, args);
}

template <typename P, typename T>
void lars_norms(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LarsArgs>& args) {
  return args.rule[0].classic ? find_norms<LarsStep<T, false>>(at, layers, args)
                              : find_norms<LarsVelocityStep<T>>(at, layers, args);
}

template <typename P, typename T>
void lars_layers(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LarsArgs>& args) {
  if (!args.rule[0].classic) return update_layers<LarsVelocityStep<T>>(at, layers, args);
  return args.rule[0].nesterov ? update_layers<LarsStep<T, true>>(at, layers, args)
                               : update_layers<LarsStep<T, false>>(at, layers, args);
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
