/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVIDIA's management library, and the only dlopen() of it: lists GPUs and the
 * links between them.  Creates no CUDA context.  Building does not need its
 * header: names, values and layouts are those of nvml.h 13.0, unchanged since
 * 11.0 (tests/check/cuda.sh compares the names if that header is installed).
 */
#ifndef WEFT_UTIL_DRIVERS_NVML_H
#define WEFT_UTIL_DRIVERS_NVML_H

#define WEFT_NVML_SUCCESS	    0
#define WEFT_NVML_DRIVER_NOT_LOADED 9
#define WEFT_NVML_P2P_READ	    0 /* nvmlGpuP2PCapsIndex_t */
#define WEFT_NVML_P2P_NVLINK	    2
#define WEFT_NVML_P2P_OK	    0  /* nvmlGpuP2PStatus_t */
#define WEFT_NVML_MAX_LINKS	    36 /* NVML_NVLINK_MAX_LINKS */
#define WEFT_NVML_NAME_LEN	    96 /* NVML_DEVICE_NAME_V2_BUFFER_SIZE */
#define WEFT_NVML_UUID_LEN	    96 /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */

/* nvmlPciInfo_t */
struct weft_nvml_pci {
	char busid_legacy[16];
	unsigned int domain, bus, device;
	unsigned int device_id, subsystem_id;
	char busid[32];
};
_Static_assert(sizeof(struct weft_nvml_pci) == 68, "as nvml.h has it");

/* X(field, symbol, arguments) */
#define WEFT_NVML_CALLS(X)                                                    \
	X(init, nvmlInit_v2, (void))                                          \
	X(shutdown, nvmlShutdown, (void))                                     \
	X(count, nvmlDeviceGetCount_v2, (unsigned int *n))                    \
	X(by_index, nvmlDeviceGetHandleByIndex_v2,                            \
	  (unsigned int index, void **dev))                                   \
	X(by_busid, nvmlDeviceGetHandleByPciBusId_v2,                         \
	  (const char *busid, void **dev))                                    \
	X(pci, nvmlDeviceGetPciInfo_v3, (void *dev, struct weft_nvml_pci *))  \
	X(name, nvmlDeviceGetName, (void *dev, char *name, unsigned int len)) \
	X(uuid, nvmlDeviceGetUUID, (void *dev, char *uuid, unsigned int len)) \
	X(mig_mode, nvmlDeviceGetMigMode,                                     \
	  (void *dev, unsigned int *now, unsigned int *pending))              \
	X(p2p_status, nvmlDeviceGetP2PStatus,                                 \
	  (void *dev, void *other, int capability, int *status))              \
	X(link_state, nvmlDeviceGetNvLinkState,                               \
	  (void *dev, unsigned int link, int *active))                        \
	X(link_remote, nvmlDeviceGetNvLinkRemotePciInfo_v2,                   \
	  (void *dev, unsigned int link, struct weft_nvml_pci *))

struct weft_nvml {
#define X(field, symbol, args) int(*field) args;
	WEFT_NVML_CALLS(X)
#undef X
};

/*
 * Load the library ($WEFT_LIBNVML or libnvidia-ml.so.1) and initialise it.
 * NULL: unavailable, and *@why (a static text) says what is missing.  Pair each
 * success with one weft_nvml_close().  Any thread.
 */
const struct weft_nvml *weft_nvml_open(const char **why);
void weft_nvml_close(const struct weft_nvml *nvml);

#endif
