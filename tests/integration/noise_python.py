# SPDX-License-Identifier: MIT
"""Shakes hands with noise_peer, the program given, in both roles: what we say noiseprotocol
understands, and the other way round. TAP."""
import os
import subprocess
import sys

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from noise.connection import Keypair, NoiseConnection

NAME = b"Noise_XXpsk0_25519_ChaChaPoly_SHA256"
count = 0


def result(ok, what):
    global count
    count += 1
    print(f"{'ok' if ok else 'not ok'} {count} - {what}")


def public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw)


class Refused(Exception):
    """noise_peer did not like what it heard."""


class Peer:
    """noise_peer as a process that reads and writes lines."""

    def __init__(self, role, psk, secret, prologue, payload):
        self.process = subprocess.Popen(
            [sys.argv[1], role, psk.hex(), secret.hex(), prologue, str(payload)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, data):
        self.process.stdin.write(bytes(data).hex() + "\n")
        self.process.stdin.flush()

    def hear(self, word=""):
        line = self.process.stdout.readline().rstrip("\n")
        if line == "refused":
            raise Refused()
        if not line.startswith(word):
            raise ValueError(f"{line or 'nothing'}, not {word or 'a message'}")
        return bytes.fromhex(line[len(word):])

    def close(self):
        self.process.stdin.close()
        rest = self.process.stdout.read().split()
        self.process.stdout.close()
        return self.process.wait(), rest


def shake(role, ours, theirs, payload, change=None):
    """A whole session; ours and theirs are (psk, prologue). What went wrong is raised."""
    secrets = os.urandom(32), os.urandom(32)
    peer = Peer(role, ours[0], secrets[0], ours[1], payload)
    n = NoiseConnection.from_name(NAME)
    n.set_psks(theirs[0])
    n.set_prologue(theirs[1])
    n.set_keypair_from_private_bytes(Keypair.STATIC, secrets[1])
    n.set_as_responder() if role == "initiator" else n.set_as_initiator()
    n.start_handshake()
    try:
        for i in range(3):
            if (i % 2 == 0) == (role == "initiator"):
                if bytes(n.read_message(peer.hear())) != b"x" * payload:
                    raise ValueError("another payload came")
            else:
                text = b"from Python" * (i + payload)
                message = bytearray(n.write_message(text))
                if change == i:
                    message[len(message) // 2] ^= 1
                peer.say(message)
                if peer.hear("payload ") != text:
                    raise ValueError("another payload arrived")
        if peer.hear("hash ") != n.get_handshake_hash():
            raise ValueError("the hashes differ")
        if peer.hear("remote ") != public(secrets[1]):
            raise ValueError("another static key arrived")
        peer.say(n.encrypt(b"a session from Python"))
        lines = 0
        while True:
            line = peer.process.stdout.readline().strip()
            if not line.startswith("sealed "):
                break
            lines += 1
            if n.decrypt(bytes.fromhex(line[7:])) != b"from C":
                raise ValueError("the session's bytes differ")
        if lines == 0 or line != "opened " + b"a session from Python".hex():
            raise ValueError(f"after the handshake: {line}")
    finally:
        status, rest = peer.close()
    if status != 0 or rest:
        raise ValueError(f"exit code {status}, {rest}")


def fails(kind, *args, **named):
    try:
        shake(*args, **named)
    except kind:
        return True
    return False


good = (os.urandom(32), "dunlin 1")
for role in "initiator", "responder":
    for payload in 0, 1, 1000:
        try:
            shake(role, good, good, payload)
            why = None
        except Exception as e:
            why = e
        result(why is None, f"as {role}, payloads of {payload} bytes")
        if why is not None:
            print("#", repr(why))

wrong = (os.urandom(32), good[1])
other = (good[0], "dunlin 2")
result(fails(InvalidTag, "initiator", good, wrong, 8), "it refuses our first message, wrong psk")
result(fails(Refused, "responder", good, wrong, 8), "we refuse its first message, wrong psk")
result(fails(InvalidTag, "initiator", good, other, 8), "it refuses another prologue")
result(fails(Refused, "responder", good, other, 8), "we refuse another prologue")
result(fails(Refused, "responder", good, good, 8, change=0), "we refuse a changed 1st message")
result(fails(Refused, "initiator", good, good, 8, change=1), "we refuse a changed 2nd message")
result(fails(Refused, "responder", good, good, 8, change=2), "we refuse a changed 3rd message")
print(f"1..{count}")
