/* The least that a server can do for a synced ack: synced_server DIRECTORY
 *
 * prints a port. What one read brings of a connection is written to a file there, is synced, and is acknowledged: one
 * thread, no other work, no log that could be read again. So it shows what a synced ack costs any server, its
 * client and its network included: what it takes beyond the sync itself is not the server's to save. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 262144
#define RECORD_BYTES 200 /* of a batch of one record of 100 bytes, as in fdatasync.py */

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t count = send(fd, data, size, MSG_NOSIGNAL);
        if (count < 0) {
            if (errno == EINTR) continue;
            return; /* the client has what it wanted */
        }
        data += count;
        size -= count;
    }
}

static void serve(int client, int file) {
    static char in[READ_BYTES + 1], out[READ_BYTES * 2], record[RECORD_BYTES];
    static off_t end = 0;
    static long number = 0;
    size_t held = 0;
    write_all(client, "INFO {}\r\n", 9);
    for (;;) {
        ssize_t got = recv(client, in + held, READ_BYTES - held, 0);
        if (got <= 0) return;
        held += got;
        in[held] = 0;
        size_t at = 0, answered = 0, records = 0;
        char *line_end;
        while ((line_end = memmem(in + at, held - at, "\r\n", 2)) != NULL) {
            char subject[256], reply[256];
            unsigned long size;
            size_t next = line_end - in + 2;
            if (sscanf(in + at, "PUB %255s %255s %lu\r\n", subject, reply, &size) == 3) {
                if (held - next < size + 2) break;
                next += size + 2;
                char ack[80];
                int length = snprintf(ack, sizeof ack, "{\"stream\":\"bench\",\"seq\":%ld}", ++number);
                answered += snprintf(out + answered, sizeof out - answered, "MSG %s 1 %d\r\n%s\r\n", reply, length, ack);
                records++;
            } else if (!strncmp(in + at, "PING", 4)) {
                answered += snprintf(out + answered, sizeof out - answered, "PONG\r\n");
            }
            at = next;
        }
        if (records) {
            for (size_t i = 0; i < records; i++, end += RECORD_BYTES)
                if (pwrite(file, record, RECORD_BYTES, end) != RECORD_BYTES) fail("pwrite");
            if (fdatasync(file)) fail("fdatasync");
        }
        write_all(client, out, answered);
        memmove(in, in + at, held - at);
        held -= at;
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (argc != 2) {
        fprintf(stderr, "synced_server DIRECTORY\n");
        return 2;
    }
    int file = open(argv[1], O_TMPFILE | O_RDWR, 0600);
    if (file < 0) fail(argv[1]);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 8)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &size)) fail("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0) fail("accept");
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        serve(client, file);
        close(client);
    }
}
