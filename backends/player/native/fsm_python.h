/* What module.c takes from the other files that speak Python. */
#ifndef FSM_PYTHON_H
#define FSM_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct fsm_lane;

PyObject *fsm_lane_facts(const struct fsm_lane *lane);         /* facts.c: a dict */
PyObject *fsm_bare_loop(PyObject *module, PyObject *arguments); /* bare.c */

#endif
