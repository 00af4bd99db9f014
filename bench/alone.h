/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs on tests/lib/pair.h need that are no tests. */
#ifndef WEFT_BENCH_ALONE_H
#define WEFT_BENCH_ALONE_H

#include "tests/lib/pair.h"

/* A hook of a side: a message that is kept would count as memory of its peer.
 */
void drop_message(struct side *s, uint8_t id, void *data, size_t len);

#endif
