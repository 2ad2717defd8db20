/* A driver library of made-up machines: answers what pynvml asks, as the environment says.

   FAKE_NVML_INIT, _OPEN, _MEMORY, _LIST: an NVML error code with which that question is refused.
   FAKE_NVML_TOTAL, _USED: bytes of the card.   FAKE_NVML_SLICE: bytes of its one slice (MIG).
   FAKE_NVML_PROCESSES: "PID:BYTES,...", PID may be "self", BYTES "-" where there is no figure.
   -DOLD_DRIVER leaves out what drivers before 510 do not have, -DOLDER_DRIVER any list. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int instance, compute_instance;
} Process;

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
#define UUID "8932f937-d72c-4106-c12f-20bd9faed9f6"
#define BUS_ID "0000:3b:00.0"
static int card, slice; /* only their addresses matter */

static unsigned long long number(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text == NULL || *text == 0 ? otherwise : strtoull(text, NULL, 10);
}
static int refusal(const char *name) { return (int)number(name, OK); }
static unsigned long long slice_bytes(void) { return number("FAKE_NVML_SLICE", 0); }

int nvmlInitWithFlags(unsigned int flags) { return refusal("FAKE_NVML_INIT"); }
int nvmlInit_v2(void) { return refusal("FAKE_NVML_INIT"); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return "an error pynvml has no words for"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 1;
    return OK;
}
static int opened(void **handle, void *found) {
    *handle = found;
    return refusal("FAKE_NVML_OPEN");
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    return index ? NOT_FOUND : opened(handle, &card);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    if (!strcmp(uuid, "MIG-" UUID) && slice_bytes()) return opened(handle, &slice);
    return strcmp(uuid, "GPU-" UUID) ? NOT_FOUND : opened(handle, &card);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle) {
    return strcmp(bus, BUS_ID) ? NOT_FOUND : opened(handle, &card);
}
int nvmlDeviceGetMigMode(void *handle, unsigned int *now, unsigned int *next) {
    if (handle != &card) return NOT_SUPPORTED;
    *now = *next = slice_bytes() != 0;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count) {
    *count = 7;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **found) {
    *found = &slice;
    return index ? NOT_FOUND : OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    int code = handle == &card ? refusal("FAKE_NVML_MEMORY") : OK;
    memory->total = handle == &slice ? slice_bytes() : number("FAKE_NVML_TOTAL", 16ULL << 30);
    memory->used = number("FAKE_NVML_USED", 0);
    memory->free = memory->total - memory->used;
    return code;
}

#ifndef OLDER_DRIVER
static int processes(unsigned int *count, Process *found) {
    char text[1024];
    unsigned int seen = 0;
    int code = refusal("FAKE_NVML_LIST");
    if (code) return code;
    snprintf(text, sizeof text, "%s", getenv("FAKE_NVML_PROCESSES") ? getenv("FAKE_NVML_PROCESSES") : "");
    for (char *one = strtok(text, ","); one != NULL; one = strtok(NULL, ","), seen++) {
        char *bytes = strchr(one, ':');
        if (found == NULL || seen >= *count) continue;
        memset(&found[seen], 0, sizeof found[seen]);
        found[seen].pid = strncmp(one, "self", 4) ? (unsigned int)atoi(one) : (unsigned int)getpid();
        found[seen].used = bytes[1] == '-' ? ~0ULL : strtoull(bytes + 1, NULL, 10);
    }
    code = seen > (found == NULL ? 0 : *count) ? TOO_SMALL : OK;
    *count = seen;
    return code;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *count, Process *found) {
    return processes(count, found);
}
#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, Process *found) {
    return processes(count, found);
}
#endif
#endif

int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned int *clock) {
    *clock = kind == 1 ? 1980 : 2619;
    return handle == &card ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius) {
    *celsius = 45;
    return handle == &card ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    *reasons = 0x4; /* a power cap */
    return handle == &card ? OK : NOT_SUPPORTED;
}
#if !defined(OLD_DRIVER) && !defined(OLDER_DRIVER)
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(handle, reasons);
}
#endif
