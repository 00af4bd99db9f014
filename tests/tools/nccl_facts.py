#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What weft relies on in NCCL's binaries: the functions that they import, by
which kind of slot, and the names of files and sockets that they use.

    nccl_facts.py WHEEL...      a line of facts for each of Python's packages
    nccl_facts.py --check       reads such lines; names what weft cannot redirect

A line has the release, the package, and words: relro or none (whether there is
a read-only part), FUNCTION:SLOT, where SLOT has j for a slot of the procedure
linkage table, g for one that holds an address, each with -ro where the loader
makes it read-only; then the strings.
"""
import re
import struct
import sys
import zipfile

# What weft takes over; every call that NCCL makes for its names comes by these.
NEEDED = [("__xstat", "stat", "__xstat64", "stat64"), ("open", "open64"),
          ("mkstemp", "mkstemp64"), ("unlink",), ("bind",), ("sendmsg",),
          ("getenv",)]
# Other ways to the same files and sockets, which weft does not take over.
# (shm_open, remove and fopen come with the CUDA runtime that NCCL contains.)
AROUND = """openat openat64 __open_2 __open64_2 lstat __lxstat fstatat
    fstatat64 __fxstatat __fxstatat64 statx statfs mkostemp mkostemp64 mkdtemp
    mktemp unlinkat rename link sendto sendmmsg secure_getenv""".split()
WATCHED = {name for names in NEEDED for name in names} | set(AROUND)
SLOTS = {6: "g", 7: "j"}        # R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT

# "/dev/shm/nccl-XXXXXX" may be stored by instructions, 16 bytes at a time.
NAMES = re.compile(rb"(?<![ \w])(/dev/shm[\w./%-]*|[\w./%-]*nccl-socket[\w./%-]*"
                   rb"|NCCL_HOSTID|NCCL_ENV_PLUGIN|NCCL_IPC_USE_ABSTRACT_SOCKET"
                   rb"|/proc/sys/kernel/random/boot_id)(?=\0|NCCL)?")
STRINGS = {"/dev/shm", "/dev/shm/nccl-%s", "/tmp/nccl-socket-%d-%lx",
           "NCCL_HOSTID", "/proc/sys/kernel/random/boot_id"}
KNOWN = STRINGS | {"/dev/shm/nccl-%.6s", "/dev/shm/nccl-XX", "NCCL_ENV_PLUGIN",
                   "NCCL_IPC_USE_ABSTRACT_SOCKET"}

PT_DYNAMIC, PT_GNU_RELRO = 2, 0x6474E552
DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ = 5, 6, 7, 8
DT_PLTRELSZ, DT_JMPREL, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = (
    2, 23, 24, 30, 0x6FFFFFFB)


def facts(file):
    """The words for an x86-64 library; its tables and strings come first."""
    head = file.read(16 << 20)
    phoff, = struct.unpack_from("<Q", head, 32)
    phnum, = struct.unpack_from("<H", head, 56)
    segments = [struct.unpack_from("<IIQQQQQQ", head, phoff + 56 * i)
                for i in range(phnum)]
    readonly = [(s[3], s[3] + s[6]) for s in segments if s[0] == PT_GNU_RELRO]
    dynamic = next(s for s in segments if s[0] == PT_DYNAMIC)
    file.seek(dynamic[2])
    tags = dict(struct.iter_unpack("<QQ", file.read(dynamic[5])))
    slots = {}
    for start, size in ((DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)):
        for at in range(tags[start], tags[start] + tags[size], 24):
            slot, info = struct.unpack_from("<QQ", head, at)
            symbol = tags[DT_SYMTAB] + 24 * (info >> 32)
            name, = struct.unpack_from("<I", head, symbol)
            section, = struct.unpack_from("<H", head, symbol + 6)
            name += tags[DT_STRTAB]
            name = head[name:head.index(b"\0", name)].decode()
            if section or name not in WATCHED:
                continue
            kind = SLOTS.get(info & 0xFFFFFFFF, str(info & 0xFFFFFFFF))
            if any(a <= slot < b for a, b in readonly):
                kind += "-ro"
            slots.setdefault(name, set()).add(kind)
    now = (DT_BIND_NOW in tags or tags.get(DT_FLAGS, 0) & 8 or
           tags.get(DT_FLAGS_1, 0) & 1)
    strings = {re.sub("XX.*", "XX", m.decode()) for m in NAMES.findall(head)}
    return (["relro" if readonly else "none"] + ["now"] * bool(now) +
            sorted(f"{n}:{'+'.join(sorted(k))}" for n, k in slots.items()) +
            sorted(strings - {"/dev/shm/"}))


def wheel(path):
    package, release = path.split("/")[-1].split("-")[:2]
    with zipfile.ZipFile(path) as z, z.open("nvidia/nccl/lib/libnccl.so.2") as f:
        return " ".join([release, package.split("_")[-1]] + facts(f))


def complaints(words):
    """What of a line's words would pass weft by."""
    slots = dict(w.split(":") for w in words if ":" in w)
    strings = {w for w in words[2:] if "/" in w or "_" in w and ":" not in w}
    for names in NEEDED:
        if not any(name in slots for name in names):
            yield "no import of " + " or ".join(names)
    for name, kinds in slots.items():
        if name in AROUND:
            yield f"{name} is imported, which is not redirected"
        elif set(kinds.replace("-ro", "").split("+")) - {"g", "j"}:
            yield f"{name} by a relocation of kind {kinds}"
    for name in sorted(STRINGS - strings):
        yield f"no string {name}"
    for name in sorted(strings - KNOWN):
        yield f"an unknown name {name}"


def main():
    if sys.argv[1:] != ["--check"]:
        for path in sys.argv[1:]:
            print(wheel(path), flush=True)
        return 0
    bad = 0
    for line in sys.stdin:
        words = line.split()
        if not words or line.startswith("#"):
            continue
        for what in complaints(words):
            print(f"NCCL {words[0]} ({words[1]}): {what}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
