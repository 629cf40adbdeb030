# SPDX-License-Identifier: Apache-2.0 OR MIT
# find_package(Rtscope) and target_link_libraries(program PRIVATE Rtscope::rtscope): a header, nothing to link.
# Installed as PREFIX/lib/cmake/Rtscope/RtscopeConfig.cmake.
if(NOT TARGET Rtscope::rtscope)
  get_filename_component(_rtscope_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(Rtscope::rtscope INTERFACE IMPORTED)
  set_target_properties(Rtscope::rtscope PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_rtscope_prefix}/include")
  unset(_rtscope_prefix)
endif()
