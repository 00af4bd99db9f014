# SPDX-License-Identifier: BSD-3-Clause
"""
Makes PREFIX have the packages that are named, and no others, from a channel
of this machine, as conda and mamba do.

usage: prefix.py CHANNEL PREFIX [PACKAGE...]
"""
import asyncio
import os
import pathlib
import sys

from rattler import VirtualPackage, install, solve


async def main(channel, prefix, *packages):
    records = await solve([pathlib.Path(channel).absolute().as_uri()], packages,
                          virtual_packages=VirtualPackage.detect())
    await install(records, prefix, cache_dir=prefix + ".cache",
                  show_progress=False)


asyncio.run(main(*sys.argv[1:]))
# not through the interpreter's end, where rattler's threads once crashed
os._exit(0)
