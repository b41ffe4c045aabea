/* The native block loop of a worker: it reads a request, makes the calls and answers, without Python in between.
 *
 * The same path in Python takes longer than many calls. The judge measures this overhead on the baseline's twin and
 * subtracts it for all sides, so a side that found a shorter path would seem faster. The overhead is kept minimal here.
 *
 * Python's functions are declared here, because its headers need not be installed. They exist in the process that loads
 * this library and have been stable for years. The library is called with the interpreter lock held and releases it
 * while it waits.
 */

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef struct _object PyObject;

PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...);
PyObject *PyObject_Type(PyObject *);
PyObject *PySequence_GetItem(PyObject *, ssize_t);
ssize_t PySequence_Size(PyObject *);
PyObject *PyList_GetItem(PyObject *, ssize_t); /* borrowed */
ssize_t PyList_Size(PyObject *);
int PyList_Append(PyObject *, PyObject *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
PyObject *PyErr_Occurred(void);
PyObject *PyErr_NoMemory(void);
int PyErr_CheckSignals(void);
void Py_DecRef(PyObject *);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);

enum { HEADER = 5, MOST_FRAME = 1 << 14 };  /* a length and a tag; and a block of thousands of calls */
enum { OTHER = 0, RAISED = -1, NO_TENSOR = -2 };  /* return values of `serve` */

struct work {
  int32_t descriptor;
  int32_t tags;      /* tags of a request and of an answer, one byte each */
  int32_t flags;     /* flags of the requests that this loop handles */
  int32_t outputs;   /* whether calls return outputs */
  PyObject *call;    /* takes the arguments of a slot as one sequence */
  PyObject *slots;   /* list */
  PyObject *kept;    /* list of the results of calls */
  PyObject *tensor;  /* type of an output */
  PyObject *tuple;   /* types of results with several outputs */
  PyObject *list;
  PyObject *address; /* function that returns the address of an output */
  int32_t waiting;   /* true while it waits for a request: only a signal handler can raise then */
};

struct addresses {
  uint64_t *bytes; /* with room for a header before the first */
  size_t count, room;
};

static void wait_for(int descriptor, short event) {
  struct pollfd one = {descriptor, event, 0};
  poll(&one, 1, -1);
}

/* Peek at the next frame. Return 0 if the judge is gone, and less if a signal handler raised. */
static ssize_t peek(int descriptor, uint8_t *frame) {
  for (;;) {
    void *thread = PyEval_SaveThread();
    ssize_t found = recv(descriptor, frame, MOST_FRAME, MSG_PEEK);
    const int error = errno;
    if (found < 0 && (error == EAGAIN || error == EWOULDBLOCK)) wait_for(descriptor, POLLIN);
    PyEval_RestoreThread(thread);
    if (found >= 0) return found;
    if (error == EINTR && PyErr_CheckSignals()) return -1;
    if (error != EINTR && error != EAGAIN && error != EWOULDBLOCK) return 0;
  }
}

static void answer(const struct work *work, const struct addresses *found) {
  const uint32_t length = (uint32_t)(8 * found->count);
  uint8_t *frame = (uint8_t *)found->bytes + 8 - HEADER;
  memcpy(frame, &length, 4);
  frame[4] = (uint8_t)(work->tags >> 8);
  size_t left = HEADER + length;
  while (left) {
    const ssize_t sent = send(work->descriptor, frame, left, MSG_NOSIGNAL);
    if (sent >= 0) {
      frame += sent;
      left -= (size_t)sent;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(work->descriptor, POLLOUT);
    } else if (errno != EINTR) {
      return; /* the judge is gone, as the next peek will show */
    }
  }
}

static int note(const struct work *work, struct addresses *found, PyObject *tensor) {
  PyObject *type = PyObject_Type(tensor);
  if (type == NULL) return RAISED;
  Py_DecRef(type);
  if (type != work->tensor) return NO_TENSOR;
  if (found->count + 1 == found->room) {
    uint64_t *more = realloc(found->bytes, 2 * found->room * sizeof(uint64_t));
    if (more == NULL) {
      PyErr_NoMemory();
      return RAISED;
    }
    found->bytes = more;
    found->room *= 2;
  }
  PyObject *number = PyObject_CallFunctionObjArgs(work->address, tensor, NULL);
  if (number == NULL) return RAISED;
  found->bytes[1 + found->count++] = PyLong_AsUnsignedLongLong(number);
  Py_DecRef(number);
  return PyErr_Occurred() ? RAISED : 0;
}

static int note_result(const struct work *work, struct addresses *found, PyObject *result) {
  PyObject *type = PyObject_Type(result);
  if (type == NULL) return RAISED;
  Py_DecRef(type);
  if (type != work->tuple && type != work->list) return note(work, found, result);
  const ssize_t count = PySequence_Size(result);
  for (ssize_t number = 0; number < count; ++number) {
    PyObject *tensor = PySequence_GetItem(result, number);
    if (tensor == NULL) return RAISED;
    const int problem = note(work, found, tensor);
    Py_DecRef(tensor);
    if (problem) return problem;
  }
  return 0;
}

static int run(const struct work *work, const uint8_t *order, size_t calls, struct addresses *found) {
  const ssize_t first = PyList_Size(work->kept);
  if (first < 0) return RAISED;
  for (size_t number = 0; number < calls; ++number) {
    PyObject *slot = PyList_GetItem(work->slots, order[2 * number] | order[2 * number + 1] << 8);
    if (slot == NULL) return RAISED;
    PyObject *result = PyObject_CallFunctionObjArgs(work->call, slot, NULL);
    if (result == NULL) return RAISED;
    const int problem = PyList_Append(work->kept, result);
    Py_DecRef(result);
    if (problem) return RAISED;
  }
  found->count = 0;
  if (!work->outputs) return 0;
  for (size_t number = 0; number < calls; ++number) {
    PyObject *result = PyList_GetItem(work->kept, first + (ssize_t)number);
    const int problem = result == NULL ? RAISED : note_result(work, found, result);
    if (problem) return problem;
  }
  return 0;
}

/* Run blocks until the next frame is of another kind. That frame stays in the pipe. */
int serve(struct work *work) {
  uint8_t frame[MOST_FRAME];
  struct addresses found = {malloc(64 * sizeof(uint64_t)), 0, 64};
  int ending = OTHER;
  if (found.bytes == NULL) {
    PyErr_NoMemory();
    return RAISED;
  }
  while (ending == OTHER) {
    work->waiting = 1;
    const ssize_t there = peek(work->descriptor, frame);
    if (there < 0) ending = RAISED;
    if (there < HEADER + 2 || frame[4] != (uint8_t)work->tags) break;
    uint32_t length;
    memcpy(&length, frame, 4);
    const size_t whole = (size_t)length + HEADER;
    if (length % 2 || whole > (size_t)there || (frame[5] | frame[6] << 8) != work->flags) break;
    if (recv(work->descriptor, frame, whole, 0) != (ssize_t)whole) break;
    work->waiting = 0;
    ending = run(work, frame + HEADER + 2, length / 2 - 1, &found);
    if (ending == OTHER) answer(work, &found);
  }
  free(found.bytes);
  return ending;
}
