# LibTorch: the one that CMake finds (Debian's) or, with COHORT_TORCH, the one in the folder of PyPI's torch. Sets
# TORCH_LIBRARIES and TORCH_INCLUDE_DIRS. Also in the installed package, which has to find the same one again.
if(NOT COHORT_TORCH)
  find_package(Torch REQUIRED QUIET)
  return()
endif()

# The wheel's TorchConfig.cmake wants nvcc, a CUDA toolkit and a CMake that knows its C++20. The headers came with the wheel,
# and our few kernels are compiled without it: targets of our own do.
get_filename_component(COHORT_TORCH "${COHORT_TORCH}" REALPATH)
if(NOT EXISTS ${COHORT_TORCH}/lib/libtorch_cpu.so OR NOT EXISTS ${COHORT_TORCH}/version.py)
  message(FATAL_ERROR "COHORT_TORCH=${COHORT_TORCH} has no lib/libtorch_cpu.so and version.py, wanted the folder that "
                      "python3 -c 'import torch; print(*torch.__path__)' prints")
endif()
file(STRINGS ${COHORT_TORCH}/version.py version REGEX "^__version__")
string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" COHORT_TORCH_VERSION "${version}")
if(COHORT_TORCH_VERSION VERSION_LESS 2.7)
  message(FATAL_ERROR "COHORT_TORCH=${COHORT_TORCH} is torch ${COHORT_TORCH_VERSION}, wanted 2.7 or newer: the strings in "
                      "the wheels before it are those of GCC 4")
endif()

# Headers of protobuf and fmt are in the wheel, without their libraries: those of the system, which we link, come first.
set(first ${PROJECT_BINARY_DIR}/headers_before_torch)
file(MAKE_DIRECTORY ${first})
foreach(header google/protobuf/message.h fmt/core.h)
  get_filename_component(folder ${header} DIRECTORY)
  string(REGEX REPLACE "/.*" "" folder ${folder})
  find_path(COHORT_HEADERS_OF_${folder} ${header})
  if(COHORT_HEADERS_OF_${folder})
    file(CREATE_LINK ${COHORT_HEADERS_OF_${folder}}/${folder} ${first}/${folder} SYMBOLIC)
  endif()
endforeach()
set(TORCH_INCLUDE_DIRS ${first} ${COHORT_TORCH}/include ${COHORT_TORCH}/include/torch/csrc/api/include)

# cohort_torch_library(<name> <file>): a target cohort_<name> for a library of LibTorch's.
function(cohort_torch_library name file)
  if(NOT TARGET cohort_${name})
    add_library(cohort_${name} SHARED IMPORTED)
    set_target_properties(cohort_${name} PROPERTIES IMPORTED_LOCATION ${file})
  endif()
endfunction()
# The wheel's libraries show parts of a standard library of their own, of which some lead nowhere (remove_all() in 2.11):
# the system's comes first.
set(TORCH_LIBRARIES stdc++)
foreach(name torch torch_cpu c10 torch_cuda c10_cuda)
  if(EXISTS ${COHORT_TORCH}/lib/lib${name}.so)
    cohort_torch_library(${name} ${COHORT_TORCH}/lib/lib${name}.so)
    list(APPEND TORCH_LIBRARIES cohort_${name})
  endif()
endforeach()
if(TARGET cohort_torch_cuda)
  # CUDA's and NCCL's headers, and the run-time library that LibTorch's inline functions call, lie beside the wheel.
  file(GLOB COHORT_CUDA_HEADERS ${COHORT_TORCH}/../nvidia/*/include)
  file(GLOB cudart ${COHORT_TORCH}/../nvidia/*/lib/libcudart.so.*)
  if(NOT cudart)
    message(FATAL_ERROR "COHORT_TORCH=${COHORT_TORCH} has CUDA, but ../nvidia/*/lib/libcudart.so.* is not there; wanted the "
                        "packages that pip installs with torch")
  endif()
  cohort_torch_library(cudart ${cudart})
  string(REGEX REPLACE ".*\\.so\\.([0-9]+).*" "\\1" COHORT_CUDA_MAJOR "${cudart}")
  list(APPEND TORCH_LIBRARIES cohort_cudart)
  # NCCL, which libtorch_cuda.so calls, too, lies there as well.
  file(GLOB nccl ${COHORT_TORCH}/../nvidia/*/lib/libnccl.so.*)
  if(nccl)
    cohort_torch_library(nccl ${nccl})
    list(APPEND TORCH_LIBRARIES cohort_nccl)
  endif()
  list(APPEND TORCH_INCLUDE_DIRS ${COHORT_CUDA_HEADERS})
endif()
# Nothing of ours names libtorch_cuda.so, which makes itself known to LibTorch when it is loaded.
set_target_properties(cohort_torch PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}"
                                              INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")

# One OpenMP for all, the wheel's.
file(GLOB gomp ${COHORT_TORCH}/lib/libgomp*.so*)
if(gomp)
  set(OpenMP_gomp_LIBRARY ${gomp} CACHE FILEPATH "LibTorch's OpenMP")
endif()
