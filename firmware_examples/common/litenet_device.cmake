# litenet_device(TARGET MODEL): the runtime with just the operators of MODEL (a header of edge-export) and the device
# program, compiled into TARGET, which supplies the functions of device.h.
set(LITENET_ROOT ${CMAKE_CURRENT_LIST_DIR}/../..)

function(litenet_device TARGET MODEL)
    get_filename_component(model ${MODEL} ABSOLUTE)
    get_filename_component(file ${model} NAME)
    get_filename_component(folder ${model} DIRECTORY)
    get_filename_component(name ${model} NAME_WE)
    string(TOLOWER ${name} lower)
    string(REGEX REPLACE "[^a-z0-9_]+" "_" lower ${lower})
    string(TOUPPER ${lower} upper)
    file(GLOB sources ${LITENET_ROOT}/runtime_c/src/*.c)
    list(FILTER sources EXCLUDE REGEX "/(fast_[a-z0-9_]*|ln_file|ln_threads)\\.c$")
    set(common ${LITENET_ROOT}/firmware_examples/common)
    target_sources(${TARGET} PRIVATE ${sources} ${common}/frame.c ${common}/device.c)
    target_include_directories(${TARGET} PRIVATE ${LITENET_ROOT}/runtime_c/include ${LITENET_ROOT}/runtime_c/src
                               ${common} ${folder})
    target_compile_definitions(${TARGET} PRIVATE LN_SMALL LN_TERSE LN_OPS_HEADER="${file}" MODEL_HEADER="${file}"
                               MODEL_NAME=${lower} MODEL_CAPS=${upper})
    target_compile_options(${TARGET} PRIVATE -Os -ffp-contract=off -ffunction-sections -fdata-sections)
endfunction()
