/* SPDX-License-Identifier: BSD-3-Clause */
/* Verbs devices, shared by interfaces of a process. */
#ifndef WEFT_DEVICES_IB_DEVICE_H
#define WEFT_DEVICES_IB_DEVICE_H

#include "devices/ib/ib.h"

/* -ENOSPC: IB_MAX_DEVICES are open; -ENODEV, ...; logged. */
int ib_device_get(const char *name, struct ib_device **dev);
void ib_device_ref(struct ib_device *dev);
void ib_device_put(struct ib_device *dev);
/* Takes a reference to each open device, for ib_device_put(); how many. */
unsigned int ib_device_hold(struct ib_device *list[IB_MAX_DEVICES]);
/* A mask of the numbers of open devices. */
unsigned int ib_devices_open(void);
void ib_device_add_alarm(struct ib_device *dev, struct ib_alarm *alarm);
void ib_device_del_alarm(struct ib_alarm *alarm);

#endif
