# Selects MPI, which runs one model on several processes (kernels/communicator.h).
#   AUTO   if an MPI with its headers is installed
#   ON     an error if MPI is missing
set(LARIAT_HAS_MPI OFF)
if(LARIAT_MPI STREQUAL "OFF")
  message(STATUS "lariat: MPI OFF (-DLARIAT_MPI=OFF)")
else()
  set(MPI_CXX_SKIP_MPICXX ON)  # only the C interface
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(LARIAT_HAS_MPI ON)
    message(STATUS "lariat: MPI ON (MPI ${MPI_CXX_VERSION}, ${MPIEXEC_EXECUTABLE})")
  elseif(LARIAT_MPI STREQUAL "ON")
    message(FATAL_ERROR "lariat: -DLARIAT_MPI=ON, but no MPI was found; install libopenmpi-dev and openmpi-bin")
  else()
    message(STATUS "lariat: MPI OFF (no MPI found; one process is complete without it)")
  endif()
endif()

# Adds the MPI communicator to `target`. One file includes MPI's header, one has a definition: all others compile identically
# with and without MPI.
function(lariat_add_mpi target)
  if(LARIAT_HAS_MPI)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/kernels/communicator_mpi.cpp)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/communicator.cpp PROPERTIES COMPILE_DEFINITIONS LARIAT_MPI)
    target_link_libraries(${target} PRIVATE MPI::MPI_CXX)
  endif()
endfunction()
