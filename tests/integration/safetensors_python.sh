#!/bin/bash
# SPDX-License-Identifier: MIT
# Python's safetensors and ours read each other's files: Python writes tensors of many kinds,
# st_copy reads and writes them again, Python finds the same. With PyTorch its tensors too. TAP.
set -u
python=${PYTHON:-python3}
copy=${builddir:?run by make check}/tests/integration/st_copy

if ! why=$("$python" -c 'import numpy, safetensors.numpy' 2>&1); then
	echo "1..0 # SKIP $python: ${why##*$'\n'}"
	exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$python" - "$copy" "$dir" <<'PYTHON'
import json, subprocess, sys
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

copy, folder = sys.argv[1:]
try:
    import torch
    from safetensors.torch import load_file as load_torch, save_file as save_torch
except ImportError:
    torch = None
count = 0

def result(ok, what):
    global count
    count += 1
    print(f"{'ok' if ok else 'not ok'} {count} - {what}")

def copied(name):
    to = f"{folder}/{name}-copy"
    ran = subprocess.run([copy, f"{folder}/{name}", to], capture_output=True, text=True)
    if ran.returncode:
        print("#", ran.stderr.strip())
        return None
    return to

rng = np.random.default_rng(1)
kinds = ["float32", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]
shapes = [(), (0, 3), (1,), (7,), (3, 5), (4, 1, 3, 3), (1, 2, 1, 2, 1, 2, 1, 2)]
tensors = {f"{k}.{i} \"é\\": np.asarray(rng.random(s) * 100, dtype=k)
           for k in kinds for i, s in enumerate(shapes)}
meta = {"format": "np", "text": "line\n\"quoted\" é 😀 \t\\ \x7f"}
save_file(tensors, f"{folder}/many", metadata=meta)
to = copied("many")
back = load_file(to) if to else {}
result(back.keys() == tensors.keys() and all(
    back[k].dtype == tensors[k].dtype and back[k].shape == tensors[k].shape
    and back[k].tobytes() == tensors[k].tobytes() for k in tensors), "tensors of every kind")
same = False
if to:
    with safe_open(to, "np") as f:
        same = f.metadata() == meta
result(same, "metadata")

save_file({}, f"{folder}/none")
to = copied("none")
result(to is not None and load_file(to) == {}, "no tensors")

# The header of our files ends where data may be used in place.
raw = open(f"{folder}/many-copy", "rb").read() if to else b""
n = int.from_bytes(raw[:8], "little")
result((8 + n) % 64 == 0 and "__metadata__" in json.loads(raw[8:8 + n] or "{}"), "alignment")

if torch:
    t = {"w": torch.randn(8, 3, 3, 3), "b": torch.randn(8).to(torch.bfloat16),
         "s": torch.tensor(3.5)}
    save_torch(t, f"{folder}/torch")
    to = copied("torch")
    back = load_torch(to) if to else {}
    result(back.keys() == t.keys() and all(
        back[k].dtype == t[k].dtype and torch.equal(back[k], t[k]) for k in t), "PyTorch tensors")
else:
    print("ok 5 - PyTorch tensors # SKIP no torch for this Python")
    count += 1
print(f"1..{count}")
PYTHON
