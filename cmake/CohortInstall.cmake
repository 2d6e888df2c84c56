# Installs the library so that find_package(cohort) gives cohort::cohort.
include(CMakePackageConfigHelpers)
# The package file wants literals.
foreach(name BUILD_SHARED_LIBS COHORT_HAS_GLOO COHORT_GLOO_MODULE COHORT_HAS_MPI)
  if(${name})
    set(${name}_01 1)
  else()
    set(${name}_01 0)
  endif()
endforeach()
set(destination ${CMAKE_INSTALL_LIBDIR}/cmake/cohort)
install(TARGETS cohort EXPORT cohortTargets)
if(COHORT_GLOO_MODULE)
  install(TARGETS cohort_gloo LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(EXPORT cohortTargets NAMESPACE cohort:: DESTINATION ${destination})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cohort DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cohortConfig.cmake.in ${PROJECT_BINARY_DIR}/cohortConfig.cmake
                              INSTALL_DESTINATION ${destination})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cohortConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cohortConfig.cmake ${PROJECT_BINARY_DIR}/cohortConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/CohortTorch.cmake ${COHORT_CLANG_COMPAT} DESTINATION ${destination})
