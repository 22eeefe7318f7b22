/* Publishers side by side: so many connections, each with so many messages in flight, acks counted.
 *
 * connections PORT CONNECTIONS IN_FLIGHT COUNT SIZE SUBJECT
 *
 * prints one line of JSON: the rate of acks, and the round trip of a write of each connection. In C, so that the
 * publishers cost less than any server: one epoll, one read and one write a turn of a connection, and the messages
 * are built once: each connection has a ring of them, of which it writes the next ones. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES 262144
#define REPLIES 64 /* distinct reply subjects of a connection */

typedef struct {
    int fd;
    double sent_s;
    long next;
    size_t message; /* its length: all of a connection have the same */
    char *ring; /* twice as many messages as may be in flight, so that any run of them is in one piece */
} Connection;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void fail(const char *what) {
    printf("{\"failed\": \"%s: %s\"}\n", what, strerror(errno));
    exit(1);
}

static void write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t count = send(fd, data, size, MSG_NOSIGNAL);
        if (count < 0) {
            if (errno == EINTR || errno == EAGAIN) continue;
            fail("send");
        }
        data += count;
        size -= count;
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    int port = atoi(argv[1]), connections = atoi(argv[2]), in_flight = atoi(argv[3]);
    long count = atol(argv[4]);
    int size = atoi(argv[5]);
    const char *subject = argv[6];
    Connection *all = calloc(connections, sizeof *all);
    double *trips = malloc((count + connections) * sizeof *trips);
    long trip_count = 0;
    static char buffer[READ_BYTES];
    char *payload = malloc(size);
    for (int i = 0; i < size; i++) payload[i] = 'a' + i % 26;
    long ring_messages = (in_flight + REPLIES - 1) / REPLIES * REPLIES;
    int poll = epoll_create1(0), own = getpid();
    for (int i = 0; i < connections; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
        int one = 1;
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
        all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[i].fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        int length = snprintf(buffer, sizeof buffer,
            "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false,\"headers\":true}\r\n"
            "SUB _INBOX.p%dc%d.* 1\r\nPING\r\n", own, i);
        write_all(all[i].fd, buffer, length);
        long got = 0;
        while (!memmem(buffer, got, "PONG\r\n", 6)) {
            ssize_t more = recv(all[i].fd, buffer + got, sizeof buffer - got, 0);
            if (more <= 0) fail("no PONG");
            got += more;
        }
        all[i].ring = malloc(2 * ring_messages * ((size_t)size + 256 + strlen(subject)));
        size_t used = 0;
        for (long k = 0; k < 2 * ring_messages; k++) {
            used += sprintf(all[i].ring + used, "PUB %s _INBOX.p%dc%d.%02ld %d\r\n", subject, own, i, k % REPLIES, size);
            memcpy(all[i].ring + used, payload, size);
            used += size;
            memcpy(all[i].ring + used, "\r\n", 2);
            used += 2;
        }
        all[i].message = used / (2 * ring_messages);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
    }
    long sent = 0, acked = 0;
    double start_s = now_s();
    for (int i = 0; i < connections; i++) {
        long count_now = count - sent < in_flight ? count - sent : in_flight;
        all[i].sent_s = now_s();
        write_all(all[i].fd, all[i].ring, count_now * all[i].message);
        all[i].next = count_now % ring_messages;
        sent += count_now;
    }
    struct epoll_event events[512];
    while (acked < count) {
        int ready = epoll_wait(poll, events, 512, 10000);
        if (ready <= 0) fail("no acks");
        for (int e = 0; e < ready; e++) {
            Connection *connection = events[e].data.ptr;
            ssize_t got = recv(connection->fd, buffer, sizeof buffer, 0);
            if (got <= 0) fail("closed");
            long answers = 0;
            for (char *at = buffer; (at = memchr(at, '}', buffer + got - at)); at++) answers++;
            if (!answers) {
                if (memmem(buffer, got, "PING\r\n", 6)) write_all(connection->fd, "PONG\r\n", 6);
                continue;
            }
            acked += answers;
            double time_s = now_s();
            trips[trip_count++] = time_s - connection->sent_s;
            if (answers > count - sent) answers = count - sent;
            connection->sent_s = now_s();
            if (answers) write_all(connection->fd, connection->ring + connection->next * connection->message,
                                   answers * connection->message);
            connection->next = (connection->next + answers) % ring_messages;
            sent += answers;
        }
    }
    double elapsed_s = now_s() - start_s;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    qsort(trips, trip_count, sizeof *trips, compare);
    printf("{\"rate\": %.1f, \"elapsed_s\": %.6f, \"messages\": %ld, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
           "\"client_cpu_s\": %.4f}\n",
           count / elapsed_s, elapsed_s, count, 1000 * trips[trip_count / 2], 1000 * trips[trip_count * 99 / 100],
           usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
               (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    return 0;
}
