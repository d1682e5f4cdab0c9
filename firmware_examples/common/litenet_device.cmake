# The runtime with just the operators of one model, and the device program, for a project with CMake.
#
#     litenet_device(TARGET MODEL)     compiles them into TARGET, which supplies the functions of device.h;
#                                      MODEL is a header of edge-export
#     litenet_model(MODEL)             for a build with its own way of adding sources: sets LITENET_SOURCES,
#                                      LITENET_INCLUDES and LITENET_SWITCHES
set(LITENET_COMMON ${CMAKE_CURRENT_LIST_DIR})
set(LITENET_RUNTIME ${CMAKE_CURRENT_LIST_DIR}/../../runtime_c)

function(litenet_model MODEL)
    if(NOT MODEL)
        message(FATAL_ERROR "-DMODEL= the header that edge-export wrote is missing")
    endif()
    get_filename_component(model ${MODEL} ABSOLUTE)
    get_filename_component(file ${model} NAME)
    get_filename_component(folder ${model} DIRECTORY)
    file(GLOB sources ${LITENET_RUNTIME}/src/*.c)
    list(FILTER sources EXCLUDE REGEX "/(fast_[a-z0-9_]*|ln_file|ln_threads)\\.c$")
    set(LITENET_SOURCES ${sources} ${LITENET_COMMON}/frame.c ${LITENET_COMMON}/device.c PARENT_SCOPE)
    set(LITENET_INCLUDES ${LITENET_RUNTIME}/include ${LITENET_RUNTIME}/src ${LITENET_COMMON} ${folder} PARENT_SCOPE)
    set(LITENET_SWITCHES LN_SMALL LN_TERSE LN_OPS_HEADER="${file}" PARENT_SCOPE)
endfunction()

function(litenet_device TARGET MODEL)
    litenet_model("${MODEL}")
    target_sources(${TARGET} PRIVATE ${LITENET_SOURCES})
    target_include_directories(${TARGET} PRIVATE ${LITENET_INCLUDES})
    target_compile_definitions(${TARGET} PRIVATE ${LITENET_SWITCHES})
    target_compile_options(${TARGET} PRIVATE -Os -ffp-contract=off -ffunction-sections -fdata-sections)
endfunction()
