#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One row of the list, beside the others.
exec "${WEFT_BUILD:?}/tests/conformance/conformance" -d "shm, GPU memory"
