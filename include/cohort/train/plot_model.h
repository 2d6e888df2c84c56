// Pictures of models: graphs in Graphviz's language DOT, as keras.utils.model_to_dot and plot_model make them.
//
//   plot_model(model, "model.svg", {.show_shapes = true});
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "cohort/train/model.h"

namespace cohort {

struct PlotOptions {
  bool show_shapes = false;                             // the shapes of inputs and outputs, with the batch as None
  std::optional<bool> show_layer_names = std::nullopt;  // unset: model_to_dot() shows them, plot_model() does not
  std::string rankdir = "TB";                           // the direction of the edges: "TB", "BT", "LR" or "RL"
  bool expand_nested = false;                           // draws the layers of nested models in a box each
  int64_t dpi = 200;                                    // the resolution of pixels, in dots per inch
  bool show_layer_activations = false;                  // the activations of layers that have one
  bool show_trainable = false;                          // the layers with weights that learn, and those that do not
  std::string splines = "ortho";  // the form of the edges: "ortho", "curved", "polyline", "spline" or "line"
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // the longest time that the program dot may take
};

// Returns the graph of a model as a text in DOT. A model over a module is one node. InvalidArgument: an option has
// another value than those above. FailedPrecondition: the model is not built.
std::string model_to_dot(const Model& model, const PlotOptions& options = {});

// Writes the graph to a file: a picture if its name ends in .png, .svg or .pdf, PNG if it has no ending, or a text in
// DOT (.dot, .gv). Graphviz's program dot draws the pictures. Errors are those of model_to_dot(), and InvalidArgument:
// another ending. FailedPrecondition: there is no program dot, or it fails. DeadlineExceeded: it takes too long.
// Unavailable, NotFound: the file cannot be written.
void plot_model(const Model& model, const std::filesystem::path& file = "model.png", const PlotOptions& options = {});

}  // namespace cohort
