# Helpers that keep the CMakeLists of the folders to a line or two.
include_guard()

# Warnings and sanitizers shared by every target of the project.
function(w4moe_target_defaults target)
  # -Wshadow=local where it exists: g++'s full -Wshadow also takes an enumerator of an enum class for a shadow.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wno-sign-conversion
    $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> $<$<CXX_COMPILER_ID:Clang>:-Wshadow>)
  if(W4MOE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(W4MOE_SANITIZE)
    # Checks for null and for the dynamic type cost a third of the compile time; a null access faults anyway.
    # A finding of any sanitizer ends the program: a report that scrolls by in a passing test would be lost.
    target_compile_options(${target} PRIVATE
      -fsanitize=${W4MOE_SANITIZE} -fno-sanitize=null,vptr -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${W4MOE_SANITIZE})
  endif()
endfunction()

# w4moe_library(NAME [EXCLUDE REGEX] [DEPENDS ...] [PRIVATE_DEPENDS ...]): every .cpp below the current folder, except main.cpp.
function(w4moe_library target)
  cmake_parse_arguments(ARG "" "EXCLUDE" "DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  if(NOT sources)  # A folder without sources yet is an empty library, not an error.
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp)
    file(WRITE ${sources} "")
  endif()
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  w4moe_target_defaults(${target})
endfunction()

# w4moe_test_suite(NAME LABELS ... DEPENDS ...): one Catch2 program from every .cpp below the current folder.
# Each test case is a test of CTest's; one that calls W4MOE_SKIP (tests/support/skip.hpp) is reported as skipped.
function(w4moe_test_suite target)
  cmake_parse_arguments(ARG "" "" "LABELS;DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${ARG_DEPENDS} Catch2::Catch2WithMain)
  w4moe_target_defaults(${target})

  if(ARG_LABELS MATCHES "unit|lockstep")
    add_dependencies(w4moe_cpu_tests ${target})
  endif()

  set(tests_file ${CMAKE_CURRENT_BINARY_DIR}/${target}_tests.cmake)
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${tests_file} VERBATIM
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tools/cmake/discover_tests.py
      --program $<TARGET_FILE:${target}> --suite ${target} "--labels=${ARG_LABELS}"
      --directory ${CMAKE_CURRENT_BINARY_DIR} --catch-version ${Catch2_VERSION} --output ${tests_file})
  # A program that is not built yet shows as a test that fails, not as none at all.
  set(include_file ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  file(WRITE ${include_file} "\
if(EXISTS \"${tests_file}\")
  include(\"${tests_file}\")
else()
  add_test(${target}_is_not_built ${target}_is_not_built)
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include_file})
endfunction()
