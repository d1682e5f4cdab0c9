# find_package(LiteNet) gives the targets LiteNet::shared and LiteNet::static. The folder may be moved as a whole.
get_filename_component(_litenet_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
foreach(_litenet_up ".." "../..") # lib, or lib/<machine>
  if(EXISTS "${_litenet_lib}/${_litenet_up}/include/litenet.h")
    get_filename_component(_litenet_include "${_litenet_lib}/${_litenet_up}/include" ABSOLUTE)
  endif()
endforeach()
file(GLOB _litenet_shared "${_litenet_lib}/liblitenet.so" "${_litenet_lib}/liblitenet.dylib")

include(CMakeFindDependencyMacro)
find_dependency(Threads)
foreach(_litenet_kind shared static)
  if(NOT TARGET LiteNet::${_litenet_kind})
    string(TOUPPER ${_litenet_kind} _litenet_type)
    add_library(LiteNet::${_litenet_kind} ${_litenet_type} IMPORTED)
    set_property(TARGET LiteNet::${_litenet_kind} PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${_litenet_include}")
  endif()
endforeach()
set_target_properties(LiteNet::shared PROPERTIES IMPORTED_LOCATION "${_litenet_shared}")
set_target_properties(LiteNet::static PROPERTIES IMPORTED_LOCATION "${_litenet_lib}/liblitenet.a"
  INTERFACE_LINK_LIBRARIES Threads::Threads)
