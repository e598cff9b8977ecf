/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small endpoint of UET packet delivery (PDS), as an example of a library that uetproto.testing drives.
 *
 *     cc -shared -fPIC -O2 -o pdc.so pdc.c
 *
 * It has one PDC as initiator and one as target, RUD only, with windows of a fixed size. Every packet asks
 * for an ACK; every request is answered at once with the default response. There are no control packets, SACK
 * or congestion control. NACKs are ignored: a packet leaves again whenever its RTO expires without an ACK.
 * Section numbers are those of docs/protocol/pds.md.
 *
 * The environment variable PDC_FAULT switches on a fault:
 *     retx     a retransmission leaves with retx = 0
 *     twice    a duplicate is delivered again
 *     cack     CACK_PSN is the highest PSN that was received, whatever is missing below
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "uet_adapter.h"

#define WINDOW 1024u                    /* PSNs that a source may use ahead: Default_MPR 8, in units of 128 */
#define QUEUE 4096u                     /* packets that wait or are outstanding, and replies that wait */
#define RTO UINT64_C(1000000000)        /* picoseconds: 1 ms, doubled after each retransmission */

#define PDS 12u                         /* bytes of the PDS header of requests and ACKs */
#define SES 44u                         /* bytes of the SES standard header */
#define BODY_MAX 1500u                  /* bytes of SES header and payload */
#define INITIATOR 1u                    /* PDCIDs of this endpoint */
#define TARGET 2u

enum type { RUD_REQ = 2, ACK = 7, ACK_CC = 8, ACK_CCX = 9, NACK = 10 };
enum next_hdr { REQUEST_STD = 3, RESPONSE = 4 };
enum flag { SYN = 1 << 2, AR = 1 << 3, RETX = 1 << 4, MARKED = 1 << 5 };
enum tos { DATA = 8 << 2 | 2, DATA_RTX = 10 << 2 | 2, CONTROL = 46 << 2 };      /* DSCP and ECN */
enum code { NO_PDC_AVAIL = 4, PSN_OOR_WINDOW = 11, INV_DPDCID = 14, PDC_HDR_MISMATCH = 15, INVALID_SYN = 21 };

struct packet {
    uint32_t message;
    bool last, done;                    /* whether it ends its message; whether it is acknowledged */
    unsigned copies;                    /* how often it has left */
    uint64_t rto_at;
    size_t length;
    uint8_t body[BODY_MAX];
};

struct reply { size_t length; uint8_t data[PDS + 12]; };
/* A PDC in each role; `remote` is the PDCID of the other end, 0 before it is known. */
struct initiator { uint16_t remote; uint32_t start, una, next, end; };
struct target { uint16_t remote; uint32_t start, cack, newest; bool received[WINDOW]; };

struct endpoint {
    uint32_t address, peer;
    uint64_t now;
    struct initiator tx;                /* packets from una to next - 1 have left, those up to end - 1 wait */
    struct packet queue[QUEUE];         /* by PSN */
    struct target rx;
    struct reply replies[QUEUE];        /* ACKs and NACKs that leave */
    size_t reply_first, reply_end;
    char *text;                         /* events for uet_observe */
    size_t length, room;
};

static bool has_fault(const char *name)
{
    const char *fault = getenv("PDC_FAULT");
    return fault && !strcmp(fault, name);
}

/* Serial numbers: a is newer than b if the result is positive (§2.1). */
static int32_t diff(uint32_t a, uint32_t b) { return (int32_t)(a - b); }
static struct packet *packet_of(struct endpoint *e, uint32_t psn) { return &e->queue[psn % QUEUE]; }

/* Adds to the events. Each begins with a comma; uet_observe leaves out the first. */
static void tell(struct endpoint *e, const char *format, ...)
{
    va_list values;
    if (e->room - e->length < 256)
        e->text = realloc(e->text, e->room += 65536);
    va_start(values, format);
    e->length += (size_t)vsnprintf(e->text + e->length, e->room - e->length, format, values);
    va_end(values);
}

static void tell_delivery(struct endpoint *e, const uint8_t *data, size_t length)
{
    tell(e, ", {\"event\": \"delivery\", \"data\": \"");
    for (size_t i = 0; i < length; i++)
        tell(e, "%02x", data[i]);
    tell(e, "\"}");
}

/* The layout of requests, ACKs and NACKs; `more` is CLEAR_PSN, the offset of ACK_PSN, or the NACK code. */
static void put_pds(uint8_t *at, unsigned type, unsigned more, uint32_t psn, unsigned spdcid, unsigned dpdcid)
{
    uet_put16(at, type);
    uet_put16(at + 2, more);
    uet_put32(at + 4, psn);
    uet_put16(at + 8, spdcid);
    uet_put16(at + 10, dpdcid);
}

/* The target: requests arrive (§8) */

static uint8_t *reply(struct endpoint *e, size_t length)
{
    struct reply *r = &e->replies[e->reply_end++ % QUEUE];
    r->length = length;
    return memset(r->data, 0, sizeof r->data);
}

static void send_nack(struct endpoint *e, const uint8_t *p, unsigned flags, unsigned code)
{
    bool known = code == PSN_OOR_WINDOW || code == INVALID_SYN;
    put_pds(reply(e, PDS + 4), NACK << 11 | flags, code << 8, uet_get32(p + 4), known ? TARGET : 0,
            uet_get16(p + 8));
}

static void send_ack(struct endpoint *e, const uint8_t *p, unsigned flags)
{
    uint32_t psn = uet_get32(p + 4), cack = has_fault("cack") ? e->rx.newest : e->rx.cack;
    uint8_t *a = reply(e, PDS + 12);
    put_pds(a, ACK << 11 | RESPONSE << 7 | flags, psn - cack, cack, TARGET, e->rx.remote);
    a[PDS + 1] = 1;                     /* default response, OK, with message_id and job_id of the request */
    memcpy(a + PDS + 2, p + PDS + 2, 2);
    memcpy(a + PDS + 5, p + PDS + 5, 3);
}

/* Finds or opens the PDC of a request; returns 0, or the code of a NACK (§6.3). */
static unsigned find_target(struct target *t, const uint8_t *p)
{
    uint16_t remote = uet_get16(p + 8), last = uet_get16(p + 10);
    uint32_t start = uet_get32(p + 4) - (last & 0xfff);     /* if `last` is the offset of a SYN */
    bool syn = uet_get16(p) & SYN;
    if (syn && !t->remote)
        *t = (struct target){.remote = remote, .start = start, .cack = start - 1, .newest = start - 1};
    if (syn && t->remote != remote)
        return NO_PDC_AVAIL;
    if (syn)
        return t->start == start ? 0 : INVALID_SYN;
    if (!t->remote || last != TARGET)
        return INV_DPDCID;
    return t->remote == remote ? 0 : PDC_HDR_MISMATCH;
}

static void take(struct target *t, uint32_t psn)
{
    t->received[psn % WINDOW] = true;
    if (diff(psn, t->newest) > 0)
        t->newest = psn;
    while (t->received[(t->cack + 1) % WINDOW])
        t->received[++t->cack % WINDOW] = false;
}

static void on_request(struct endpoint *e, const uint8_t *p, size_t length, unsigned flags)
{
    uint32_t psn = uet_get32(p + 4);
    if ((uet_get16(p) >> 7 & 15) != REQUEST_STD || length < PDS + SES)
        return;
    unsigned code = find_target(&e->rx, p);
    int32_t ahead = diff(psn, e->rx.cack);
    if (!code && ahead > (int32_t)WINDOW)
        code = PSN_OOR_WINDOW;
    if (code) {
        send_nack(e, p, flags, code);
        return;
    }
    bool duplicate = ahead <= 0 || e->rx.received[psn % WINDOW];
    if (ahead <= -(int32_t)WINDOW || diff(psn, e->rx.start) < 0 || (duplicate && !(flags & RETX)))
        return;                         /* very old, or a copy that the network made (§8.1) */
    if (!duplicate || has_fault("twice"))
        tell_delivery(e, p + PDS, length - PDS);
    if (!duplicate)
        take(&e->rx, psn);
    send_ack(e, p, flags);
}

/* The initiator: messages leave, ACKs arrive (§7) */

static void on_ack(struct endpoint *e, const uint8_t *p)
{
    struct initiator *tx = &e->tx;
    uint32_t cack = uet_get32(p + 4), psn = cack + (uint32_t)(int16_t)uet_get16(p + 2);
    if (uet_get16(p + 10) != INITIATOR || diff(cack, tx->next) >= 0 || diff(psn, tx->next) >= 0)
        return;                         /* it acknowledges what never left */
    tx->remote = uet_get16(p + 8);
    if (diff(psn, tx->una) >= 0)
        packet_of(e, psn)->done = true;
    for (; tx->una != tx->next && (packet_of(e, tx->una)->done || diff(tx->una, cack) <= 0); tx->una++)
        if (packet_of(e, tx->una)->last)
            tell(e, ", {\"event\": \"completion\", \"id\": %u, \"ok\": true}",
                 packet_of(e, tx->una)->message);
}

/* Makes the frame of a packet, and starts its RTO. */
static int64_t request(struct endpoint *e, uint8_t *frame, uint32_t psn)
{
    struct initiator *tx = &e->tx;
    struct packet *p = packet_of(e, psn);
    unsigned syn = tx->remote ? 0 : SYN, retx = p->copies && !has_fault("retx") ? RETX : 0;
    unsigned tos = p->copies ? DATA_RTX : DATA;
    put_pds(frame + UET_LOWER, RUD_REQ << 11 | REQUEST_STD << 7 | AR | retx | syn, tx->una - 1 - psn, psn,
            INITIATOR, syn ? psn - tx->start : tx->remote);
    memcpy(frame + UET_LOWER + PDS, p->body, p->length);
    p->rto_at = e->now + (RTO << (p->copies < 13 ? p->copies : 13));
    p->copies++;
    return (int64_t)uet_make_frame(frame, e->address, e->peer, tos, PDS + p->length);
}

/* The functions of uet_adapter.h */

int uet_adapter_version(void) { return UET_ADAPTER_VERSION; }
const char *uet_capabilities(void) { return "{\"work\": [\"message\"], \"modes\": [\"rud\"]}"; }
void *uet_create(void) { return calloc(1, sizeof(struct endpoint)); }

void uet_destroy(void *endpoint)
{
    free(((struct endpoint *)endpoint)->text);
    free(endpoint);
}

int uet_reset(void *endpoint, const struct uet_config *config)
{
    struct endpoint *e = endpoint;
    uint32_t start = 0xfffffff0u + config->seed * 0x9e3779b9u;      /* with seed 0 PSNs wrap soon */
    e->address = config->address;
    e->peer = config->peer;
    e->now = e->reply_first = e->reply_end = e->length = 0;
    e->tx = (struct initiator){0, start, start, start, start};
    e->rx = (struct target){0};
    return UET_OK;
}

int uet_submit_message(void *endpoint, uint32_t id, const char *mode, size_t count,
                       const uint8_t *const packets[], const size_t lengths[])
{
    struct endpoint *e = endpoint;
    if (strcmp(mode, "rud") || count > QUEUE - (e->tx.end - e->tx.una))
        return UET_REFUSED;
    for (size_t i = 0; i < count; i++) {
        struct packet *p = packet_of(e, e->tx.end + (uint32_t)i);
        if (lengths[i] < SES || lengths[i] > BODY_MAX)
            return UET_REFUSED;
        *p = (struct packet){.message = id, .last = i == count - 1, .length = lengths[i]};
        memcpy(p->body, packets[i], lengths[i]);
    }
    e->tx.end += (uint32_t)count;
    return UET_OK;
}

int uet_deliver(void *endpoint, const uint8_t *frame, size_t length)
{
    struct endpoint *e = endpoint;
    size_t size = uet_packet_length(frame, length, e->peer, e->address);
    const uint8_t *p = frame + UET_LOWER;
    unsigned type = size < PDS ? 0 : p[0] >> 3;
    if (type == RUD_REQ)
        on_request(e, p, size, (uet_get16(p) & RETX) | ((frame[15] & 3) == 3 ? MARKED : 0));
    if (type == ACK || type == ACK_CC || type == ACK_CCX)
        on_ack(e, p);
    return UET_OK;
}

int uet_advance(void *endpoint, uint64_t picoseconds)
{
    ((struct endpoint *)endpoint)->now += picoseconds;
    return UET_OK;
}

int64_t uet_poll(void *endpoint, uint8_t *buffer, size_t size)
{
    struct endpoint *e = endpoint;
    (void)size;                         /* UET_FRAME_MAX, which is enough */
    if (e->reply_first != e->reply_end) {
        const struct reply *r = &e->replies[e->reply_first++ % QUEUE];
        memcpy(buffer + UET_LOWER, r->data, r->length);
        return (int64_t)uet_make_frame(buffer, e->address, e->peer, CONTROL, r->length);
    }
    for (uint32_t psn = e->tx.una; psn != e->tx.next; psn++)
        if (!packet_of(e, psn)->done && e->now >= packet_of(e, psn)->rto_at)
            return request(e, buffer, psn);
    if (e->tx.next != e->tx.end && e->tx.next - e->tx.una < WINDOW)
        return request(e, buffer, e->tx.next++);
    return 0;
}

int64_t uet_observe(void *endpoint, char *buffer, size_t size)
{
    struct endpoint *e = endpoint;
    int length = snprintf(
        buffer, size, "{\"events\": [%s], \"state\": {\"pdcs\": ["
        "{\"pdcid\": %u, \"start_psn\": %u, \"una\": %u, \"next\": %u, \"window\": %u}, "
        "{\"pdcid\": %u, \"start_psn\": %u, \"cack_psn\": %u}]}}", e->length ? e->text + 2 : "",
        INITIATOR, e->tx.start, e->tx.una, e->tx.next, WINDOW, TARGET, e->rx.start, e->rx.cack);
    if (length < 0 || (size_t)length >= size)
        return length + 1;
    e->length = 0;
    return length;
}
