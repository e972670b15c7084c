// bindings/numpy.h -- NumPy's C interface, which one file of the module (the one that defines
// TAPEGRAD_IMPORTS_NUMPY) imports for all.
#pragma once

#define PY_ARRAY_UNIQUE_SYMBOL tapegrad_numpy
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#ifndef TAPEGRAD_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <Python.h>
#include <numpy/arrayobject.h>
