// Included first by the build when the compiler is Clang (-include): LibTorch 1.13's headers use std::vector of a type
// that is not complete yet, which libstdc++ 12's constexpr vector does not allow under Clang 14 in C++20. So vector is
// not constexpr here; std::string stays as it is. Harmless with newer versions of either.
#if defined(__clang__) && __clang_major__ < 16
#include <cstddef>
#if defined(_GLIBCXX_RELEASE) && _GLIBCXX_RELEASE >= 12
#pragma push_macro("_GLIBCXX20_CONSTEXPR")
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#include <bits/stl_algobase.h>
#pragma pop_macro("_GLIBCXX20_CONSTEXPR")
#include <string>
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#include <vector>
#endif
#endif
