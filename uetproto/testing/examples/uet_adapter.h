/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions that a shared library has for uetproto.testing.LibraryAdapter, which drives the library as one endpoint
 * (docs/machines.md). Frames are Ethernet frames with IPv4, UDP and a CRC32C. Time passes only in uet_advance.
 *
 * The library keeps none of the pointers that it is given after it has returned. It writes no more than `size` bytes.
 */
#ifndef UET_ADAPTER_H
#define UET_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

#define UET_ADAPTER_VERSION 1
#define UET_FRAME_MAX 65535         /* the buffer of uet_poll has this size */

enum { UET_OK = 0, UET_REFUSED = 1 };   /* what functions of type int return; a negative number is an error */

struct uet_config {
    uint32_t address;               /* own IPv4 address, as a number: 0x0a000001 is 10.0.0.1 */
    uint32_t peer;                  /* address of the peer */
    uint32_t seed;
    const char *json;               /* the whole configuration, with "knobs" */
};

int uet_adapter_version(void);      /* returns UET_ADAPTER_VERSION */
const char *uet_capabilities(void); /* a constant JSON object with fields of Capabilities, such as {"modes": ["rud"]} */
void *uet_create(void);             /* returns an endpoint, NULL if there is no memory */
void uet_destroy(void *endpoint);

/* Begins anew: forgets all state. */
int uet_reset(void *endpoint, const struct uet_config *config);

/* Sends a message. Each packet is an SES header and payload. UET_REFUSED: not at this moment. */
int uet_submit_message(void *endpoint, uint32_t id, const char *mode, size_t count, const uint8_t *const packets[],
                       const size_t lengths[]);

/* Optional. Takes work other than a message, as JSON: {"op": "close"}. */
int uet_submit(void *endpoint, const char *work);

int uet_deliver(void *endpoint, const uint8_t *frame, size_t length);   /* a frame arrives; wrong frames are no error */
int uet_advance(void *endpoint, uint64_t picoseconds);                  /* time passes */

/* Writes the next frame that leaves and returns its length; 0: no frame leaves at this time. */
int64_t uet_poll(void *endpoint, uint8_t *buffer, size_t size);

/* Optional; without it the library is a black box. Writes {"events": [...], "state": {...}} as JSON and returns its
 * length. A length above `size` means that nothing was written and nothing forgotten: the call comes again with a
 * larger buffer. */
int64_t uet_observe(void *endpoint, char *buffer, size_t size);

#endif
