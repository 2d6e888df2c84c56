// Files of pictures in a folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cohort/data/datasets.h"

namespace cohort::datasets {

// Returns whether the name is that of a JPEG or PNG file.
bool is_picture(const std::filesystem::path& file);

// Returns what is in a folder, by name. NotFound: it cannot be listed.
std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder);

// Returns whether the name begins with a dot.
bool is_hidden(const std::filesystem::path& entry);

// Returns the pictures of a folder and of the folders in it, those of a folder before those of its folders, by name.
// Leaves out hidden files and folders, and links to folders. NotFound: a folder cannot be listed.
std::vector<std::filesystem::path> pictures_in(const std::filesystem::path& folder);

// Returns the bytes of a file that can be a picture. DataLoss: it is a folder, a pipe, a dangling link, or far too
// large.
std::string read_picture(const std::filesystem::path& file, const DecodeOptions& decode);

// The numbers of the files to train and to test with, each in ascending order.
struct HeldOut {
  torch::Tensor train;
  torch::Tensor test;
};
// Draws a part of `count` files to hold out.
HeldOut hold_out(int64_t count, double part, uint64_t seed);
// InvalidArgument names `speaker`: the part is not in [0, 1).
void require_held_out(const char* speaker, double part);

}  // namespace cohort::datasets
