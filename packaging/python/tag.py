# SPDX-License-Identifier: BSD-3-Clause
"""
Tells hatchling what the wheel is for: any Python 3, and of the machine that
WEFT_WHEEL_CPU names a glibc of 2.28 or newer, as tests/check/symbols.sh and
tests/package/wheel.sh check.
"""
import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = ("py3-none-manylinux_2_28_" +
                             os.environ["WEFT_WHEEL_CPU"])
