/* The least that a Kafka broker can do: broker_floor DIRECTORY written|synced
 *
 * prints a port. One thread takes what producers send for the one partition of any topic, gives each batch its offset,
 * writes it to a file there (in mode "synced", syncs that once for all that one look at the connections brought),
 * acknowledges it, and hands it to the consumers that wait for it. It checks nothing, and nothing could be read again
 * after a failure. So it shows what the clients, the network, the file and the sync cost any broker: what a broker
 * takes beyond it is its own.
 *
 * Of the protocol it knows the versions of the table SERVED: ApiVersions, Metadata, Produce, Fetch, ListOffsets. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, API_VERSIONS = 18 };
static const int16_t SERVED[][3] = {
    {PRODUCE, 3, 7}, {FETCH, 4, 4}, {LIST_OFFSETS, 1, 1}, {METADATA, 1, 1}, {API_VERSIONS, 0, 0}};
#define SERVED_COUNT (sizeof SERVED / sizeof *SERVED)

#define CONNECTIONS_MAX 16
#define IN_BYTES (8 << 20)
#define FETCH_BYTES (1 << 20)
#define UNSUPPORTED_VERSION 35
#define RECORD_COUNT_AT 57 /* of a batch: its base offset is its first eight bytes */

struct waiting_fetch {
    int32_t correlation;
    char topic[256];
    int64_t offset;
    int waits;
};

struct connection {
    int socket;
    char *in;
    size_t held;
    struct waiting_fetch fetch;
    char *out; /* answers that wait for the sync */
    size_t out_bytes;
};

static struct connection connections[CONNECTIONS_MAX];
static int connection_count, log_file, is_synced, port, is_written;
static int64_t log_end;   /* an offset */
static off_t log_bytes;
static struct { int64_t offset; off_t position; } *batches; /* where each begins */
static size_t batch_count;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Reading a request. */
struct reader {
    const char *at;
};
static int16_t take16(struct reader *r) { uint16_t v; memcpy(&v, r->at, 2); r->at += 2; return be16toh(v); }
static int32_t take32(struct reader *r) { uint32_t v; memcpy(&v, r->at, 4); r->at += 4; return be32toh(v); }
static int64_t take64(struct reader *r) { uint64_t v; memcpy(&v, r->at, 8); r->at += 8; return be64toh(v); }
static void take_text(struct reader *r, char *into) {
    int16_t size = take16(r);
    if (size < 0) size = 0;
    if (size > 255) fail("a long name");
    memcpy(into, r->at, size);
    into[size] = 0;
    r->at += size;
}

/* Writing an answer; its size is put in front of it at its end. */
static char answer[1 << 21];
static size_t answer_bytes;
static void put16(int16_t v) { uint16_t b = htobe16(v); memcpy(answer + answer_bytes, &b, 2); answer_bytes += 2; }
static void put32(int32_t v) { uint32_t b = htobe32(v); memcpy(answer + answer_bytes, &b, 4); answer_bytes += 4; }
static void put64(int64_t v) { uint64_t b = htobe64(v); memcpy(answer + answer_bytes, &b, 8); answer_bytes += 8; }
static void put8(char v) { answer[answer_bytes++] = v; }
static void put_bytes(const char *data, size_t size) { memcpy(answer + answer_bytes, data, size); answer_bytes += size; }
static void put_text(const char *text) { put16(strlen(text)); put_bytes(text, strlen(text)); }
static void begin_answer(int32_t correlation) { answer_bytes = 4; put32(correlation); }
static void end_answer(struct connection *to) {
    uint32_t size = htobe32(answer_bytes - 4);
    memcpy(answer, &size, 4);
    to->out = realloc(to->out, to->out_bytes + answer_bytes);
    memcpy(to->out + to->out_bytes, answer, answer_bytes);
    to->out_bytes += answer_bytes;
}

static void send_answers(struct connection *to) {
    for (size_t sent = 0; sent < to->out_bytes;) {
        ssize_t count = send(to->socket, to->out + sent, to->out_bytes - sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR) break; /* the client has what it wanted */
        if (count > 0) sent += count;
    }
    to->out_bytes = 0;
}

static void answer_fetch(struct connection *to, int has_records) {
    begin_answer(to->fetch.correlation);
    put32(0); /* throttle time */
    put32(1);
    put_text(to->fetch.topic);
    put32(1);
    put32(0); /* partition */
    put16(0);
    put64(log_end);
    put64(log_end);
    put32(-1); /* aborted transactions */
    if (has_records) {
        size_t i = batch_count - 1; /* a consumer at the end of the log finds its place at once */
        while (i && batches[i].offset > to->fetch.offset) i--;
        size_t size = log_bytes - batches[i].position;
        if (size > FETCH_BYTES) size = FETCH_BYTES;
        put32(size);
        if (pread(log_file, answer + answer_bytes, size, batches[i].position) != (ssize_t)size) fail("pread");
        answer_bytes += size;
    } else {
        put32(0);
    }
    end_answer(to);
    to->fetch.waits = 0;
}

static void append(char *batch, size_t size) {
    int32_t records;
    memcpy(&records, batch + RECORD_COUNT_AT, 4);
    uint64_t base = htobe64(log_end);
    memcpy(batch, &base, 8);
    for (size_t written = 0; written < size;) {
        ssize_t count = pwrite(log_file, batch + written, size - written, log_bytes + written);
        if (count < 0 && errno != EINTR) fail("pwrite");
        if (count > 0) written += count;
    }
    if (!(batch_count & (batch_count - 1))) batches = realloc(batches, 2 * (batch_count + 1) * sizeof *batches);
    batches[batch_count].offset = log_end;
    batches[batch_count++].position = log_bytes;
    log_bytes += size;
    log_end += be32toh(records);
    is_written = 1;
}

static void produce(struct connection *from, struct reader *r, int16_t version, int32_t correlation) {
    char topic[256];
    take_text(r, topic); /* the transaction's */
    r->at += 2 + 4;      /* acks, timeout */
    if (take32(r) != 1) fail("more topics than one");
    take_text(r, topic);
    if (take32(r) != 1) fail("more partitions than one");
    int32_t partition = take32(r), size = take32(r);
    int64_t base = log_end;
    append((char *)r->at, size);
    begin_answer(correlation);
    put32(1);
    put_text(topic);
    put32(1);
    put32(partition);
    put16(0);
    put64(base);
    put64(-1); /* log append time */
    if (version >= 5) put64(0);
    put32(0); /* throttle time */
    end_answer(from);
}

static void fetch(struct connection *from, struct reader *r, int32_t correlation) {
    r->at += 4 + 4 + 4 + 4 + 1; /* replica, longest wait, bytes, isolation */
    from->fetch.correlation = correlation;
    from->fetch.waits = 1;
    if (take32(r) != 1) fail("a fetch of more topics than one");
    take_text(r, from->fetch.topic);
    if (take32(r) != 1) fail("a fetch of more partitions than one");
    take32(r);
    from->fetch.offset = take64(r);
}

static void list_offsets(struct connection *from, struct reader *r, int32_t correlation) {
    char topic[256];
    take32(r); /* replica */
    take32(r);
    take_text(r, topic);
    take32(r);
    int32_t partition = take32(r);
    int64_t time = take64(r);
    begin_answer(correlation);
    put32(1);
    put_text(topic);
    put32(1);
    put32(partition);
    put16(0);
    put64(-1);
    put64(time == -2 ? 0 : log_end);
    end_answer(from);
}

static void metadata(struct connection *from, struct reader *r, int32_t correlation) {
    char topic[256] = "bench";
    if (take32(r) > 0) take_text(r, topic);
    begin_answer(correlation);
    put32(1);
    put32(1); /* the node */
    put_text("127.0.0.1");
    put32(port);
    put16(-1); /* rack */
    put32(1);  /* controller */
    put32(1);
    put16(0);
    put_text(topic);
    put8(0);
    put32(1);
    put16(0);
    put32(0);
    put32(1); /* leader */
    put32(1);
    put32(1); /* replicas */
    put32(1);
    put32(1); /* in sync */
    end_answer(from);
}

static void api_versions(struct connection *from, int16_t version, int32_t correlation) {
    begin_answer(correlation);
    put16(version ? UNSUPPORTED_VERSION : 0); /* KIP-511: the client asks again in version 0 */
    put32(SERVED_COUNT);
    for (size_t i = 0; i < SERVED_COUNT; i++)
        for (int j = 0; j < 3; j++) put16(SERVED[i][j]);
    end_answer(from);
}

static void serve(struct connection *from, const char *request) {
    struct reader r = {request};
    char client[256];
    int16_t key = take16(&r), version = take16(&r);
    int32_t correlation = take32(&r);
    take_text(&r, client);
    switch (key) {
    case PRODUCE: produce(from, &r, version, correlation); break;
    case FETCH: fetch(from, &r, correlation); break;
    case LIST_OFFSETS: list_offsets(from, &r, correlation); break;
    case METADATA: metadata(from, &r, correlation); break;
    case API_VERSIONS: api_versions(from, version, correlation); break;
    default: fprintf(stderr, "request %d is not served\n", key); exit(1);
    }
}

/* 0: the client is gone. */
static int take_requests(struct connection *from) {
    ssize_t got = recv(from->socket, from->in + from->held, IN_BYTES - from->held, 0);
    if (got <= 0) return 0;
    from->held += got;
    size_t at = 0;
    while (from->held - at >= 4) {
        uint32_t size;
        memcpy(&size, from->in + at, 4);
        size = be32toh(size);
        if (size > IN_BYTES - 4) fail("a large request");
        if (from->held - at < 4 + (size_t)size) break;
        serve(from, from->in + at + 4);
        at += 4 + size;
    }
    memmove(from->in, from->in + at, from->held - at);
    from->held -= at;
    return 1;
}

static void welcome(int listener) {
    int one = 1;
    struct connection *made = &connections[connection_count];
    if (connection_count == CONNECTIONS_MAX) fail("too many connections");
    memset(made, 0, sizeof *made);
    made->socket = accept(listener, NULL, NULL);
    if (made->socket < 0) fail("accept");
    made->in = malloc(IN_BYTES);
    if (!made->in) fail("malloc");
    setsockopt(made->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection_count++;
}

static void forget(int i) {
    close(connections[i].socket);
    free(connections[i].in);
    free(connections[i].out);
    connections[i] = connections[--connection_count];
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: broker_floor DIRECTORY written|synced\n");
        return 2;
    }
    is_synced = !strcmp(arguments[2], "synced");
    char path[4096];
    snprintf(path, sizeof path, "%s/broker_floor.%d", arguments[1], getpid());
    log_file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (log_file < 0) fail(path);
    unlink(path);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    port = ntohs(address.sin_port);
    printf("%d\n", port);
    fflush(stdout);
    for (;;) {
        struct pollfd looked_at[CONNECTIONS_MAX + 1];
        for (int i = 0; i < connection_count; i++)
            looked_at[i] = (struct pollfd){.fd = connections[i].socket, .events = POLLIN};
        int known = connection_count;
        looked_at[known] = (struct pollfd){.fd = listener, .events = POLLIN};
        int ready = poll(looked_at, known + 1, 500);
        if (ready < 0 && errno != EINTR) fail("poll");
        if (ready == 0)
            for (int i = 0; i < connection_count; i++)
                if (connections[i].fetch.waits) answer_fetch(&connections[i], 0);
        for (int i = known - 1; i >= 0; i--)
            if (looked_at[i].revents && !take_requests(&connections[i])) forget(i);
        if (is_written && is_synced && fdatasync(log_file)) fail("fdatasync");
        is_written = 0;
        for (int i = 0; i < connection_count; i++)
            if (connections[i].fetch.waits && connections[i].fetch.offset < log_end) answer_fetch(&connections[i], 1);
        for (int i = 0; i < connection_count; i++) send_answers(&connections[i]);
        if (looked_at[known].revents) welcome(listener);
    }
}
