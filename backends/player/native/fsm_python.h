/* What module.c takes from the other files that speak Python. */
#ifndef FSM_PYTHON_H
#define FSM_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

struct fsm_chunk;
struct fsm_lane;
struct fsm_player;

PyObject *fsm_lane_facts(const struct fsm_lane *lane);         /* facts.c: a dict */
PyObject *fsm_timeline(const struct fsm_player *player, uint64_t width, uint64_t intervals);
PyObject *fsm_bare_loop(PyObject *module, PyObject *arguments); /* bare.c */

/* chunk.c: false with an exception set where something is wrong */
bool fsm_chunk_check(const struct fsm_player *player, struct fsm_chunk *chunk); /* sets paced */
/* Names for the slots from `first` on, a fast sequence of bytes. */
bool fsm_chunk_names(struct fsm_player *player, PyObject *names, unsigned long long first);
/* The memory that outcomes go to, as many as there are operations; None: nobody asks. */
bool fsm_chunk_outcomes(PyObject *asked, Py_buffer *memory, struct fsm_chunk *chunk);

#endif
