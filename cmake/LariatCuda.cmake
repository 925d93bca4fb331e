# Selects the CUDA backend and its architectures. Configuring a folder again selects the same, with or without tests.
#   AUTO   with nvcc and a GPU; without a GPU only for the tests, for one architecture
#   ON     for the supported architectures: sm_80, sm_90a and PTX for later ones
# CMAKE_CUDA_ARCHITECTURES or the environment's CUDAARCHS override them.
set(LARIAT_HAS_CUDA OFF)
set(LARIAT_CUDA_FOR_TESTS OFF)
if(NOT LARIAT_CUDA STREQUAL "ON" AND NOT EXISTS /dev/nvidiactl)
  set(LARIAT_CUDA_FOR_TESTS ON)
endif()
if(LARIAT_CUDA STREQUAL "OFF")
  message(STATUS "lariat: CUDA backend OFF (-DLARIAT_CUDA=OFF)")
elseif(LARIAT_CUDA_FOR_TESTS AND NOT LARIAT_TESTS)
  message(STATUS "lariat: CUDA backend OFF (no GPU is here; -DLARIAT_CUDA=ON builds it for another machine)")
else()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  # CMake reads CUDAARCHS only when it first finds the compiler.
  if("${CMAKE_CUDA_ARCHITECTURES}" STREQUAL "")
    if(NOT "$ENV{CUDAARCHS}" STREQUAL "")
      set(CMAKE_CUDA_ARCHITECTURES $ENV{CUDAARCHS} CACHE STRING "CUDA architectures" FORCE)
    elseif(LARIAT_CUDA_FOR_TESTS)
      set(CMAKE_CUDA_ARCHITECTURES 90a-real)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(LARIAT_HAS_CUDA ON)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 lacks nvcc's C++20 flag
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    list(JOIN CMAKE_CUDA_ARCHITECTURES ", " architectures)
    message(STATUS "lariat: CUDA backend ON (nvcc ${CMAKE_CUDA_COMPILER_VERSION}, for ${architectures})")
  elseif(LARIAT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "lariat: -DLARIAT_CUDA=ON, but no nvcc was found; "
                        "install the CUDA toolkit or put nvcc on PATH")
  else()
    message(STATUS "lariat: CUDA backend OFF (no nvcc found; the CPU backend is complete without it)")
  endif()
endif()

# Adds the CUDA backend to `target`, or a stub that reports its absence at run time. CUDA sources form a separate library: all
# other files compile identically with and without CUDA.
function(lariat_add_cuda target)
  if(NOT LARIAT_HAS_CUDA)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_missing.cpp)
    return()
  endif()
  file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
  add_library(lariat_cuda OBJECT ${CUDA_KERNELS} ${CMAKE_SOURCE_DIR}/kernels/cuda/blas.cpp
                                 ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_backend.cpp
                                 ${CMAKE_SOURCE_DIR}/kernels/cuda/launch_queue.cpp)
  target_compile_options(lariat_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LARIAT_WERROR}>>:-Werror=all-warnings>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra$<$<BOOL:${LARIAT_WERROR}>:,-Werror>>")
  # Uses only the headers of cuBLAS: blas.cpp loads the library, and lariat starts without CUDA libraries.
  target_link_libraries(lariat_cuda PRIVATE lariat_options CUDA::cudart_static)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:lariat_cuda>)
  target_link_libraries(${target} INTERFACE $<LINK_ONLY:CUDA::cudart_static> ${CMAKE_DL_LIBS})
endfunction()
