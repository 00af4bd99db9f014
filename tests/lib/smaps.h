/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel says of the memory of this process. */
#ifndef WEFT_TESTS_SMAPS_H
#define WEFT_TESTS_SMAPS_H

#include <stdbool.h>

/* Is @p mapped, and left out of core dumps ("dd" in VmFlags)? */
bool smaps_undumped(const void *p);

#endif
