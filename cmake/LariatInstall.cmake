# `cmake --install`: program, bash completion and man page; library, headers and CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS lariat)
install(FILES scripts/completion/lariat.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME lariat)

# The program contains wonderwords' word lists.
install(FILES engine/eval/tasks/words/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME LICENSE.wonderwords)

# The program generates its man page.
if(NOT CMAKE_CROSSCOMPILING)
  add_custom_command(OUTPUT lariat.1 COMMAND lariat __man > lariat.1 DEPENDS lariat VERBATIM)
  add_custom_target(lariat_man ALL DEPENDS lariat.1)
  install(FILES ${CMAKE_BINARY_DIR}/lariat.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# Sources and users include "engine/runtime/session.h" relative to include/lariat.
set(LARIAT_INCLUDE_DIR ${CMAKE_INSTALL_INCLUDEDIR}/lariat)
install(DIRECTORY kernels models engine DESTINATION ${LARIAT_INCLUDE_DIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.def"
        REGEX "kernels/(cpu|cuda|reference)$" EXCLUDE)
install(FILES kernels/cpu/cpu_backend.h kernels/cpu/rope_angles.h DESTINATION ${LARIAT_INCLUDE_DIR}/kernels/cpu)
install(FILES kernels/cuda/make_cuda_backend.h DESTINATION ${LARIAT_INCLUDE_DIR}/kernels/cuda)

add_library(lariat_library INTERFACE)
target_link_libraries(lariat_library INTERFACE lariat_eval)
target_include_directories(lariat_library INTERFACE $<INSTALL_INTERFACE:${LARIAT_INCLUDE_DIR}>)
set_target_properties(lariat_library PROPERTIES EXPORT_NAME lariat)
install(TARGETS lariat_kernels lariat_text lariat_models lariat_engine lariat_eval lariat_library EXPORT lariatTargets)

set(LARIAT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/lariat)
install(EXPORT lariatTargets NAMESPACE lariat:: DESTINATION ${LARIAT_PACKAGE_DIR})
configure_package_config_file(cmake/lariatConfig.cmake.in lariatConfig.cmake
                              INSTALL_DESTINATION ${LARIAT_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(lariatConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lariatConfig.cmake ${CMAKE_BINARY_DIR}/lariatConfigVersion.cmake
        DESTINATION ${LARIAT_PACKAGE_DIR})
