# The module around oneDNN, where the library's package is installed: onednn-devel-cpu-gomp of PyPI,
# which exists for x86-64 Linux. Without it everything else is built.
#
# The library goes into our package, beside the module: wheels stay self-contained, and auditwheel
# gives it the same libgomp as our own modules. Two of them would be two pools of threads.
option(TAPEGRAD_ONEDNN "The module around oneDNN, where the library is installed" ON)
if(NOT TAPEGRAD_ONEDNN)
  return()
endif()

execute_process(
  COMMAND
    ${Python_EXECUTABLE} -c
    "from importlib.metadata import files
for file in files('onednn-devel-cpu-gomp'):
    if file.name == 'dnnl-config.cmake': print(file.locate().resolve().parent.as_posix())"
  OUTPUT_VARIABLE dnnl_folder
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT dnnl_folder)
  message(STATUS "onednn-devel-cpu-gomp is not installed: tapegrad is built without oneDNN")
  return()
endif()
find_package(dnnl CONFIG REQUIRED PATHS ${dnnl_folder} NO_DEFAULT_PATH)

add_library(tapegrad_onednn STATIC core/onednn/convolution.cpp core/onednn/matmul.cpp
                                   core/onednn/packed.cpp core/onednn/plan.cpp)
target_link_libraries(tapegrad_onednn PUBLIC tapegrad_machine DNNL::dnnl)

nanobind_add_module(
  _onednn
  NB_STATIC NOSTRIP
  bindings/interpreter.cpp
  bindings/onednn/arrays.cpp
  bindings/onednn/convolution.cpp
  bindings/onednn/matmul.cpp
  bindings/onednn/module.cpp
  bindings/text.cpp)
target_include_directories(_onednn PRIVATE bindings)
target_link_libraries(_onednn PRIVATE tapegrad_onednn Python::NumPy)
target_compile_options(_onednn PRIVATE -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
set_target_properties(_onednn PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${stage}/tapegrad INSTALL_RPATH
                                                                                    "$ORIGIN")

get_filename_component(dnnl_prefix ${dnnl_folder}/../../.. ABSOLUTE)
install(TARGETS _onednn LIBRARY DESTINATION tapegrad)
install(FILES ${dnnl_prefix}/lib/libdnnl.so.3 DESTINATION tapegrad)
install(FILES ${dnnl_prefix}/share/doc/onednn/LICENSE
              ${dnnl_prefix}/share/doc/onednn/THIRD-PARTY-PROGRAMS
        DESTINATION tapegrad/licences/onednn)
