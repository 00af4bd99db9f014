# SPDX-License-Identifier: BSD-3-Clause
"""Prints which variable takes which path of this environment's weft."""
from weft import paths

for name, path in paths.items():
    print(name + "=" + path)
