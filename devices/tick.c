/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/tick.h"

#include <sys/timerfd.h>

void weft_tick_set(int fd, unsigned int ms)
{
	struct itimerspec its = { .it_value.tv_nsec = ms * 1000000L };

	its.it_interval = its.it_value;
	timerfd_settime(fd, 0, &its, NULL);
}
