# SPDX-License-Identifier: BSD-3-Clause
"""
Makes a release of NCCL small enough to be carried to a machine that can fetch
nothing: of libnccl.so.2 only the GPU code of one architecture stays, the rest is
zeroed in place, so that nothing moves, and the whole is compressed by xz.

CUDA loads the code of its own architecture and does not look at the others'.
What nvcc left for another link (__nv_relfatbin) is not loaded at all where that
code is there. For tests only: on any other GPU such a library fails.

usage: nccl_pack.py ARCHITECTURE LIBRARY-OR-WHEEL OUTPUT     (90: Hopper)
"""
import lzma
import struct
import sys
import zipfile

# Fat binaries as nvcc writes them, seen in NCCL 2.18 to 2.32: containers of
# {magic, version, header size, size}, in them entries that begin with {kind,
# version, header size, size}; at byte 28 the architecture.
CONTAINER = struct.Struct("<IHHQ")
MAGIC = 0xBA55ED50
ENTRY = struct.Struct("<HHIQ")
ARCHITECTURE = struct.Struct("<I")
MACHINE_CODE = 2


def sections(lib):
    """(name, offset, size) of a 64-bit ELF file."""
    if lib[:5] != b"\x7fELF\x02":
        sys.exit("no 64-bit ELF file")
    start, = struct.unpack_from("<Q", lib, 0x28)
    size, count, names = struct.unpack_from("<HHH", lib, 0x3a)
    found = [struct.unpack_from("<IIQQQQ", lib, start + i * size)
             for i in range(count)]
    text = found[names][4]
    for name, _, _, _, offset, length in found:
        end = lib.index(b"\0", text + name)
        yield lib[text + name:end].decode(), offset, length


def entries(lib, offset, length):
    """(kind, architecture, where its code begins, its length)"""
    at, end = offset, offset + length
    while at < end:
        magic, _, header, size = CONTAINER.unpack_from(lib, at)
        if magic == 0:              # between two containers
            at += 8
            continue
        if magic != MAGIC:
            sys.exit("no fat binary at byte %d" % at)
        at += header
        stop = at + size
        while at < stop:
            kind, _, head, code = ENTRY.unpack_from(lib, at)
            yield (kind, ARCHITECTURE.unpack_from(lib, at + 28)[0], at + head,
                   code)
            at += head + code


def shrink(lib, keep):
    """Bytes of GPU code that stay."""
    stay = 0

    def clear(at, size):
        lib[at:at + size] = bytes(size)

    for name, offset, length in list(sections(lib)):
        if name.startswith(".debug"):
            clear(offset, length)
        if name not in (".nv_fatbin", "__nv_relfatbin"):
            continue
        for kind, arch, at, size in list(entries(lib, offset, length)):
            if (name, kind, arch) == (".nv_fatbin", MACHINE_CODE, keep):
                stay += size
            else:
                clear(at, size)
    return stay


def read(path):
    if not path.endswith(".whl"):
        with open(path, "rb") as file:
            return bytearray(file.read())
    with zipfile.ZipFile(path) as wheel:
        name, = (n for n in wheel.namelist() if n.endswith("/libnccl.so.2"))
        return bytearray(wheel.read(name))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    keep, source, output = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    lib = read(source)
    if not shrink(lib, keep):
        sys.exit("%s has no code for sm_%d" % (source, keep))
    with lzma.open(output, "wb", preset=6) as file:
        file.write(lib)


if __name__ == "__main__":
    main()
