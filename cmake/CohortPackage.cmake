# What is installed beside the library: the command line's page of manual and completion, cohort.pc; and Debian's package
# of it all (make package).
if(COHORT_BUILD_TOOLS)
  install(FILES ${PROJECT_SOURCE_DIR}/tools/cohort/cohort.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${PROJECT_SOURCE_DIR}/tools/cohort/completion.bash
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cohort)
endif()

# For the shared library only: a static one wants the link lines of all that it stands on, which CMake knows.
if(BUILD_SHARED_LIBS)
  set(flags)
  set(libraries -ltorch -ltorch_cpu -lc10)
  if(COHORT_TORCH)
    list(PREPEND libraries -L${COHORT_TORCH}/lib -Wl,-rpath,${COHORT_TORCH}/lib)
  endif()
  foreach(folder IN LISTS TORCH_INCLUDE_DIRS)
    if(NOT folder STREQUAL "/usr/include")
      list(APPEND flags -isystem ${folder})
    endif()
  endforeach()
  list(JOIN flags " " COHORT_PC_FLAGS)
  list(JOIN libraries " " COHORT_PC_LIBRARIES)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/cohort.pc.in ${PROJECT_BINARY_DIR}/cohort.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cohort.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cohort)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Cohort's maintainers <maintainers@cohort.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "TensorFlow's tf.distribute for LibTorch: one training program in C++ runs, unchanged, on one CPU, several replicas, several GPUs or several machines. With the library, its headers, the files of CMake and pkg-config, and the command line cohort.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
# What the library and the command line are linked with; to run them, these are all.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# What a program is compiled with: apt installs these, too, unless it is told --no-install-recommends.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libtorch-dev, g++, cmake, make, pkg-config")
# A program that plot_model() runs.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS graphviz)
set(CPACK_DEBIAN_FILE_NAME cohort_${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}_amd64.deb)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
endif()
include(CPack)
