/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small endpoint of UET packet delivery (PDS), as an example of a library that the machines of uetproto.testing drive.
 *
 *     cc -shared -fPIC -O2 -o pdc.so pdc.c
 *
 * It has one PDC as initiator and up to 64 as target, RUD only. Every packet asks for an ACK, and every request is
 * answered at once with the default response. It does not close, has no ROD, no SACK and no congestion control; trimmed
 * packets are dropped, and the RTO of their source repairs that. Section numbers are those of docs/protocol/pds.md.
 *
 * The environment variable PDC_FAULT switches on a fault:
 *     retx     a retransmission leaves with retx = 0
 *     twice    a duplicate is delivered again
 *     cack     CACK_PSN is the highest PSN that was received, whatever is missing below
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uet_adapter.h"

#define WINDOW 1024u                    /* PSNs that a source may use ahead: Default_MPR 8, in units of 128 */
#define QUEUE 8192u                     /* packets that wait or are outstanding */
#define TARGETS 64u
#define REPLIES 4096u
#define PACKET_MAX 9000u
#define RTO_INIT UINT64_C(1000000000)   /* picoseconds: 1 ms */
#define RTO_MAX (8000 * RTO_INIT)

#define LOWER 42u                       /* Ethernet, IPv4 and UDP */
#define PDS 12u
#define SES 44u                         /* SES standard header */
#define CRC 4u
#define UDP_PORT 4793

enum type { RUD_REQ = 2, ACK = 7, ACK_CC = 8, ACK_CCX = 9, NACK = 10, CP = 11 };
enum next_hdr { NONE = 0, REQUEST_STD = 3, RESPONSE = 4 };
enum flag { SYN = 1 << 2, AR = 1 << 3, PROBE = 1 << 3, RETX = 1 << 4, MARKED = 1 << 5 };
enum dscp { DATA = 8 << 2 | 2, DATA_RTX = 10 << 2 | 2, CONTROL = 46 << 2 };   /* with ECN: ECT(0), or not ECT */
enum code { TRIMMED = 0x01, TRIMMED_LASTHOP = 0x02, NO_PDC_AVAIL = 0x04, PSN_OOR_WINDOW = 0x0b, INV_DPDCID = 0x0e,
            PDC_HDR_MISMATCH = 0x0f, INVALID_SYN = 0x15, UNEXP_EVENT = 0x19 };

struct message { uint32_t id; size_t left; };   /* left: packets without an ACK */

struct packet {
    uint8_t *data;                      /* SES header and payload; NULL once it is acknowledged */
    size_t length;
    struct message *message;
    unsigned copies;                    /* how often it has left */
    uint64_t rto_at;
};

struct target { uint16_t peer; uint32_t start, cack, newest; bool received[WINDOW]; };    /* its PDCID: index + 2 */
struct reply { uint8_t data[PDS + 12]; size_t length; };

struct endpoint {
    uint32_t address, peer;
    uint64_t now;
    bool forget_retx, deliver_twice, cack_newest;       /* the faults */
    /* The PDC as initiator. The packets from una to next - 1 have left, those from next to end - 1 wait. */
    uint16_t local, remote;             /* PDCIDs; remote is 0 before the first ACK */
    uint32_t start, una, next, end, peer_cack, window;
    struct packet queue[QUEUE];         /* by PSN */
    struct target targets[TARGETS];
    size_t target_count;
    struct reply replies[REPLIES];      /* ACKs and NACKs that leave */
    size_t reply_first, reply_end;
    char *text;                         /* what uet_observe returns next */
    size_t length, room;
};

/* Numbers of the wire */

static uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static uint32_t get32(const uint8_t *at) { return (uint32_t)get16(at) << 16 | get16(at + 2); }
static void put16(uint8_t *at, unsigned value) { at[0] = (uint8_t)(value >> 8); at[1] = (uint8_t)value; }
static void put32(uint8_t *at, uint32_t value) { put16(at, value >> 16); put16(at + 2, value & 0xffff); }

/* Serial numbers: a is newer than b if the result is positive (§2.1). */
static int32_t diff(uint32_t a, uint32_t b) { return (int32_t)(a - b); }

static uint32_t crc32c(uint32_t crc, const uint8_t *data, size_t length)
{
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0);
            table[i] = value;
        }
    while (length--)
        crc = crc >> 8 ^ table[(crc ^ *data++) & 0xff];
    return crc;
}

/* The CRC32C of a frame: from the IP source address on, with a UDP checksum of 0. */
static uint32_t crc_of(const uint8_t *frame, size_t end)
{
    uint32_t crc = crc32c(0xffffffffu, frame + 26, 14);
    crc = crc32c(crc, (const uint8_t[2]){0}, 2);
    return ~crc32c(crc, frame + LOWER, end - LOWER);
}

static uint16_t ip_checksum(const uint8_t *header)
{
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2)
        sum += get16(header + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static int64_t frame(struct endpoint *e, uint8_t *out, unsigned tos, const uint8_t *head, size_t head_length,
                     const uint8_t *body, size_t body_length)
{
    size_t end = LOWER + head_length + body_length, total = end + CRC;
    memset(out, 0, LOWER);
    put16(out, 0x0200), put32(out + 2, e->peer);
    put16(out + 6, 0x0200), put32(out + 8, e->address);
    put16(out + 12, 0x0800);
    put16(out + 14, 0x4500 | tos), put16(out + 16, (unsigned)total - 14);
    put16(out + 20, 0x4000), put16(out + 22, 64 << 8 | 17);     /* DF, TTL, UDP */
    put32(out + 26, e->address), put32(out + 30, e->peer);
    put16(out + 24, ip_checksum(out + 14));
    put16(out + 34, 0xc000), put16(out + 36, UDP_PORT), put16(out + 38, (unsigned)total - 34);
    memcpy(out + LOWER, head, head_length);
    if (body_length)
        memcpy(out + LOWER + head_length, body, body_length);
    put32(out + end, crc_of(out, end));
    return (int64_t)total;
}

/* What can be observed */

static void tell(struct endpoint *e, const char *format, ...)
{
    va_list values;
    if (e->room - e->length < 256)
        e->text = realloc(e->text, e->room += 65536);
    va_start(values, format);
    e->length += (size_t)vsnprintf(e->text + e->length, e->room - e->length, format, values);
    va_end(values);
}

static void begin_text(struct endpoint *e) { e->length = 0; tell(e, "{\"events\": ["); }
static const char *comma(struct endpoint *e) { return e->text[e->length - 1] == '[' ? "" : ", "; }

static void tell_delivery(struct endpoint *e, const uint8_t *data, size_t length)
{
    tell(e, "%s{\"event\": \"delivery\", \"data\": \"", comma(e));
    for (size_t i = 0; i < length; i++)
        tell(e, "%02x", data[i]);
    tell(e, "\"}");
}

static void tell_completion(struct endpoint *e, uint32_t id, bool ok)
{
    tell(e, "%s{\"event\": \"completion\", \"id\": %u, \"ok\": %s}", comma(e), id,
         ok ? "true" : "false, \"reason\": \"NACK\"");
}

/* The target: requests arrive (§8) */

static uint8_t *reply(struct endpoint *e, size_t length)
{
    struct reply *r = &e->replies[e->reply_end % REPLIES];
    if (e->reply_end - e->reply_first == REPLIES)
        e->reply_first++;                               /* as if the oldest were lost */
    e->reply_end++;
    r->length = length;
    return memset(r->data, 0, sizeof r->data);
}

static void send_nack(struct endpoint *e, const uint8_t *offender, enum code code, unsigned local, bool marked)
{
    uint8_t *n = reply(e, 16);
    put16(n, NACK << 11 | (marked ? MARKED : 0) | (get16(offender) & RETX));
    n[2] = code;
    put32(n + 4, get32(offender + 4));
    put16(n + 8, local), put16(n + 10, get16(offender + 8));
}

static void send_ack(struct endpoint *e, const struct target *t, const uint8_t *request, bool marked)
{
    const uint8_t *ses = request + PDS;
    uint32_t psn = get32(request + 4), cack = e->cack_newest ? t->newest : t->cack;
    uint8_t *a = reply(e, PDS + 12);
    put16(a, ACK << 11 | RESPONSE << 7 | (marked ? MARKED : 0) | (get16(request) & RETX));
    put16(a + 2, (psn - cack) & 0xffff), put32(a + 4, cack);
    put16(a + 8, (unsigned)(t - e->targets) + 2), put16(a + 10, t->peer);
    a[PDS + 1] = 1;                                     /* default response, OK, with message_id and job_id */
    memcpy(a + PDS + 2, ses + 2, 2), memcpy(a + PDS + 5, ses + 5, 3);
}

/* Finds the PDC of a request or control packet, or creates it (§6.3). Returns NULL after a NACK. */
static struct target *target_of(struct endpoint *e, const uint8_t *p, bool creates, bool marked)
{
    uint16_t source = get16(p + 8), last = get16(p + 10);
    uint32_t start = get32(p + 4) - (last & 0xfff);
    if (!(get16(p) & SYN)) {
        bool known = last >= 2 && last < e->target_count + 2;
        if (known && e->targets[last - 2].peer == source)
            return &e->targets[last - 2];
        send_nack(e, p, known ? PDC_HDR_MISMATCH : INV_DPDCID, 0, marked);
        return NULL;
    }
    for (size_t i = 0; i < e->target_count; i++)
        if (e->targets[i].peer == source) {
            if (e->targets[i].start == start)
                return &e->targets[i];
            send_nack(e, p, INVALID_SYN, (unsigned)i + 2, marked);
            return NULL;
        }
    if (!creates || e->target_count == TARGETS) {
        if (creates)
            send_nack(e, p, NO_PDC_AVAIL, 0, marked);
        return NULL;
    }
    struct target *t = &e->targets[e->target_count++];
    *t = (struct target){.peer = source, .start = start, .cack = start - 1, .newest = start - 1};
    return t;
}

static void on_request(struct endpoint *e, const uint8_t *p, size_t length, bool marked)
{
    uint32_t psn = get32(p + 4);
    if ((get16(p) >> 7 & 15) != REQUEST_STD || length < PDS + SES)
        return;
    struct target *t = target_of(e, p, true, marked);
    if (!t)
        return;
    int32_t ahead = diff(psn, t->cack);
    if (ahead > (int32_t)WINDOW) {
        send_nack(e, p, PSN_OOR_WINDOW, (unsigned)(t - e->targets) + 2, marked);
        return;
    }
    if (ahead <= -(int32_t)WINDOW || diff(psn, t->start) < 0)
        return;
    bool duplicate = ahead <= 0 || t->received[psn % WINDOW];
    if (duplicate && !(get16(p) & RETX))
        return;                                         /* a copy that the network made (§8.1) */
    if (!duplicate || e->deliver_twice)
        tell_delivery(e, p + PDS, length - PDS);
    if (!duplicate) {
        t->received[psn % WINDOW] = true;
        if (diff(psn, t->newest) > 0)
            t->newest = psn;
        while (t->received[(t->cack + 1) % WINDOW])
            t->received[++t->cack % WINDOW] = false;
    }
    send_ack(e, t, p, marked);
}

/* No control packet is supported (§13). */
static void on_control(struct endpoint *e, const uint8_t *p, bool marked)
{
    if (!(get16(p) & AR) || (!(get16(p) & SYN) && get16(p + 10) == e->local))
        return;
    struct target *t = target_of(e, p, false, marked);
    if (t)
        send_nack(e, p, UNEXP_EVENT, (unsigned)(t - e->targets) + 2, marked);
}

/* The initiator: messages leave, ACKs arrive (§7) */

static struct packet *packet_of(struct endpoint *e, uint32_t psn) { return &e->queue[psn % QUEUE]; }

/* Forgets a packet; tells the completion of its message if it was the last one, or if the message failed. */
static void end_packet(struct endpoint *e, uint32_t psn, bool ok)
{
    struct packet *p = packet_of(e, psn);
    if (!p->data)
        return;
    free(p->data);
    p->data = NULL;
    if (--p->message->left)
        return;
    tell_completion(e, p->message->id, ok);
    free(p->message);
}

static void open_pdc(struct endpoint *e, uint16_t local, uint32_t start)
{
    e->local = local, e->remote = 0, e->window = WINDOW;
    e->start = e->una = e->next = e->end = start;
    e->peer_cack = start - 1;
}

static void on_ack(struct endpoint *e, const uint8_t *p, size_t length)
{
    unsigned type = p[0] >> 3;
    uint32_t cack = get32(p + 4), psn = cack + (uint32_t)(int16_t)get16(p + 2);
    uint16_t remote = get16(p + 8);
    bool probe = get16(p) & PROBE;
    if (get16(p + 10) != e->local || !remote || (e->remote && e->remote != remote))
        return;
    if (diff(cack, e->next) >= 0 || diff(cack, e->start - 1) < 0 || (!probe && diff(psn, e->next) >= 0))
        return;                                         /* it acknowledges what never left */
    e->remote = remote;
    if (!probe && diff(psn, e->una) >= 0)
        end_packet(e, psn, true);
    if (type != ACK && length >= 24 && p[13] && diff(cack, e->peer_cack) >= 0)
        e->window = p[13] * 128u < WINDOW ? p[13] * 128u : WINDOW;
    for (; diff(cack, e->peer_cack) > 0; e->peer_cack++)
        end_packet(e, e->peer_cack + 1, true);
    while (e->una != e->next && !packet_of(e, e->una)->data)
        e->una++;
}

static void on_nack(struct endpoint *e, const uint8_t *p, size_t length)
{
    uint32_t psn = get32(p + 4);
    if (length < 16 || get16(p) & 1 << 3 || get16(p + 10) != e->local)
        return;
    if (diff(psn, e->una) < 0 || diff(psn, e->next) >= 0 || !packet_of(e, psn)->data)
        return;
    switch (p[2]) {
    case TRIMMED: case TRIMMED_LASTHOP:
        packet_of(e, psn)->rto_at = e->now;
        break;
    case 0x0e: case 0x0f: case 0x10: case 0x11: case 0x13: case 0x15: case 0x16: case 0x19: case 0xff:
        for (uint32_t each = e->una; each != e->end; each++)
            end_packet(e, each, false);
        open_pdc(e, (uint16_t)(e->local + TARGETS + 2), e->end + 0x10000);
        break;
    default:                                            /* the RTO sends it again */
        break;
    }
}

static int64_t request(struct endpoint *e, uint8_t *out, uint32_t psn)
{
    struct packet *p = packet_of(e, psn);
    bool again = p->copies > 0;
    uint8_t head[PDS];
    uint64_t rto = RTO_INIT << (p->copies < 13 ? p->copies : 13);
    p->rto_at = e->now + (rto < RTO_MAX ? rto : RTO_MAX);
    p->copies++;
    put16(head, RUD_REQ << 11 | REQUEST_STD << 7 | AR | (again && !e->forget_retx ? RETX : 0) | (e->remote ? 0 : SYN));
    put16(head + 2, (e->una - 1 - psn) & 0xffff);       /* CLEAR_PSN */
    put32(head + 4, psn);
    put16(head + 8, e->local), put16(head + 10, e->remote ? e->remote : psn - e->start);
    return frame(e, out, again ? DATA_RTX : DATA, head, PDS, p->data, p->length);
}

/* The functions of uet_adapter.h */

int uet_adapter_version(void) { return UET_ADAPTER_VERSION; }
const char *uet_capabilities(void) { return "{\"work\": [\"message\"], \"modes\": [\"rud\"], \"knobs\": []}"; }

void *uet_create(void)
{
    struct endpoint *e = calloc(1, sizeof *e);
    const char *fault = getenv("PDC_FAULT");
    if (e && fault) {
        e->forget_retx = !strcmp(fault, "retx");
        e->deliver_twice = !strcmp(fault, "twice");
        e->cack_newest = !strcmp(fault, "cack");
    }
    return e;
}

void uet_destroy(void *endpoint)
{
    struct endpoint *e = endpoint;
    for (uint32_t psn = e->una; psn != e->end; psn++)
        end_packet(e, psn, false);
    free(e->text);
    free(e);
}

int uet_reset(void *endpoint, const struct uet_config *config)
{
    struct endpoint *e = endpoint;
    for (uint32_t psn = e->una; psn != e->end; psn++)
        end_packet(e, psn, false);
    e->address = config->address, e->peer = config->peer, e->now = 0;
    e->target_count = e->reply_first = e->reply_end = 0;
    open_pdc(e, 1, 0xfffffff0u + config->seed * 0x9e3779b9u);   /* with seed 0 PSNs wrap soon */
    begin_text(e);
    return UET_OK;
}

int uet_submit_message(void *endpoint, uint32_t id, const char *mode, size_t count, const uint8_t *const packets[],
                       const size_t lengths[])
{
    struct endpoint *e = endpoint;
    if (strcmp(mode, "rud") || !count || count > QUEUE - (e->end - e->una))
        return UET_REFUSED;
    for (size_t i = 0; i < count; i++)
        if (lengths[i] < SES || lengths[i] > PACKET_MAX)
            return UET_REFUSED;
    struct message *m = malloc(sizeof *m);
    *m = (struct message){id, count};
    for (size_t i = 0; i < count; i++) {
        struct packet *p = packet_of(e, e->end++);
        *p = (struct packet){.data = malloc(lengths[i]), .length = lengths[i], .message = m};
        memcpy(p->data, packets[i], lengths[i]);
    }
    return UET_OK;
}

int uet_deliver(void *endpoint, const uint8_t *f, size_t length)
{
    struct endpoint *e = endpoint;
    if (length < LOWER + PDS + CRC || get16(f + 12) != 0x0800 || f[14] != 0x45 || ip_checksum(f + 14) || f[23] != 17)
        return UET_OK;
    size_t end = 14u + get16(f + 16);
    if (get32(f + 26) != e->peer || get32(f + 30) != e->address || get16(f + 36) != UDP_PORT || end > length
        || end < LOWER + PDS + CRC || get16(f + 38) + 34u != end || crc_of(f, end - CRC) != get32(f + end - CRC))
        return UET_OK;                                  /* damaged, or trimmed: a trimmed packet has no CRC32C */
    const uint8_t *p = f + LOWER;
    size_t size = end - CRC - LOWER;
    bool marked = (f[15] & 3) == 3;
    switch (p[0] >> 3) {
    case RUD_REQ: on_request(e, p, size, marked); break;
    case ACK: case ACK_CC: case ACK_CCX: on_ack(e, p, size); break;
    case NACK: on_nack(e, p, size); break;
    case CP: on_control(e, p, marked); break;
    default: break;
    }
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
    if (size < UET_FRAME_MAX)
        return -1;
    if (e->reply_first != e->reply_end) {
        const struct reply *r = &e->replies[e->reply_first++ % REPLIES];
        return frame(e, buffer, CONTROL, r->data, r->length, NULL, 0);
    }
    for (uint32_t psn = e->una; psn != e->next; psn++)
        if (packet_of(e, psn)->data && e->now >= packet_of(e, psn)->rto_at)
            return request(e, buffer, psn);
    if (e->next != e->end && e->next - e->una < e->window)
        return request(e, buffer, e->next++);
    return 0;
}

int64_t uet_observe(void *endpoint, char *buffer, size_t size)
{
    struct endpoint *e = endpoint;
    size_t events = e->length;
    tell(e, "], \"state\": {\"pdcs\": [");
    tell(e, "{\"pdcid\": %u, \"start_psn\": %u, \"una\": %u, \"next\": %u, \"window\": %u}", e->local, e->start,
         e->una, e->next, e->window);
    for (size_t i = 0; i < e->target_count; i++)
        tell(e, ", {\"pdcid\": %u, \"start_psn\": %u, \"cack_psn\": %u}", (unsigned)i + 2, e->targets[i].start,
             e->targets[i].cack);
    tell(e, "]}}");
    int64_t length = (int64_t)e->length;
    if (e->length > size) {
        e->length = events;
        return length;
    }
    memcpy(buffer, e->text, e->length);
    begin_text(e);
    return length;
}
