# SPDX-License-Identifier: MIT
"""Messages between a guest and its agent; agent/guest/guest_wire.h is the other side."""
import struct

VERSION = 1
MAGIC = 0x4C4E5544
MESSAGE_MAX = 32768
TOLD_MAX = 512  # of what the agent says
NAME_MAX = 256
RANK_MAX = 8
WEIGHT, PLAIN, STATISTIC = range(3)

HELLO, TENSORS, STEP, ANSWER, BYE = range(1, 6)
WELCOME, REFUSED, REQUEST, TRAIN, PAUSE, CLOCK, OVER, END, NOTICE = range(64, 73)
SNAPSHOT, APPLY, STATE, TRY, ADOPT, RESTORE, EVALUATE = range(1, 8)

_HELLO = struct.Struct("<BIHBBBIQQQQQdd")
_STEP = struct.Struct("<BQQdddddB")
_ANSWER = struct.Struct("<BIBQddqq")
_WELCOME = struct.Struct("<BQQQ")
_REQUEST = struct.Struct("<BBIQQ")
_CLOCK = struct.Struct("<BQQ")


def _text(text, most=255):
    raw = "".join(c if " " <= c <= "~" else "?" for c in text).encode()[:most]
    return bytes([len(raw)]) + raw


def hello(optimizer, vectors, evaluates, n_tensors, total, step_samples, step, samples, others,
          lr, momentum, run, name):
    return (_HELLO.pack(HELLO, MAGIC, VERSION, optimizer, vectors, evaluates, n_tensors, total,
                        step_samples, step, samples, others, lr, momentum)
            + _text(run) + _text(name, 31))


def tensors(entries):
    """The messages for (kind, name, shape) of each tensor, none over the limit."""
    piece, n = b"", 0
    for kind, name, shape in entries:
        raw = name.encode()
        one = (bytes([kind, len(shape)]) + struct.pack("<%dQ" % len(shape), *shape)
               + struct.pack("<H", len(raw)) + raw)
        if len(piece) + len(one) + 3 > MESSAGE_MAX:
            yield struct.pack("<BH", TENSORS, n) + piece
            piece, n = b"", 0
        piece, n = piece + one, n + 1
    if n:
        yield struct.pack("<BH", TENSORS, n) + piece


def step(number, samples, loss, lr, grad_norm, moved, seconds):
    return _STEP.pack(STEP, number, samples, 0.0 if loss is None else loss, lr, grad_norm, moved,
                      seconds, loss is not None)


def answer(serial, number=0, loss=0.0, own=0.0, correct=0, count=0, failed=None):
    return (_ANSWER.pack(ANSWER, serial, failed is not None, number, loss, own, correct, count)
            + _text(failed or ""))


def bye(words):
    return bytes([BYE]) + _text(words)


def read(message):
    """(kind, fields) of what the agent says."""
    kind = message[0]
    if kind == WELCOME:
        return kind, _WELCOME.unpack(message)[1:]
    if kind == REQUEST:
        return kind, _REQUEST.unpack(message)[1:]
    if kind == CLOCK:
        return kind, _CLOCK.unpack(message)[1:]
    if kind in (REFUSED, END, NOTICE):
        return kind, (message[1] != 0, message[3:3 + message[2]].decode("ascii", "replace"))
    return kind, ()
