/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVML over the fake driver's GPUs, for WEFT_LIBNVML, and as libnvidia-ml.so.1
 * before an unchanged UCX, to which it says that no driver is loaded unless
 * FAKE_NVML asks for more.  Physical GPUs 0 and 1 are joined by NVLink,
 * straight; 2 and 3 through a switch; 0-1 and 2-3 have PCIe between them; GPU 4
 * cannot be read by any.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/cuda/fake_cuda_int.h"
#include "util/drivers/nvml.h"

#define INVALID_ARGUMENT 2 /* NVML_ERROR_INVALID_ARGUMENT */
#define NOT_SUPPORTED	 3
#define NOT_FOUND	 6
#define SWITCH_BUS	 0x40

static int inits;

EXPORT int nvmlInit_v2(void)
{
	if (!getenv(FAKE_NVML))
		return WEFT_NVML_DRIVER_NOT_LOADED;
	fake_find_gpus();
	inits++;
	return 0;
}

EXPORT int nvmlShutdown(void)
{
	return inits-- > 0 ? 0 : 1;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = fake_gpus;
	return inits > 0 ? 0 : 1;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **dev)
{
	if (inits <= 0)
		return WEFT_NVML_DRIVER_NOT_LOADED;
	if (index >= (unsigned int)fake_gpus)
		return INVALID_ARGUMENT;
	*dev = &fake_phys_of[index];
	return 0;
}

static int phys(void *dev)
{
	return *(int *)dev;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *busid, void **dev)
{
	unsigned int domain, bus, device;
	int i;

	if (sscanf(busid, "%x:%x:%x.0", &domain, &bus, &device) != 3)
		return INVALID_ARGUMENT;
	for (i = 0; i < fake_gpus; i++)
		if (bus == 0xe0u + fake_phys_of[i] && !domain && !device)
			return nvmlDeviceGetHandleByIndex_v2(i, dev);
	return NOT_FOUND;
}

static void pci_of(unsigned int bus, struct weft_nvml_pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	pci->bus = bus;
	snprintf(pci->busid, sizeof(pci->busid), "00000000:%02X:00.0", bus);
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *dev, struct weft_nvml_pci *pci)
{
	pci_of(0xe0 + phys(dev), pci);
	return 0;
}

EXPORT int nvmlDeviceGetName(void *dev, char *name, unsigned int len)
{
	snprintf(name, len, "a fake GPU %d", phys(dev));
	return 0;
}

EXPORT int nvmlDeviceGetUUID(void *dev, char *uuid, unsigned int len)
{
	snprintf(uuid, len, "GPU-fa4e000%d-0000-0000-0000-000000000000",
		 phys(dev));
	return 0;
}

EXPORT int nvmlDeviceGetMigMode(void *dev, unsigned int *now,
				unsigned int *pending)
{
	*now = *pending = fake_mig();
	return 0;
}

EXPORT int nvmlDeviceGetP2PStatus(void *dev, void *other, int capability,
				  int *status)
{
	bool ok = phys(dev) != 4 && phys(other) != 4;

	if (capability == WEFT_NVML_P2P_NVLINK)
		ok = ok && phys(dev) / 2 == phys(other) / 2;
	else if (capability != WEFT_NVML_P2P_READ)
		return INVALID_ARGUMENT;
	*status = ok ? WEFT_NVML_P2P_OK : 1; /* chipset not supported */
	return 0;
}

/* Links 0 to 5 are up, but for one. */
EXPORT int nvmlDeviceGetNvLinkState(void *dev, unsigned int link, int *active)
{
	if (phys(dev) >= 4)
		return NOT_SUPPORTED;
	if (link >= 18)
		return INVALID_ARGUMENT;
	*active = link < 6 && link != 3;
	return 0;
}

/* GPUs 0 and 1: four of the five to each other, one to somewhere else. */
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *dev, unsigned int link,
					       struct weft_nvml_pci *pci)
{
	if (phys(dev) < 2 && link < 5)
		pci_of(0xe0 + (phys(dev) ^ 1), pci);
	else
		pci_of(SWITCH_BUS + link, pci);
	return 0;
}

EXPORT const char *nvmlErrorString(int err)
{
	return "an error of the fake NVML";
}

/* What UCX asks beyond that (uct/cuda/cuda_ipc). */
#define NO_NVML(name)                               \
	EXPORT int name(void)                       \
	{                                           \
		return WEFT_NVML_DRIVER_NOT_LOADED; \
	}
NO_NVML(nvmlInitWithFlags)
NO_NVML(nvmlDeviceGetFieldValues)
NO_NVML(nvmlDeviceGetGpuFabricInfo)
