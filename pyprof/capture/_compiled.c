/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of a recorded call, compiled: what wrappers.py (`recording`) and lookups.py do in Python, for calls that
 * were met before. What is met for the first time, or is unusual, is asked of the Python functions that a `Watch` is
 * given: they alone decide what a record holds. Without this module everything is Python.
 *
 * There is no Python frame between the program and its operator here, so warnings and tracebacks are the program's own.
 *
 * Arguments that were met before are known by a signature: bytes that are equal only where Python would describe the
 * arguments alike. Shapes of tensors come from the C exchange API of DLPack (1.2 or later; torch 2.10 or later), which
 * runs no Python and tells the program's modes nothing. (It is the one that a lazy clone, torch._lazy_clone, takes for
 * somebody who may write: it then gets its own memory.) Without that API Python describes tensors.
 *
 * Not the limited API: PyFrame_GetBack, PyFrame_GetLasti and, before Python 3.12, vectorcall are no part of it.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

/* --- DLPack: what is read here of dlpack.h. Another major version may be laid out differently. */

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct Exchange {
    uint32_t major, minor;
    struct Exchange *older;
    void *allocate, *from_tensor, *to_tensor;
    int (*borrow)(void *tensor, DLTensor *out); /* dltensor_from_py_object_no_sync: there is nothing to free */
    void *stream;
} Exchange;

enum { DLPACK_MAJOR = 1, DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2 };
enum { FAILURES = 16 }; /* of `borrow`, each a C++ exception: then Python describes tensors from there on */

/* --- A table by 64-bit keys with open addressing. A value is a pointer, never NULL. */

typedef struct {
    uint64_t key;
    void *value;
} Slot;

typedef struct {
    size_t used, room; /* room: a power of two, or 0 */
    Slot *slots;
} Table;

static Slot *
table_slot(const Table *table, uint64_t key)
{
    uint64_t hash = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    size_t mask = table->room - 1, at = (size_t)(hash >> 32) & mask;
    while (table->slots[at].value != NULL && table->slots[at].key != key)
        at = (at + 1) & mask;
    return &table->slots[at];
}

static inline void *
table_get(const Table *table, uint64_t key)
{
    return table->room ? table_slot(table, key)->value : NULL;
}

/* Set the value of a key and return the one before, NULL if it is new; on failure return `value` itself. */
static void *
table_set(Table *table, uint64_t key, void *value)
{
    if (table->used * 4 >= table->room * 3) {
        Table larger = {table->used, table->room ? table->room * 2 : 4, NULL};
        larger.slots = PyMem_Calloc(larger.room, sizeof(Slot));
        if (larger.slots == NULL)
            return value;
        for (size_t i = 0; i < table->room; i++)
            if (table->slots[i].value != NULL)
                *table_slot(&larger, table->slots[i].key) = table->slots[i];
        PyMem_Free(table->slots);
        *table = larger;
    }
    Slot *slot = table_slot(table, key);
    void *before = slot->value;
    table->used += before == NULL;
    *slot = (Slot){key, value};
    return before;
}

static void
table_clear(Table *table, void (*drop)(void *))
{
    Table old = *table;
    memset(table, 0, sizeof *table); /* first: dropping runs any code */
    for (size_t i = 0; i < old.room; i++)
        if (old.slots[i].value != NULL)
            drop(old.slots[i].value);
    PyMem_Free(old.slots);
}

/* --- State shared by all objects below: the recorder, and the Python functions to call. */

typedef struct {
    PyObject_HEAD
    PyObject *recorder, *local;
    PyObject *tracing, *site, *describe, *at_bound, *drop, *from_handler, *through; /* functions */
    PyObject *tensor, *parameter, *size, *dtype;           /* types */
    PyObject *frame_end;      /* code of a module's call: the frames outside of it belong to the module */
    PyObject *signatures;     /* bytes -> number of the arguments */
    Exchange *exchange;       /* NULL: Python describes tensors */
    int failures;             /* of the exchange */
    uint64_t number;          /* of this object: an address may be given again */
    unsigned long generation; /* of the numbers of sites and arguments */
    Py_ssize_t active, counting, excess, limit; /* offsets of the recorder's slots */
    Py_ssize_t busy, calls, context, layer;     /* of those of a thread's state */
} Watch;

/* The objects that a Watch owns, its first fields. */
enum { OWNED = (offsetof(Watch, signatures) - offsetof(Watch, recorder)) / sizeof(PyObject *) + 1 };

static uint64_t watches;
static unsigned long forks;
static PyObject *name_state;

static inline PyObject *
attribute(PyObject *object, Py_ssize_t offset)
{
    return *(PyObject **)((char *)object + offset);
}

static inline int
is_true(PyObject *object, Py_ssize_t offset)
{
    return attribute(object, offset) == Py_True;
}

static inline void
set_attribute(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    PyObject **place = (PyObject **)((char *)object + offset), *old = *place;
    *place = Py_NewRef(value);
    Py_XDECREF(old);
}

/* The state of the running thread, borrowed: its own dictionary holds it. NULL, without an error, if there is none. */
static PyObject *
thread_state(const Watch *watch)
{
    static _Thread_local struct {
        uint64_t watch, thread;
        unsigned long forks;
        PyObject *state;
    } known;
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get()); /* never given again */
    if (known.watch == watch->number && known.thread == thread && known.forks == forks)
        return known.state;
    PyObject *state = PyObject_GetAttr(watch->local, name_state);
    if (state == NULL) {
        PyErr_Clear();
        return NULL;
    }
    known.watch = watch->number;
    known.thread = thread;
    known.forks = forks;
    known.state = state;
    Py_DECREF(state);
    return state;
}

/* Count a call that could not be recorded, for the error that is set, and clear that. Returns -1, with the error
 * still set, if it is none of PyProf's: ctrl-C, or what a signal handler of the program has raised. */
static int
lose(Watch *watch, const char *what)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    PyObject *handler = PyObject_CallOneArg(watch->from_handler, value);
    if (handler == NULL)
        PyErr_Clear(); /* no room on the stack */
    Py_XDECREF(handler);
    if (handler == Py_True) {
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    PyObject *reason = PyUnicode_FromFormat("%s (%s)", what, ((PyTypeObject *)type)->tp_name);
    PyObject *done = reason != NULL ? PyObject_CallOneArg(watch->drop, reason) : NULL;
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(reason);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return 0;
}

static int
offset_of(PyObject *object, const char *name, Py_ssize_t *offset)
{
    /* Interned: Python's cache of attributes of types goes by the name's address and keeps each name that it meets. */
    PyObject *interned = PyUnicode_InternFromString(name);
    PyObject *descriptor = interned == NULL ? NULL : PyObject_GetAttr((PyObject *)Py_TYPE(object), interned);
    Py_XDECREF(interned);
    if (descriptor == NULL)
        return -1;
    int slot = Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
    if (slot)
        *offset = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s is no slot", name);
    Py_DECREF(descriptor);
    return slot ? 0 : -1;
}

/* The exchange API, if it says of a sample, float32 of 3 x 2 with strides 1 and 3, what it should. */
static Exchange *
exchange_of(PyObject *capsule, PyObject *sample)
{
    DLTensor t;
    Exchange *api = capsule == Py_None ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (api != NULL && api->major > DLPACK_MAJOR)
        api = api->older;
    if (api == NULL || api->major != DLPACK_MAJOR || api->borrow == NULL || api->borrow(sample, &t) != 0 ||
        t.ndim != 2 || t.shape[0] != 3 || t.shape[1] != 2 || t.strides[0] != 1 || t.strides[1] != 3 ||
        t.code != DL_FLOAT || t.bits != 32 || t.lanes != 1)
        api = NULL;
    PyErr_Clear();
    return api;
}

static int
watch_init(Watch *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"recorder", "local", "tracing", "site", "describe", "at_bound", "drop", "from_handler", "through", "tensor",
                            "parameter", "size", "dtype", "frame_end", "exchange", "sample", NULL};
    PyObject *given[14], *capsule, *sample;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOOOOOOOOOOO:Watch", names, &given[0], &given[1], &given[2],
                                     &given[3], &given[4], &given[5], &given[6], &given[7], &given[8], &given[9],
                                     &given[10], &given[11], &given[12], &given[13], &capsule, &sample))
        return -1;
    for (int i = 0; i < 14; i++)
        Py_XSETREF((&self->recorder)[i], Py_NewRef(given[i]));
    Py_XSETREF(self->signatures, PyDict_New());
    PyObject *state = PyObject_GetAttr(self->local, name_state);
    if (self->signatures == NULL || state == NULL)
        return -1;
    int bad = offset_of(self->recorder, "active", &self->active) || offset_of(self->recorder, "counting", &self->counting) ||
              offset_of(self->recorder, "excess", &self->excess) || offset_of(self->recorder, "limit", &self->limit) ||
              offset_of(state, "busy", &self->busy) || offset_of(state, "calls", &self->calls) ||
              offset_of(state, "context", &self->context) || offset_of(state, "layer", &self->layer);
    Py_DECREF(state);
    if (bad)
        return -1;
    self->exchange = exchange_of(capsule, sample);
    self->number = ++watches;
    self->generation = 1;
    return 0;
}

static int
watch_traverse(Watch *self, visitproc visit, void *arg)
{
    for (int i = 0; i < OWNED; i++)
        Py_VISIT((&self->recorder)[i]);
    return 0;
}

static int
watch_clear(Watch *self)
{
    for (int i = 0; i < OWNED; i++)
        Py_CLEAR((&self->recorder)[i]);
    return 0;
}

static void
watch_dealloc(Watch *self)
{
    PyObject_GC_UnTrack(self);
    watch_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
watch_forget(Watch *self, PyObject *Py_UNUSED(ignored))
{
    self->generation++;
    PyDict_Clear(self->signatures);
    Py_RETURN_NONE;
}

static PyMethodDef watch_methods[] = {
    {"forget", (PyCFunction)watch_forget, METH_NOARGS, "Forget the numbers of sites and arguments: others will have them."},
    {NULL, NULL, 0, NULL}};

static PyMemberDef watch_members[] = {
    {"signatures", T_OBJECT, offsetof(Watch, signatures), READONLY, "Known arguments, by their bytes."},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef watch_getters[];

static PyTypeObject Watch_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pyprof.capture._compiled.Watch",
    .tp_doc = "Shared state of the wrappers of one recorder.",
    .tp_basicsize = sizeof(Watch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)watch_init,
    .tp_dealloc = (destructor)watch_dealloc,
    .tp_traverse = (traverseproc)watch_traverse,
    .tp_clear = (inquiry)watch_clear,
    .tp_methods = watch_methods,
    .tp_members = watch_members,
    .tp_getset = watch_getters,
};

static PyObject *
watch_exchanges(Watch *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(self->exchange != NULL);
}

static PyGetSetDef watch_getters[] = {
    {"exchanges", (getter)watch_exchanges, NULL, "True if shapes come from DLPack.", NULL}, {NULL, NULL, NULL, NULL, NULL}};

/* --- Signatures of arguments. Each value begins with a letter that says what follows and how much. */

#define FEW 8 /* tensors of a call that are compared with each other, as in core/arguments.py */

typedef struct {
    unsigned char *at, *end;
    int count;
    struct {
        PyObject *value;
        void *data;
        int64_t elements;
        uint8_t code, bits;
    } seen[FEW];
} Writer;

static inline int
put(Writer *out, char letter, const void *bytes, size_t size)
{
    if ((size_t)(out->end - out->at) < size + 1)
        return 0;
    *out->at++ = (unsigned char)letter;
    if (size)
        memcpy(out->at, bytes, size);
    out->at += size;
    return 1;
}

/* Return whether a tensor shares memory with one of the first few before, and add it to them. */
static int
again(Writer *out, PyObject *value, const DLTensor *t)
{
    if (out->count >= FEW)
        return 0;
    int64_t elements = 1;
    int found = 0;
    for (int i = 0; i < t->ndim; i++)
        elements *= t->shape[i];
    for (int i = 0; i < out->count; i++) {
        if (out->seen[i].value == value)
            return 1;
        found |= elements > 1 && out->seen[i].data == t->data && out->seen[i].elements == elements &&
                 out->seen[i].code == t->code && out->seen[i].bits == t->bits;
    }
    out->seen[out->count].value = value;
    out->seen[out->count].data = t->data;
    out->seen[out->count].elements = elements;
    out->seen[out->count].code = t->code;
    out->seen[out->count].bits = t->bits;
    out->count++;
    return found;
}

static int
sign_tensor(Watch *watch, Writer *out, PyObject *value)
{
    DLTensor t;
    if (watch->exchange == NULL)
        return 0;
    if (watch->exchange->borrow(value, &t) != 0) { /* sparse, quantized, without memory, ... */
        PyErr_Clear();
        if (++watch->failures >= FAILURES)
            watch->exchange = NULL;
        return 0;
    }
    if (t.bits == 8 && (t.code == DL_INT || t.code == DL_UINT)) /* also what it calls torch.int4 */
        return 0;
    struct {
        int32_t ndim;
        uint8_t code, bits;
        uint16_t lanes;
    } head = {t.ndim, t.code, t.bits, t.lanes};
    size_t size = (size_t)t.ndim * sizeof(int64_t);
    return put(out, again(out, value, &t) ? 'A' : 'T', &head, sizeof head) && put(out, 'z', t.shape, size) &&
           put(out, 'r', t.strides, size);
}

static int
sign(Watch *watch, Writer *out, PyObject *value, int depth)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type == (PyTypeObject *)watch->tensor || type == (PyTypeObject *)watch->parameter)
        return sign_tensor(watch, out, value);
    if (type == &PyLong_Type) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return !overflow && put(out, 'i', &number, sizeof number);
    }
    if (value == Py_None || value == Py_True || value == Py_False || value == Py_Ellipsis ||
        type == (PyTypeObject *)watch->dtype) /* one object each, for ever */
        return put(out, 'o', &value, sizeof value);
    if (type == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(value);
        return put(out, 'd', &number, sizeof number);
    }
    if (type == &PyUnicode_Type) {
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(value, &size);
        if (text == NULL) {
            PyErr_Clear();
            return 0;
        }
        return put(out, 's', &size, sizeof size) && put(out, '"', text, (size_t)size);
    }
    if (depth > 3) /* core/arguments.py looks no deeper */
        return 0;
    if (type == &PySlice_Type) {
        PySliceObject *slice = (PySliceObject *)value;
        PyObject *bounds[] = {slice->start, slice->stop, slice->step};
        for (int i = 0; i < 3; i++)
            if (!(bounds[i] == Py_None || PyLong_CheckExact(bounds[i])))
                return 0;
        return put(out, ':', NULL, 0) && sign(watch, out, bounds[0], depth + 1) &&
               sign(watch, out, bounds[1], depth + 1) && sign(watch, out, bounds[2], depth + 1);
    }
    int tuple = type == &PyTuple_Type || type == (PyTypeObject *)watch->size;
    if (tuple || type == &PyList_Type) {
        Py_ssize_t count = tuple ? PyTuple_GET_SIZE(value) : PyList_GET_SIZE(value);
        if (!put(out, tuple ? '(' : '[', &count, sizeof count))
            return 0;
        for (Py_ssize_t i = 0; i < count; i++)
            if (!sign(watch, out, tuple ? PyTuple_GET_ITEM(value, i) : PyList_GET_ITEM(value, i), depth + 1))
                return 0;
        return 1;
    }
    return 0;
}

/* Write the signature of a call's arguments; returns its length, 0 if Python has to look at them. */
static size_t
sign_call(Watch *watch, unsigned char *buffer, size_t room, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Writer out = {.at = buffer, .end = buffer + room};
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!sign(watch, &out, args[i], 0))
            return 0;
    for (Py_ssize_t i = 0; i < named; i++)
        if (!put(&out, '=', NULL, 0) || !sign(watch, &out, PyTuple_GET_ITEM(names, i), 0) ||
            !sign(watch, &out, args[count + i], 0))
            return 0;
    if (!put(&out, 'e', NULL, 0)) /* so that a call without arguments has a length */
        return 0;
    return (size_t)(out.at - buffer);
}

/* --- A call that is recorded. */

/* Where a call stands, in one context: up to three frames outside of the place itself, and what was there last time. */
typedef struct {
    PyObject *code[3]; /* NULL: no more */
    int at[3];
    PyObject *site, *signature, *described;
} Place;

static void
drop_place(void *value)
{
    Place *place = value;
    for (int i = 0; i < 3; i++)
        Py_XDECREF(place->code[i]);
    Py_XDECREF(place->site);
    Py_XDECREF(place->signature);
    Py_XDECREF(place->described);
    PyMem_Free(place);
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Watch *watch;
    PyObject *original, *number;
    Table places; /* by context and instruction of the next frame outside */
    unsigned long generation;
} Call;

/* Read the frames outside of a call, as stacks.py does: up to a module's call, three at most. */
static void
frames_outside(const Watch *watch, PyFrameObject *frame, PyObject *code[3], int at[3])
{
    PyFrameObject *outer = PyFrame_GetBack(frame);
    for (int i = 0; i < 3; i++) {
        code[i] = NULL;
        at[i] = -1;
        if (outer == NULL)
            continue;
        PyObject *found = (PyObject *)PyFrame_GetCode(outer);
        if (found == watch->frame_end) {
            Py_DECREF(found);
            Py_CLEAR(outer);
            continue;
        }
        code[i] = found;
        at[i] = PyFrame_GetLasti(outer);
        Py_SETREF(outer, PyFrame_GetBack(outer));
    }
    Py_XDECREF(outer);
}

/* Find the site of a call and the key of its place. Returns a new reference, NULL with an error. */
static PyObject *
site_of(Call *self, PyFrameObject *frame, PyObject *context, uint64_t *key)
{
    PyObject *code[3], *site = NULL;
    int at[3];
    frames_outside(self->watch, frame, code, at);
    *key = (uint64_t)PyLong_AsLong(context) << 32 | (uint32_t)at[0];
    Place *place = table_get(&self->places, *key);
    if (place != NULL && place->code[0] == code[0] && place->code[1] == code[1] && place->at[1] == at[1] &&
        place->code[2] == code[2] && place->at[2] == at[2]) {
        site = Py_NewRef(place->site);
        goto done;
    }
    site = PyObject_CallFunctionObjArgs(self->watch->site, frame, context, NULL); /* another thread may run meanwhile */
    if (site == NULL || (place = PyMem_Calloc(1, sizeof *place)) == NULL)
        goto done;
    for (int i = 0; i < 3; i++) {
        place->code[i] = Py_XNewRef(code[i]);
        place->at[i] = at[i];
    }
    place->site = Py_NewRef(site);
    void *before = table_set(&self->places, *key, place);
    if (before != NULL)
        drop_place(before);
done:
    for (int i = 0; i < 3; i++)
        Py_XDECREF(code[i]);
    return site;
}

/* Ask Python. Returns the number of the arguments, None where the call is not to be recorded; NULL with an error. */
static PyObject *
ask(Watch *watch, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *described = NULL, *positional = PyTuple_New(count), *named = PyDict_New();
    if (positional == NULL || named == NULL)
        goto done;
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), args[count + i]) < 0)
            goto done;
    described = PyObject_CallFunctionObjArgs(watch->describe, positional, named, NULL);
done:
    Py_XDECREF(positional);
    Py_XDECREF(named);
    return described;
}

/* Find the number of the arguments, as `ask` does. */
static PyObject *
described_of(Call *self, uint64_t key, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    unsigned char buffer[1024];
    Watch *watch = self->watch;
    size_t size = sign_call(watch, buffer, sizeof buffer, args, count, names);
    if (size == 0)
        return ask(watch, args, count, names);
    Place *place = table_get(&self->places, key);
    if (place != NULL && place->signature != NULL && (size_t)PyBytes_GET_SIZE(place->signature) == size &&
        memcmp(PyBytes_AS_STRING(place->signature), buffer, size) == 0)
        return Py_NewRef(place->described);
    PyObject *signature = PyBytes_FromStringAndSize((char *)buffer, (Py_ssize_t)size);
    if (signature == NULL)
        return NULL;
    PyObject *described = Py_XNewRef(PyDict_GetItemWithError(watch->signatures, signature));
    if (described == NULL && !PyErr_Occurred()) {
        unsigned long generation = watch->generation;
        described = ask(watch, args, count, names);
        if (described == NULL || described == Py_None || generation != watch->generation)
            goto done;
        if (PyDict_SetItem(watch->signatures, signature, described) < 0)
            PyErr_Clear();
        place = table_get(&self->places, key); /* another thread may have run */
    }
    if (place != NULL && described != NULL) {
        PyObject *before[] = {place->signature, place->described};
        place->signature = Py_NewRef(signature);
        place->described = Py_NewRef(described);
        Py_XDECREF(before[0]);
        Py_XDECREF(before[1]);
    }
done:
    Py_DECREF(signature);
    return described;
}

/* Find where a call stands and what its arguments are. Returns 1 if it is to be recorded, 0 if not, -1 with an error
 * that is the program's. */
static int
look(Call *self, PyObject *state, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **site,
     PyObject **described)
{
    PyFrameObject *frame = PyEval_GetFrame();
    uint64_t key;
    if (frame == NULL)
        return 0;
    if (self->generation != self->watch->generation) {
        self->generation = self->watch->generation;
        table_clear(&self->places, drop_place);
    }
    PyObject *context = Py_NewRef(attribute(state, self->watch->context));
    Py_INCREF(frame);
    *site = site_of(self, frame, context, &key);
    Py_DECREF(frame);
    Py_DECREF(context);
    if (*site != NULL)
        *described = described_of(self, key, args, count, names);
    if (*described == Py_None)
        return 0;
    if (*described == NULL) {
        if (lose(self->watch, "call not described") < 0)
            return -1;
        Py_XSETREF(*site, PyLong_FromLong(-1));
        *described = PyLong_FromLong(-1);
    }
    return 1;
}

static PyObject *
now(void)
{
    struct timespec time;
    timespec_get(&time, TIME_UTC); /* what time.time_ns reads */
    return PyLong_FromLongLong((long long)time.tv_sec * 1000000000 + time.tv_nsec);
}

/* Write the record of a call that has ended; the references are the caller's. Returns -1 with an error of at_bound. */
static int
note(Call *self, PyObject *state, PyObject *site, PyObject *described, PyObject *start)
{
    Watch *watch = self->watch;
    PyObject *end = now(), *calls = Py_NewRef(attribute(state, watch->calls));
    PyObject *record[] = {self->number, site, described, attribute(state, watch->layer), start, end};
    Py_ssize_t before = PyList_GET_SIZE(calls);
    int failed = start == NULL || end == NULL, done = 0;
    for (int i = 0; i < 6 && !failed; i++)
        failed = PyList_Append(calls, record[i]) < 0;
    if (failed) {
        if (PyList_SetSlice(calls, before, PyList_GET_SIZE(calls), NULL) < 0)
            PyErr_Clear();
        done = lose(watch, "call not recorded");
    } else {
        Py_ssize_t limit = PyLong_AsSsize_t(attribute(watch->recorder, watch->limit));
        if (limit == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            limit = PY_SSIZE_T_MAX;
        }
        if (PyList_GET_SIZE(calls) > limit) {
            PyObject *asked = PyObject_CallNoArgs(watch->at_bound);
            done = asked == NULL ? -1 : 0;
            Py_XDECREF(asked);
        }
    }
    Py_XDECREF(end);
    Py_DECREF(calls);
    return done;
}

/* Call the original from Python: a profiler of the program (sys.setprofile) is told of builtins that Python calls. */
static PyObject *
call_through(Call *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *result = NULL;
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject **given = PyMem_Malloc((size_t)(all + 1) * sizeof *given);
    if (given == NULL)
        return PyErr_NoMemory();
    given[0] = self->original;
    for (Py_ssize_t i = 0; i < all; i++)
        given[i + 1] = args[i];
    result = PyObject_Vectorcall(self->watch->through, given, (size_t)count + 1, names);
    PyMem_Free(given);
    return result;
}

static PyObject *
call_and_record(Call *self, PyObject *const *args, size_t flags, PyObject *names, PyObject *state)
{
    Watch *watch = self->watch;
    PyObject *site = NULL, *described = NULL, *start = NULL, *result = NULL;
    set_attribute(state, watch->busy, Py_True);
    int recorded = look(self, state, args, PyVectorcall_NARGS(flags), names, &site, &described);
    if (recorded > 0)
        start = now();
    if (recorded >= 0 && PyThreadState_Get()->c_profilefunc != NULL)
        result = call_through(self, args, PyVectorcall_NARGS(flags), names);
    else if (recorded >= 0)
        result = PyObject_Vectorcall(self->original, args, flags, names);
    set_attribute(state, watch->busy, Py_False);
    if (recorded > 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback); /* of the operator */
        if (note(self, state, site, described, start) == 0)
            PyErr_Restore(type, value, traceback);
        else {
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(traceback);
            Py_CLEAR(result);
        }
    }
    Py_XDECREF(site);
    Py_XDECREF(described);
    Py_XDECREF(start);
    return result;
}

static PyObject *
call_vectorcall(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    Call *self = (Call *)callable;
    Watch *watch = self->watch;
    PyObject *state = thread_state(watch);
    int busy = state == NULL || is_true(state, watch->busy);
    if (busy || !is_true(watch->recorder, watch->active)) {
        if (!busy && is_true(watch->recorder, watch->counting)) {
            PyObject *excess = PyNumber_Add(attribute(watch->recorder, watch->excess), Py_True);
            if (excess == NULL)
                PyErr_Clear();
            else
                set_attribute(watch->recorder, watch->excess, excess);
            Py_XDECREF(excess);
        }
        return PyObject_Vectorcall(self->original, args, flags, names);
    }
    Py_INCREF(self);
    Py_INCREF(state);
    PyObject *result = call_and_record(self, args, flags, names, state);
    Py_DECREF(state);
    Py_DECREF(self);
    return result;
}

static PyObject *
call_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *watch, *original, *number;
    if (!PyArg_ParseTuple(args, "O!OO:Call", &Watch_Type, &watch, &original, &number))
        return NULL;
    Call *self = (Call *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = call_vectorcall;
        self->watch = (Watch *)Py_NewRef(watch);
        self->original = Py_NewRef(original);
        self->number = Py_NewRef(number);
    }
    return (PyObject *)self;
}

static int
call_traverse(Call *self, visitproc visit, void *arg)
{
    Py_VISIT(self->watch);
    Py_VISIT(self->original);
    return 0;
}

static int
call_clear(Call *self)
{
    Py_CLEAR(self->original);
    return 0;
}

static void
call_dealloc(Call *self)
{
    PyObject_GC_UnTrack(self);
    table_clear(&self->places, drop_place);
    call_clear(self);
    Py_CLEAR(self->watch);
    Py_CLEAR(self->number);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject Call_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pyprof.capture._compiled.Call",
    .tp_doc = "Call(watch, original, number)\n\nCall a function from one place, and record it as a function of the recorder.",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Call, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = call_new,
    .tp_dealloc = (destructor)call_dealloc,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_clear = (inquiry)call_clear,
};

/* --- Lookup of the wrapper for a place. */

/* Where something was asked for, and what that place gets; NULL: nothing, it does not call. */
typedef struct {
    PyObject *code, *wrapper;
    int at;
} Asking;

static void
drop_asking(void *value)
{
    Asking *asking = value;
    Py_XDECREF(asking->code);
    Py_XDECREF(asking->wrapper);
    PyMem_Free(asking);
}

/* Find what the running place gets; `make` gives it, or None, for a frame. Returns a new reference; NULL without an
 * error: nothing, with one: ctrl-C. */
static PyObject *
wrapper_of(Watch *watch, Table *askings, PyObject *make)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL) /* a lookup from C++, on a thread that runs no Python */
        return NULL;
    PyObject *code = (PyObject *)PyFrame_GetCode(frame), *wrapper = NULL;
    int at = PyFrame_GetLasti(frame);
    uint64_t key = (uint64_t)(uintptr_t)code + (uint64_t)at;
    Asking *asking = table_get(askings, key);
    if (asking != NULL && asking->code == code && asking->at == at) {
        Py_DECREF(code);
        return Py_XNewRef(asking->wrapper);
    }
    Py_INCREF(frame);
    wrapper = PyObject_CallOneArg(make, (PyObject *)frame);
    Py_DECREF(frame);
    if (wrapper == NULL) {
        lose(watch, "call not seen");
        Py_DECREF(code);
        return NULL;
    }
    if (wrapper == Py_None)
        Py_CLEAR(wrapper);
    asking = PyMem_Calloc(1, sizeof *asking);
    if (asking == NULL) {
        Py_DECREF(code);
        return wrapper;
    }
    *asking = (Asking){code, Py_XNewRef(wrapper), at};
    void *before = table_set(askings, key, asking);
    if (before != NULL)
        drop_asking(before);
    return wrapper;
}

static int
is_tracing(const Watch *watch)
{
    PyObject *answer = PyObject_CallNoArgs(watch->tracing);
    int tracing = answer == Py_True;
    if (answer == NULL)
        PyErr_Clear();
    Py_XDECREF(answer);
    return tracing;
}

/* Return whether a lookup gets no wrapper: nothing is recorded inside a recorded call or under torch.jit.trace. */
static int
unwatched(const Watch *watch)
{
    PyObject *state = thread_state(watch);
    return state == NULL || is_true(state, watch->busy) || is_tracing(watch);
}

/* A function of a module: what its property calls. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Watch *watch;
    PyObject *names, *name, *original, *absent, *make;
    Table askings;
} Function;

static PyObject *
function_vectorcall(PyObject *callable, PyObject *const *args, size_t flags, PyObject *Py_UNUSED(names))
{
    Function *self = (Function *)callable;
    if (PyVectorcall_NARGS(flags) != 1) {
        PyErr_SetString(PyExc_TypeError, "expected a module");
        return NULL;
    }
    PyObject *value = PyDict_GetItemWithError(self->names, self->name);
    if (value == NULL)
        value = self->absent;
    if (value == Py_None || PyErr_Occurred()) {
        PyObject *module = PyErr_Occurred() ? NULL : PyObject_GetAttrString(args[0], "__name__");
        if (module != NULL)
            PyErr_Format(PyExc_AttributeError, "module %R has no attribute %R", module, self->name);
        Py_XDECREF(module);
        return NULL;
    }
    Py_INCREF(value);
    if (value == self->original && !unwatched(self->watch)) {
        PyObject *wrapper = wrapper_of(self->watch, &self->askings, self->make);
        if (wrapper != NULL)
            Py_SETREF(value, wrapper);
        else if (PyErr_Occurred())
            Py_CLEAR(value);
    }
    return value;
}

static PyObject *
function_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *watch, *given[5];
    if (!PyArg_ParseTuple(args, "O!O!OOOO:Function", &Watch_Type, &watch, &PyDict_Type, &given[0], &given[1], &given[2],
                          &given[3], &given[4]))
        return NULL;
    Function *self = (Function *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = function_vectorcall;
        self->watch = (Watch *)Py_NewRef(watch);
        for (int i = 0; i < 5; i++)
            (&self->names)[i] = Py_NewRef(given[i]);
    }
    return (PyObject *)self;
}

static int
function_traverse(Function *self, visitproc visit, void *arg)
{
    Py_VISIT(self->watch);
    for (int i = 0; i < 5; i++)
        Py_VISIT((&self->names)[i]);
    return 0;
}

static int
function_clear(Function *self)
{
    for (int i = 0; i < 5; i++)
        Py_CLEAR((&self->names)[i]);
    return 0;
}

static void
function_dealloc(Function *self)
{
    PyObject_GC_UnTrack(self);
    table_clear(&self->askings, drop_asking);
    function_clear(self);
    Py_CLEAR(self->watch);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
function_forget(Function *self, PyObject *Py_UNUSED(ignored))
{
    table_clear(&self->askings, drop_asking);
    Py_RETURN_NONE;
}

static PyMethodDef function_methods[] = {
    {"clear", (PyCFunction)function_forget, METH_NOARGS, "Forget all places."}, {NULL, NULL, 0, NULL}};

static PyTypeObject Function_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pyprof.capture._compiled.Function",
    .tp_doc = "Function(watch, names, name, original, absent, make)\n\nCompiled form of `function` in lookups.py.",
    .tp_basicsize = sizeof(Function),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Function, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = function_new,
    .tp_dealloc = (destructor)function_dealloc,
    .tp_traverse = (traverseproc)function_traverse,
    .tp_clear = (inquiry)function_clear,
    .tp_methods = function_methods,
};

/* A method of a class. */
typedef struct {
    PyObject_HEAD
    Watch *watch;
    PyObject *original, *make;
    Table askings;
} Method;

static PyObject *
method_get(Method *self, PyObject *instance, PyObject *owner)
{
    if (instance == NULL || instance == Py_None)
        return Py_NewRef(self->original);
    PyObject *wrapper = unwatched(self->watch) ? NULL : wrapper_of(self->watch, &self->askings, self->make);
    if (wrapper == NULL && PyErr_Occurred())
        return NULL;
    if (wrapper == NULL) {
        descrgetfunc get = Py_TYPE(self->original)->tp_descr_get;
        return get != NULL ? get(self->original, instance, owner) : Py_NewRef(self->original);
    }
    PyObject *bound = PyMethod_New(wrapper, instance);
    Py_DECREF(wrapper);
    return bound;
}

static PyObject *
method_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *watch, *original, *make;
    if (!PyArg_ParseTuple(args, "O!OO:Method", &Watch_Type, &watch, &original, &make))
        return NULL;
    Method *self = (Method *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->watch = (Watch *)Py_NewRef(watch);
        self->original = Py_NewRef(original);
        self->make = Py_NewRef(make);
    }
    return (PyObject *)self;
}

static int
method_traverse(Method *self, visitproc visit, void *arg)
{
    Py_VISIT(self->watch);
    Py_VISIT(self->original);
    Py_VISIT(self->make);
    return 0;
}

static int
method_clear(Method *self)
{
    Py_CLEAR(self->original);
    Py_CLEAR(self->make);
    return 0;
}

static void
method_dealloc(Method *self)
{
    PyObject_GC_UnTrack(self);
    table_clear(&self->askings, drop_asking);
    method_clear(self);
    Py_CLEAR(self->watch);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
method_forget(Method *self, PyObject *Py_UNUSED(ignored))
{
    table_clear(&self->askings, drop_asking);
    Py_RETURN_NONE;
}

static PyMethodDef method_methods[] = {
    {"clear", (PyCFunction)method_forget, METH_NOARGS, "Forget all places."}, {NULL, NULL, 0, NULL}};

static PyMemberDef method_members[] = {{"original", T_OBJECT, offsetof(Method, original), READONLY, "Original attribute of the class."},
                                       {NULL, 0, 0, 0, NULL}};

static PyTypeObject Method_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pyprof.capture._compiled.Method",
    .tp_doc = "Method(watch, original, make)\n\nCompiled form of `Method` in lookups.py.",
    .tp_basicsize = sizeof(Method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = method_new,
    .tp_dealloc = (destructor)method_dealloc,
    .tp_traverse = (traverseproc)method_traverse,
    .tp_clear = (inquiry)method_clear,
    .tp_descr_get = (descrgetfunc)method_get,
    .tp_methods = method_methods,
    .tp_members = method_members,
};

/* --- The module. */

/* `__getattribute__` of a class of modules: that of modules, without a frame of Python. What a base class has for
 * `tp_getattro` may be what looks up `__getattribute__`, and so comes back here. */
static PyObject *
module_getattribute(PyObject *self, PyObject *name)
{
    return PyModule_Type.tp_getattro(self, name);
}

static PyMethodDef getattribute = {"__getattribute__", module_getattribute, METH_O, NULL};

static PyObject *
forked(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    forks++;
    Py_RETURN_NONE;
}

/* Python prints and forgets what a callback of its collector raises, and what code of weak references raises while it collects. The
 * error of a handler of the program that ran in our callback is raised in the program, after the collection. */
static PyObject *late;

static int
raise_late(void *Py_UNUSED(nothing))
{
    PyObject *error = late;
    late = NULL;
    if (error == NULL) return 0;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return -1;
}

static PyObject *
collected(PyObject *function, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *type, *error, *trace, *result = PyObject_Vectorcall(function, arguments, count, NULL);
    if (result == NULL) {
        PyErr_Fetch(&type, &error, &trace);
        PyErr_NormalizeException(&type, &error, &trace);
        if (trace != NULL) PyException_SetTraceback(error, trace);
        Py_XDECREF(type);
        Py_XDECREF(trace);
        if (late == NULL) late = error;
        else Py_DECREF(error);
    }
    Py_XDECREF(result);
    if (late != NULL && count && PyUnicode_CheckExact(arguments[0]) && !PyUnicode_CompareWithASCIIString(arguments[0], "stop") &&
        Py_AddPendingCall(raise_late, NULL) < 0)
        Py_CLEAR(late);
    Py_RETURN_NONE;
}

static PyMethodDef collected_method = {"collected", (PyCFunction)(void (*)(void))collected, METH_FASTCALL, NULL};

static PyObject *
collector_callback(PyObject *Py_UNUSED(module), PyObject *function)
{
    return PyCFunction_New(&collected_method, function);
}

static PyMethodDef functions[] = {
    {"collector_callback", collector_callback, METH_O, "Return a function as a callback of Python's collector, whose errors are not lost."},
    {"forked", forked, METH_NOARGS, "Forget the state of the thread: it has another one in a forked child."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_compiled", .m_doc = "The path of a recorded call, compiled.", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC
PyInit__compiled(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyObject *look_up = PyDescr_NewMethod(&PyModule_Type, &getattribute);
    name_state = PyUnicode_InternFromString("state");
    if (module == NULL || look_up == NULL || name_state == NULL || PyModule_AddType(module, &Watch_Type) < 0 ||
        PyModule_AddType(module, &Call_Type) < 0 || PyModule_AddType(module, &Function_Type) < 0 ||
        PyModule_AddType(module, &Method_Type) < 0 || PyModule_AddObjectRef(module, "getattribute", look_up) < 0)
        Py_CLEAR(module);
    Py_XDECREF(look_up);
    return module;
}
