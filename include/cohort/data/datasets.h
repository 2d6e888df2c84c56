// Ready-made datasets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cohort/data/decode_options.h"
#include "cohort/dataset.h"

namespace cohort {

// Parses an IDX file (Y. LeCun's format of MNIST), gzipped or plain, whichever it is: a tensor of the file's shape and
// dtype. NotFound: no such file. DataLoss: truncated, corrupt, or with bytes left over; the message names the file and
// the offset.
torch::Tensor read_idx(const std::filesystem::path& file);

namespace datasets {

// Data to train on and data to test with.
struct TrainTest {
  Dataset train;  // the data to learn from
  Dataset test;   // the data to test with
};

// Reads MNIST from its four files in a folder (train-images-idx3-ubyte and so on, also with ".gz" or with '.' before
// "idx"). x: float32 [28, 28] in [0, 1]; y: int64 scalar, 0 to 9.
TrainTest mnist(const std::filesystem::path& folder);

// Reads CIFAR-10 from the files of its binary version (data_batch_1.bin to data_batch_5.bin, test_batch.bin; A.
// Krizhevsky, 2009), in the folder or in its cifar-10-batches-bin. x: uint8 [3, 32, 32]; y: int64 scalar, 0 to 9.
// NotFound: a file is missing; DataLoss: one is of another size or has another label.
TrainTest cifar10(const std::filesystem::path& folder);

struct DrawnDigitsOptions {
  int64_t train_size = 20'000;  // digits in `train`
  int64_t test_size = 4'000;    // digits in `test`
  uint64_t seed = 1;            // other seeds draw other digits
};

// Makes digits drawn by code, shaped as MNIST's: strokes under random affine maps, of random thickness and wobble, with
// noise and stray marks. The same for the same seed. A linear classifier stays under 95% on them.
TrainTest drawn_digits(const DrawnDigitsOptions& options = {});

struct DrawnShapesOptions {
  int64_t train_size = 2'000;  // pictures in `train`
  int64_t test_size = 400;     // pictures in `test`
  int64_t height = 64;         // height of a picture in pixels, 1 to 4096
  int64_t width = 64;          // width of a picture in pixels, 1 to 4096
  uint64_t seed = 1;           // other seeds draw other pictures
};

// Makes pictures for segmentation, drawn by code: discs, rectangles and triangles of random size, direction and colour
// that cover each other, on a ground with lines and noise. The same for the same seed, on every machine. x: uint8 [3,
// height, width]; y: int64 [height, width], the class of each pixel: 0 ground, 1 disc, 2 rectangle, 3 triangle.
// InvalidArgument: a size that is out of range.
TrainTest drawn_shapes(const DrawnShapesOptions& options = {});

struct ImageFolderOptions {
  DecodeOptions decode = {};  // the decoding of a file
  MapOptions threads = {};    // the threads that read and decode
  // The part of the files, of all classes together, that is held out as `test`; `seed` chooses which.
  double held_out = 0.0;
  uint64_t seed = 0;  // chooses what is held out, and the order of the files
  // Training files come in another order each epoch, by `seed`; without, by class and name.
  bool shuffle = true;
  // A damaged file is left out, with a warning that counts them, instead of being an error; so is what only has the
  // name of a picture: a folder, a link to nowhere, a file of impossible size.
  bool skip_damaged = false;
  // The classes in the order of their numbers, such as those of the data that a model was trained with: the labels of
  // another folder then mean the same, even if it lacks a class. Empty: the names of the folders, sorted.
  std::vector<std::string> class_names = {};
};

// The result of image_folder().
struct ImageFolder {
  Dataset train;                         // the examples that are not held out
  Dataset test;                          // the examples that are held out, by class and name
  std::vector<std::string> class_names;  // the names of the classes; an example's y is an index into them
};

// Reads JPEG and PNG files in a folder for each class, and in the folders of that folder. The names of the classes,
// sorted, give them their numbers. Leaves out hidden files and folders, whose names begin with a dot, links to folders
// within a class, and folders without pictures. x: uint8 [channels, height, width], of the sizes that the files have:
// resize them before batch(); y: int64 scalar. NotFound: there is no folder with images; InvalidArgument: held_out is
// not in [0, 1), a folder is not among class_names, or the folders are parts of a data set ("train" and "val") and not
// classes. Reading: DataLoss names the file, and InvalidArgument one that is larger than decode.most_pixels. Workers
// that share the work read different files.
ImageFolder image_folder(const std::filesystem::path& folder, const ImageFolderOptions& options = {});

struct SegmentationFolderOptions {
  DecodeOptions decode = {};  // the decoding of a picture; at_least has to be 0, upright does not count
  MapOptions threads = {};    // the threads that read and decode
  double held_out = 0.0;      // the part of the pictures that is held out as `test`; `seed` chooses which
  uint64_t seed = 0;          // chooses what is held out
};

// Reads pictures with masks, by name: the JPEG and PNG files of `folder`/images and of the folders in it, and for each
// of them the PNG file of the same name in `folder`/masks, whose grey values are the classes of the pixels: the mask of
// images/a/b.jpg is masks/a/b.png. Leaves out what image_folder() leaves out. x: uint8 [channels, height, width], as
// the files' pixels lie, of the sizes that the files have; y: int64 [height, width]. NotFound: there are no pictures,
// or one has no mask; InvalidArgument: held_out is not in [0, 1). Reading: DataLoss names a damaged file, and
// InvalidArgument a mask that is in colour or of another size than its picture. Workers that share the work read
// different files.
TrainTest segmentation_folder(const std::filesystem::path& folder, const SegmentationFolderOptions& options = {});

struct TextOptions {
  int64_t seq_length = 128;                // bytes of an example
  std::vector<std::string> suffixes = {};  // ends of the names that are read, such as ".txt"; empty: any
  double held_out = 0.0;                   // the part of the examples that is held out as `test`; `seed` chooses which
  uint64_t seed = 0;                       // chooses what is held out
};

// Reads text for a language model: a file, or all files of a folder and its folders, by name, with a zero byte after
// each. x: uint8 [seq_length], bytes one after the other; y: uint8 [seq_length], the byte that follows each. Examples
// follow each other without a gap; what is left at the end is left out. Of a folder, links, names that begin with a dot
// and, without suffixes, files with a zero byte among their first 8,192 bytes, which are no text, are left out. The
// text is held in memory. NotFound: there is no text; InvalidArgument: an option is out of range, or the text has no
// seq_length + 1 bytes; Unavailable: a file cannot be read.
TrainTest text(const std::filesystem::path& place, const TextOptions& options = {});

struct DrawnSumsOptions {
  int64_t seq_length = 128;    // bytes of an example
  int64_t train_size = 8'000;  // examples in `train`
  int64_t test_size = 1'000;   // examples in `test`
  uint64_t seed = 1;           // other seeds draw other sums
};

// Makes text for a language model: lines such as "387+45=432" with two numbers below 1,000 each. x and y are those of
// text(). The same for the same seed. Nobody can foretell the two numbers: the cross-entropy cannot fall below 1.13 a
// byte, on average.
TrainTest drawn_sums(const DrawnSumsOptions& options = {});

struct CriteoOptions {
  double held_out = 0.0;  // the part of the lines that is held out as `test`; `seed` chooses which
  uint64_t seed = 0;      // chooses what is held out
};

// Reads clicks in the format of Criteo's data sets: a file, or all files of a folder, by name. A line has 40 fields
// with tabs between them: a label, 0 or 1, 13 whole numbers, and 26 categories as hexadecimal numbers of up to 8
// digits; all but the label may be empty. inputs: dense_features, float32 [13], 0 where there is none, and
// sparse_features, int64 [26], -1 where there is none; y: float32 scalar, the label. All lines are held in memory, 264
// bytes each, and twice that where a part is held out. NotFound: there is no such file, or no line; InvalidArgument:
// held_out is not in [0, 1); DataLoss names the file and the line of what is none; Unavailable: a file cannot be read.
TrainTest criteo(const std::filesystem::path& place, const CriteoOptions& options = {});

struct DrawnClicksOptions {
  int64_t train_size = 200'000;  // examples in `train`
  int64_t test_size = 20'000;    // examples in `test`
  uint64_t seed = 1;             // other seeds draw other clicks by the same rule
};

// Makes clicks with the columns of criteo(), drawn by code: the chance of a label of 1 comes of hidden numbers of all
// columns, and of products of the hidden numbers of six pairs of categories, each of which has 200 values. The same
// for the same seed. With the hidden numbers known the area under the curve of `test` is 0.898 (seed 1).
TrainTest drawn_clicks(const DrawnClicksOptions& options = {});

}  // namespace datasets

}  // namespace cohort
