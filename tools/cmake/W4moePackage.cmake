# What other projects get: the C interface w4moe::w4moe_c, the C++ library w4moe::w4moe, the archive w4moe::w4moe_static, headers,
# CMake and pkg-config files. docs/decisions/0002-packaging.md says why it is cut this way.
include_guard()

# The folders' libraries are one library to the outside.
set(w4moe_objects)
foreach(part w4moe w4moe_generator w4moe_cache)
  list(APPEND w4moe_objects $<TARGET_OBJECTS:${part}>)
endforeach()
set(w4moe_private_depends fmt::fmt spdlog::spdlog Threads::Threads ${CMAKE_DL_LIBS})

function(w4moe_package_library target kind)
  add_library(${target} ${kind} ${w4moe_objects})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME w4moe)
  target_link_libraries(${target} PRIVATE ${w4moe_private_depends})
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/generator/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/templates>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  w4moe_target_defaults(${target})
endfunction()

# Same objects, same name, so the archive must not land beside the one of the target w4moe.
w4moe_package_library(w4moe_static STATIC)
set_target_properties(w4moe_static PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/package)

set(w4moe_exports ${CMAKE_CURRENT_LIST_DIR}/exports.map)
w4moe_package_library(w4moe_shared SHARED)
set_target_properties(w4moe_shared PROPERTIES
  EXPORT_NAME w4moe
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/package
  LINK_DEPENDS ${w4moe_exports})
target_link_options(w4moe_shared PRIVATE -Wl,--version-script=${w4moe_exports})
if(NOT W4MOE_SANITIZE)  # a sanitizer's run-time library is in the program, not in the library
  target_link_options(w4moe_shared PRIVATE -Wl,--no-undefined)
endif()

# The C interface, with all that is below it: its names and its soname change only with W4MOE_ABI_VERSION, whatever becomes of the
# C++ interface.
file(STRINGS ${PROJECT_SOURCE_DIR}/runtime/include/w4moe/w4moe.h w4moe_abi_line REGEX "^#define W4MOE_ABI_VERSION [0-9]+$")
string(REGEX REPLACE ".* " "" w4moe_abi_version "${w4moe_abi_line}")
set(w4moe_c_exports ${CMAKE_CURRENT_LIST_DIR}/c_exports.map)
add_library(w4moe_c SHARED ${w4moe_objects} $<TARGET_OBJECTS:w4moe_capi>)
set_target_properties(w4moe_c PROPERTIES
  LINKER_LANGUAGE CXX
  VERSION ${w4moe_abi_version}.${PROJECT_VERSION}
  SOVERSION ${w4moe_abi_version}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/package
  BUILD_RPATH "$ORIGIN"  # beside libfmt and libspdlog in the Python wheel
  INSTALL_RPATH "$ORIGIN"
  LINK_DEPENDS ${w4moe_c_exports})
target_link_libraries(w4moe_c PRIVATE ${w4moe_private_depends})
target_include_directories(w4moe_c INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(w4moe_c PRIVATE -Wl,--version-script=${w4moe_c_exports})
if(NOT W4MOE_SANITIZE)
  target_link_options(w4moe_c PRIVATE -Wl,--no-undefined)
endif()
w4moe_target_defaults(w4moe_c)

add_library(w4moe::w4moe_c ALIAS w4moe_c)
add_library(w4moe::w4moe ALIAS w4moe_shared)
add_library(w4moe::w4moe_static ALIAS w4moe_static)

if(NOT W4MOE_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/w4moe)

install(TARGETS w4moe_shared w4moe_c EXPORT w4moeSharedTargets)
install(TARGETS w4moe_static EXPORT w4moeStaticTargets)
install(EXPORT w4moeSharedTargets NAMESPACE w4moe:: DESTINATION ${package_dir})
install(EXPORT w4moeStaticTargets NAMESPACE w4moe:: DESTINATION ${package_dir})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/w4moeConfig.cmake.in ${PROJECT_BINARY_DIR}/package/w4moeConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/package/w4moeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/w4moeConfig.cmake ${PROJECT_BINARY_DIR}/package/w4moeConfigVersion.cmake
        DESTINATION ${package_dir})

# CMAKE_INSTALL_LIBDIR may be absolute (some distributions set it so); only a relative one goes below the prefix.
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(w4moe_pc_${dir} "${CMAKE_INSTALL_${dir}}")
  else()
    set(w4moe_pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
foreach(pc w4moe w4moe_c)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${pc}.pc.in ${PROJECT_BINARY_DIR}/package/${pc}.pc @ONLY)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/package/w4moe.pc ${PROJECT_BINARY_DIR}/package/w4moe_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Headers are installed by a script, since they change their names for each other (see there).
install(CODE "
  set(source_dir \"${PROJECT_SOURCE_DIR}\")
  set(include_dir \"${CMAKE_INSTALL_INCLUDEDIR}\")
  include(\"${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake\")")
