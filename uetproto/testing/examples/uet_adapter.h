/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of a shared library that uetproto.testing.LibraryAdapter drives as one endpoint; see
 * docs/howto/machines.md. Frames are Ethernet frames with IPv4, UDP and a CRC32C. Time passes only in
 * uet_advance.
 *
 * The library writes at most `size` bytes. After it has returned it keeps no pointer that it was given.
 */
#ifndef UET_ADAPTER_H
#define UET_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UET_ADAPTER_VERSION 1
#define UET_FRAME_MAX 65535             /* the buffer of uet_poll has this size */

enum { UET_OK = 0, UET_REFUSED = 1 };   /* what functions of type int return; a negative number is an error */

struct uet_config {
    uint32_t address;                   /* own IPv4 address, as a number: 0x0a000001 is 10.0.0.1 */
    uint32_t peer;                      /* address of the peer */
    uint32_t seed;
    const char *json;                   /* the whole configuration, with "knobs" */
};

int uet_adapter_version(void);          /* returns UET_ADAPTER_VERSION */
const char *uet_capabilities(void);     /* fields of Capabilities as JSON: {"modes": ["rud"]} */
void *uet_create(void);                 /* returns an endpoint, NULL if there is no memory */
void uet_destroy(void *endpoint);

/* Begins anew: forgets all state. */
int uet_reset(void *endpoint, const struct uet_config *config);

/* Sends a message. Each packet is an SES header and payload. UET_REFUSED: not at this moment. */
int uet_submit_message(void *endpoint, uint32_t id, const char *mode, size_t count,
                       const uint8_t *const packets[], const size_t lengths[]);

/* Optional. Takes work other than a message, as JSON: {"op": "close"}. */
int uet_submit(void *endpoint, const char *work);

int uet_deliver(void *endpoint, const uint8_t *frame, size_t length);   /* a frame arrives, or garbage */
int uet_advance(void *endpoint, uint64_t picoseconds);                  /* time passes */

/* Writes the next frame that leaves and returns its length; 0: no frame leaves at this time. */
int64_t uet_poll(void *endpoint, uint8_t *buffer, size_t size);

/* Optional; without it the library is a black box. Writes {"events": [...], "state": {...}} and returns its
 * length. If that is above `size`, nothing was forgotten, and the call comes again with a larger buffer. */
int64_t uet_observe(void *endpoint, char *buffer, size_t size);

/* Helpers: the numbers of the wire, and the lower headers and the CRC32C of a frame. */

#define UET_LOWER 42u                   /* bytes of Ethernet, IPv4 and UDP; UET packet and CRC32C follow */
#define UET_PORT 4793u

static inline uint16_t uet_get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static inline uint32_t uet_get32(const uint8_t *at) { return 0x10000u * uet_get16(at) + uet_get16(at + 2); }
static inline void uet_put16(uint8_t *at, uint32_t n) { at[0] = (uint8_t)(n >> 8), at[1] = (uint8_t)n; }
static inline void uet_put32(uint8_t *at, uint32_t n) { uet_put16(at, n >> 16), uet_put16(at + 2, n); }

/* The checksum of an IPv4 header of 20 bytes; 0 if the header has its right checksum. */
static inline uint16_t uet_ip_checksum(const uint8_t *header)
{
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2)
        sum += uet_get16(header + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* The CRC32C of the first `end` bytes of a frame: from the IP source address on, with a UDP checksum of 0. */
static inline uint32_t uet_crc(const uint8_t *frame, size_t end)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 26; i < end; i++) {
        crc ^= i == 40 || i == 41 ? 0 : frame[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* Makes a frame around the UET packet at frame + UET_LOWER; returns its length. `tos` is DSCP and ECN. */
static inline size_t uet_make_frame(uint8_t *frame, uint32_t from, uint32_t to, uint32_t tos, size_t length)
{
    uint32_t end = UET_LOWER + (uint32_t)length, total = end + 4;
    memset(frame, 2, 12);                               /* MAC addresses, which nobody compares */
    memset(frame + 12, 0, UET_LOWER - 12);
    uet_put16(frame + 12, 0x0800);
    uet_put16(frame + 14, 0x4500 | tos);
    uet_put16(frame + 16, total - 14);
    uet_put16(frame + 20, 0x4000);                      /* DF */
    uet_put16(frame + 22, 64 << 8 | 17);                /* TTL, UDP */
    uet_put32(frame + 26, from), uet_put32(frame + 30, to);
    uet_put16(frame + 24, uet_ip_checksum(frame + 14));
    uet_put16(frame + 34, 0xc000), uet_put16(frame + 36, UET_PORT);
    uet_put16(frame + 38, total - 34);
    uet_put32(frame + end, uet_crc(frame, end));
    return total;
}

/* Returns the length of the UET packet in a frame; 0 if it is damaged, trimmed, or not for this endpoint. */
static inline size_t uet_packet_length(const uint8_t *frame, size_t length, uint32_t from, uint32_t to)
{
    if (length < UET_LOWER + 4 || uet_get16(frame + 12) != 0x0800 || uet_ip_checksum(frame + 14))
        return 0;
    size_t end = 10u + uet_get16(frame + 16);           /* where the CRC32C is; trimmed frames have none */
    bool whole = end >= UET_LOWER && end + 4 <= length && uet_get16(frame + 38) + 30u == end;
    bool is_uet = frame[14] == 0x45 && frame[23] == 17 && uet_get16(frame + 36) == UET_PORT;
    bool ours = uet_get32(frame + 26) == from && uet_get32(frame + 30) == to;
    return whole && is_uet && ours && uet_crc(frame, end) == uet_get32(frame + end) ? end - UET_LOWER : 0;
}

#endif
