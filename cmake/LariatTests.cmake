# One ctest test per GoogleTest suite: a process per test would mostly start up.
#   lariat_discover_suites(PROGRAM PREFIX [PROPERTIES...])
# adds PREFIX.SUITE for every suite of the built program. A suite is skipped if all its tests are skipped
# (tests/main.cpp returns 77).
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(LARIAT_TESTS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  function(lariat_discover_suites program prefix)
    set(list ${CMAKE_CURRENT_BINARY_DIR}/${program}_suites.cmake)
    string(JOIN " " properties SKIP_RETURN_CODE 77 ${ARGN})
    add_custom_command(TARGET ${program} POST_BUILD BYPRODUCTS ${list} VERBATIM
      COMMAND ${CMAKE_COMMAND} -D "PROGRAM=$<TARGET_FILE:${program}>" -D "PREFIX=${prefix}" -D "PROPERTIES=${properties}"
              -D "LIST=${list}" -P ${LARIAT_TESTS_SCRIPT})
    set(include ${CMAKE_CURRENT_BINARY_DIR}/${program}_include.cmake)
    file(WRITE ${include} "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n"
                          "  add_test(${prefix}.is_not_built ${program}_is_not_built)\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
  endfunction()
  return()
endif()

# Script mode, after linking: writes LIST for ctest.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" lines "${output}")
set(suite "")
set(script "")
macro(end_suite)
  if(NOT suite STREQUAL "")
    # Starts large suites first: no long suite is left to one core at the end.
    string(APPEND script "add_test([==[${PREFIX}.${suite}]==] [==[${PROGRAM}]==] --gtest_brief=1 "
      "[==[--gtest_filter=${suite}.*]==])\n"
      "set_tests_properties([==[${PREFIX}.${suite}]==] PROPERTIES COST ${count} ${PROPERTIES})\n")
  endif()
endmacro()
foreach(line IN LISTS lines)
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.( |$)")
    set(next "${CMAKE_MATCH_1}")
    end_suite()
    set(suite "${next}")
    set(count 0)
  elseif(line MATCHES "^  ")
    math(EXPR count "${count} + 1")
  endif()
endforeach()
end_suite()
if(script STREQUAL "")
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests names no test")
endif()
file(WRITE ${LIST} "${script}")
