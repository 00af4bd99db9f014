/* SPDX-License-Identifier: BSD-3-Clause */
/* The timer of an interface, by which deadlines are checked. */
#ifndef WEFT_DEVICES_TICK_H
#define WEFT_DEVICES_TICK_H

/*
 * Makes the timerfd @fd expire every @ms (below 1000) milliseconds from now on;
 * 0: no more.
 */
void weft_tick_set(int fd, unsigned int ms);

#endif
