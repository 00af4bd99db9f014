# SPDX-License-Identifier: BSD-3-Clause
"""
Builds and tests the packages of recipe.yaml where there is no rattler-build
but its Python package, as on PyPI.

usage: build.py OUTPUT_FOLDER
"""
import os
import sys

from rattler_build import Package, Stage0Recipe

channel = os.path.abspath(sys.argv[1])
recipe = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recipe.yaml")
for built in Stage0Recipe.from_file(recipe).run_build(output_dir=channel,
                                                      channels=[]):
    for path in built.packages:
        for test in Package.from_file(path).run_tests(channel=[channel]):
            if not test.success:
                sys.exit("\n".join([f"{path}: a test failed"] + test.output))
        print(path)
