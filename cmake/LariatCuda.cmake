# Decides once whether the CUDA backend is built, and says so. The architectures are the ones the design
# names: sm_80, sm_90a and PTX for what comes after; the environment's CUDAARCHS, which CMake knows, is heeded.
set(LARIAT_HAS_CUDA OFF)
if(NOT LARIAT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(LARIAT_HAS_CUDA ON)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc speaks C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    message(STATUS "lariat: CUDA backend ON (nvcc ${CMAKE_CUDA_COMPILER_VERSION})")
  elseif(LARIAT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "lariat: -DLARIAT_CUDA=ON, but no nvcc was found; "
                        "install the CUDA toolkit or put nvcc on PATH")
  else()
    message(STATUS "lariat: CUDA backend OFF (no nvcc found; the CPU backend is complete without it)")
  endif()
else()
  message(STATUS "lariat: CUDA backend OFF (-DLARIAT_CUDA=OFF)")
endif()

# Adds the CUDA backend to `target`, or, without CUDA, the file that says at run time that it is missing.
function(lariat_add_cuda target)
  if(NOT LARIAT_HAS_CUDA)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_missing.cpp)
    return()
  endif()
  file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
  target_sources(${target} PRIVATE ${CUDA_KERNELS} ${CMAKE_SOURCE_DIR}/kernels/cuda/blas.cpp
                                   ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_backend.cpp
                                   ${CMAKE_SOURCE_DIR}/kernels/cuda/launch_queue.cpp)
  target_compile_definitions(${target} PUBLIC LARIAT_HAS_CUDA=1)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>")
  # Of cuBLAS only the headers: blas.cpp loads it. A program that needs no CUDA library starts without any.
  target_link_libraries(${target} PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
endfunction()
