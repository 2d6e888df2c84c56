// Small data of every kind that the experiments read, the same in every run.
#pragma once

#include <filesystem>

namespace cohort::testing {

// A folder for each of two classes, with ten PNG files of noise each. The folder's name decides about the noise.
void make_photographs(const std::filesystem::path& folder);
// Cuts the end of one of these files off.
void spoil_a_photograph(const std::filesystem::path& folder);
// Photographs with masks of four classes.
void make_scenes(const std::filesystem::path& folder);
// The four files of MNIST, with 16 and 4 images.
void make_digits(const std::filesystem::path& folder);
// Two files of text, .txt and .md.
void make_writings(const std::filesystem::path& folder);
// A file of 47 lines in Criteo's format.
void make_clicks(const std::filesystem::path& folder);

}  // namespace cohort::testing
