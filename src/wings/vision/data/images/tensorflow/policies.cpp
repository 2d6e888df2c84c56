// The policies that were searched for in E. Cubuk et al., "AutoAugment" (2019), and Model Garden's further ones: pairs
// (or threes) of operation, probability and level.
#include "wings/vision/data/images/tensorflow/policies.h"

#include <utility>

#include "base/fail.h"

namespace cohort::augment {

namespace {

std::vector<SubPolicy> imagenet_v0() {
  return {
      {{"Equalize", 0.8, 1}, {"ShearY", 0.8, 4}},        {{"Color", 0.4, 9}, {"Equalize", 0.6, 3}},
      {{"Color", 0.4, 1}, {"Rotate", 0.6, 8}},           {{"Solarize", 0.8, 3}, {"Equalize", 0.4, 7}},
      {{"Solarize", 0.4, 2}, {"Solarize", 0.6, 2}},      {{"Color", 0.2, 0}, {"Equalize", 0.8, 8}},
      {{"Equalize", 0.4, 8}, {"SolarizeAdd", 0.8, 3}},   {{"ShearX", 0.2, 9}, {"Rotate", 0.6, 8}},
      {{"Color", 0.6, 1}, {"Equalize", 1.0, 2}},         {{"Invert", 0.4, 9}, {"Rotate", 0.6, 0}},
      {{"Equalize", 1.0, 9}, {"ShearY", 0.6, 3}},        {{"Color", 0.4, 7}, {"Equalize", 0.6, 0}},
      {{"Posterize", 0.4, 6}, {"AutoContrast", 0.4, 7}}, {{"Solarize", 0.6, 8}, {"Color", 0.6, 9}},
      {{"Solarize", 0.2, 4}, {"Rotate", 0.8, 9}},        {{"Rotate", 1.0, 7}, {"TranslateY", 0.8, 9}},
      {{"ShearX", 0.0, 0}, {"Solarize", 0.8, 4}},        {{"ShearY", 0.8, 0}, {"Color", 0.6, 4}},
      {{"Color", 1.0, 0}, {"Rotate", 0.6, 2}},           {{"Equalize", 0.8, 4}, {"Equalize", 0.0, 8}},
      {{"Equalize", 1.0, 4}, {"AutoContrast", 0.6, 2}},  {{"ShearY", 0.4, 7}, {"SolarizeAdd", 0.6, 7}},
      {{"Posterize", 0.8, 2}, {"Solarize", 0.6, 10}},    {{"Solarize", 0.6, 8}, {"Equalize", 0.6, 1}},
      {{"Color", 0.8, 6}, {"Rotate", 0.4, 5}},
  };
}

std::vector<SubPolicy> reduced_cifar10() {
  return {
      {{"Invert", 0.1, 7}, {"Contrast", 0.2, 6}},         {{"Rotate", 0.7, 2}, {"TranslateX", 0.3, 9}},
      {{"Sharpness", 0.8, 1}, {"Sharpness", 0.9, 3}},     {{"ShearY", 0.5, 8}, {"TranslateY", 0.7, 9}},
      {{"AutoContrast", 0.5, 8}, {"Equalize", 0.9, 2}},   {{"ShearY", 0.2, 7}, {"Posterize", 0.3, 7}},
      {{"Color", 0.4, 3}, {"Brightness", 0.6, 7}},        {{"Sharpness", 0.3, 9}, {"Brightness", 0.7, 9}},
      {{"Equalize", 0.6, 5}, {"Equalize", 0.5, 1}},       {{"Contrast", 0.6, 7}, {"Sharpness", 0.6, 5}},
      {{"Color", 0.7, 7}, {"TranslateX", 0.5, 8}},        {{"Equalize", 0.3, 7}, {"AutoContrast", 0.4, 8}},
      {{"TranslateY", 0.4, 3}, {"Sharpness", 0.2, 6}},    {{"Brightness", 0.9, 6}, {"Color", 0.2, 8}},
      {{"Solarize", 0.5, 2}, {"Invert", 0.0, 3}},         {{"Equalize", 0.2, 0}, {"AutoContrast", 0.6, 0}},
      {{"Equalize", 0.2, 8}, {"Equalize", 0.6, 4}},       {{"Color", 0.9, 9}, {"Equalize", 0.6, 6}},
      {{"AutoContrast", 0.8, 4}, {"Solarize", 0.2, 8}},   {{"Brightness", 0.1, 3}, {"Color", 0.7, 0}},
      {{"Solarize", 0.4, 5}, {"AutoContrast", 0.9, 3}},   {{"TranslateY", 0.9, 9}, {"TranslateY", 0.7, 9}},
      {{"AutoContrast", 0.9, 2}, {"Solarize", 0.8, 3}},   {{"Equalize", 0.8, 8}, {"Invert", 0.1, 3}},
      {{"TranslateY", 0.7, 9}, {"AutoContrast", 0.9, 1}},
  };
}

std::vector<SubPolicy> svhn() {
  return {
      {{"ShearX", 0.9, 4}, {"Invert", 0.2, 3}},       {{"ShearY", 0.9, 8}, {"Invert", 0.7, 5}},
      {{"Equalize", 0.6, 5}, {"Solarize", 0.6, 6}},   {{"Invert", 0.9, 3}, {"Equalize", 0.6, 3}},
      {{"Equalize", 0.6, 1}, {"Rotate", 0.9, 3}},     {{"ShearX", 0.9, 4}, {"AutoContrast", 0.8, 3}},
      {{"ShearY", 0.9, 8}, {"Invert", 0.4, 5}},       {{"ShearY", 0.9, 5}, {"Solarize", 0.2, 6}},
      {{"Invert", 0.9, 6}, {"AutoContrast", 0.8, 1}}, {{"Equalize", 0.6, 3}, {"Rotate", 0.9, 3}},
      {{"ShearX", 0.9, 4}, {"Solarize", 0.3, 3}},     {{"ShearY", 0.8, 8}, {"Invert", 0.7, 4}},
      {{"Equalize", 0.9, 5}, {"TranslateY", 0.6, 6}}, {{"Invert", 0.9, 4}, {"Equalize", 0.6, 7}},
      {{"Contrast", 0.3, 3}, {"Rotate", 0.8, 4}},     {{"Invert", 0.8, 5}, {"TranslateY", 0.0, 2}},
      {{"ShearY", 0.7, 6}, {"Solarize", 0.4, 8}},     {{"Invert", 0.6, 4}, {"Rotate", 0.8, 4}},
      {{"ShearY", 0.3, 7}, {"TranslateX", 0.9, 3}},   {{"ShearX", 0.1, 6}, {"Invert", 0.6, 5}},
      {{"Solarize", 0.7, 2}, {"TranslateY", 0.6, 7}}, {{"ShearY", 0.8, 4}, {"Invert", 0.8, 8}},
      {{"ShearX", 0.7, 9}, {"TranslateY", 0.8, 3}},   {{"ShearY", 0.8, 5}, {"AutoContrast", 0.7, 3}},
      {{"ShearX", 0.7, 2}, {"Invert", 0.1, 5}},
  };
}

std::vector<SubPolicy> reduced_imagenet() {
  return {
      {{"Posterize", 0.4, 8}, {"Rotate", 0.6, 9}},  {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
      {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}}, {{"Posterize", 0.6, 7}, {"Posterize", 0.6, 6}},
      {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}}, {{"Equalize", 0.4, 4}, {"Rotate", 0.8, 8}},
      {{"Solarize", 0.6, 3}, {"Equalize", 0.6, 7}}, {{"Posterize", 0.8, 5}, {"Equalize", 1.0, 2}},
      {{"Rotate", 0.2, 3}, {"Solarize", 0.6, 8}},   {{"Equalize", 0.6, 8}, {"Posterize", 0.4, 6}},
      {{"Rotate", 0.8, 8}, {"Color", 0.4, 0}},      {{"Rotate", 0.4, 9}, {"Equalize", 0.6, 2}},
      {{"Equalize", 0.0, 7}, {"Equalize", 0.8, 8}}, {{"Invert", 0.6, 4}, {"Equalize", 1.0, 8}},
      {{"Color", 0.6, 4}, {"Contrast", 1.0, 8}},    {{"Rotate", 0.8, 8}, {"Color", 1.0, 2}},
      {{"Color", 0.8, 8}, {"Solarize", 0.8, 7}},    {{"Sharpness", 0.4, 7}, {"Invert", 0.6, 8}},
      {{"ShearX", 0.6, 5}, {"Equalize", 1.0, 9}},   {{"Color", 0.4, 0}, {"Equalize", 0.6, 3}},
      {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}}, {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
      {{"Invert", 0.6, 4}, {"Equalize", 1.0, 8}},   {{"Color", 0.6, 4}, {"Contrast", 1.0, 8}},
      {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}},
  };
}

// Those of v0 that change values only.
std::vector<SubPolicy> simple() {
  std::vector<SubPolicy> chosen;
  for (SubPolicy& policy : imagenet_v0()) {
    bool moves = false;
    for (const PolicyStep& step : policy) {
      const std::string& name = step.operation;
      moves =
          moves || name.starts_with("Shear") || name.starts_with("Translate") || name == "Rotate" || name == "Invert";
    }
    if (!moves) chosen.push_back(std::move(policy));
  }
  return chosen;
}

std::vector<SubPolicy> panoptic_deeplab() {
  return {{{"Sharpness", 0.4, 1.4}, {"Brightness", 0.2, 2.0}},
          {{"Equalize", 0.0, 1.8}, {"Contrast", 0.2, 2.0}},
          {{"Sharpness", 0.2, 1.8}, {"Color", 0.2, 1.8}},
          {{"Solarize", 0.2, 1.4}, {"Equalize", 0.6, 1.8}},
          {{"Sharpness", 0.2, 0.2}, {"Equalize", 0.2, 1.4}}};
}

// Panoptic-DeepLab's and four of reduced_imagenet, each with a cutout.
std::vector<SubPolicy> vit() {
  std::vector<SubPolicy> policies = panoptic_deeplab();
  policies.push_back({{"Sharpness", 0.4, 7}, {"Invert", 0.6, 8}});
  policies.push_back({{"Invert", 0.6, 4}, {"Equalize", 1.0, 8}});
  policies.push_back({{"Posterize", 0.6, 7}, {"Posterize", 0.6, 6}});
  policies.push_back({{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}});
  for (SubPolicy& policy : policies) policy.push_back({"Cutout", 0.8, 8});
  return policies;
}

// B. Zoph et al., "Learning Data Augmentation Strategies for Object Detection" (2019).
std::vector<SubPolicy> detection_v0() {
  return {{{"TranslateX_BBox", 0.6, 4}, {"Equalize", 0.8, 10}},
          {{"TranslateY_Only_BBoxes", 0.2, 2}, {"Cutout", 0.8, 8}},
          {{"Sharpness", 0.0, 8}, {"ShearX_BBox", 0.4, 0}},
          {{"ShearY_BBox", 1.0, 2}, {"TranslateY_Only_BBoxes", 0.6, 6}},
          {{"Rotate_BBox", 0.6, 10}, {"Color", 1.0, 6}}};
}

}  // namespace

std::vector<SubPolicy> named_policies(std::string_view name) {
  if (name == "v0") return imagenet_v0();
  if (name == "reduced_cifar10") return reduced_cifar10();
  if (name == "svhn") return svhn();
  if (name == "reduced_imagenet") return reduced_imagenet();
  if (name == "simple") return simple();
  if (name == "panoptic_deeplab_policy") return panoptic_deeplab();
  if (name == "vit") return vit();
  if (name == "detection_v0") return detection_v0();
  // H. Touvron et al., "DeiT III" (2022): grey, inverted bright pixels, or blurred.
  if (name == "deit3_three_augment")
    return {{{"Grayscale", 1.0, 0}}, {{"Solarize", 1.0, 5}}, {{"Gaussian_Noise", 1.0, 1}}};
  if (name == "test") return {{{"TranslateX", 1.0, 4}, {"Equalize", 1.0, 10}}};
  fail<NotFound>("[image] auto_augment: there is no policy \"", name,
                 "\"; there are v0, reduced_cifar10, svhn, reduced_imagenet, simple, panoptic_deeplab_policy, vit, "
                 "detection_v0, deit3_three_augment and test");
}

}  // namespace cohort::augment
