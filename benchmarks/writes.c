/* What it costs to write short records to very many files, by each way that there is.
 *
 * writes DIRECTORY FILES RECORDS BYTES
 *
 * prints one line of JSON, microseconds of processor time a record: a pwrite each to a file by chance; a copy each
 * into a mapped page of a file by chance; a pwrite for every 450 of them into one file (a journal); and what it costs
 * to read ten cache lines of a structure by chance, which is less than a log has. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define TURN 450 /* records of a turn of the event loop: 64 KiB of messages of 100 bytes */
#define LINES 10
#define SPREAD 4096 /* bytes that the ten lines lie in */

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static uint64_t state = 88172645463325252ull;
static uint64_t chance(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    long files = atol(argv[2]), records = atol(argv[3]);
    size_t bytes = atol(argv[4]), mapped = 1 << 16;
    char name[4096];
    int *fds = malloc(files * sizeof(int));
    off_t *ends = calloc(files, sizeof(off_t));
    char **maps = malloc(files * sizeof(char *)), *record = malloc(bytes * TURN);
    memset(record, 'x', bytes * TURN);
    for (long i = 0; i < files; i++) {
        snprintf(name, sizeof name, "%s/writes-%ld", argv[1], i);
        fds[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fds[i] < 0) fail("open");
        unlink(name);
        if (pwrite(fds[i], record, bytes, 0) < 0) fail("pwrite");
        ends[i] = bytes;
    }
    double start = cpu_s();
    for (long n = 0; n < records; n++) {
        long i = chance(files);
        if (pwrite(fds[i], record, bytes, ends[i]) < 0) fail("pwrite");
        ends[i] += bytes;
    }
    double each = cpu_s() - start;
    start = cpu_s();
    off_t end = 0;
    for (long n = 0; n < records; n += TURN) {
        if (pwrite(fds[0], record, bytes * TURN, end) < 0) fail("pwrite");
        end += bytes * TURN;
    }
    double journal = cpu_s() - start;
    for (long i = 0; i < files; i++) {
        if (ftruncate(fds[i], mapped) < 0) fail("ftruncate");
        maps[i] = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
        if (maps[i] == MAP_FAILED) fail("mmap");
        memset(maps[i], 0, mapped / 16);
        ends[i] = 0;
    }
    start = cpu_s();
    for (long n = 0; n < records; n++) {
        long i = chance(files);
        memcpy(maps[i] + ends[i], record, bytes);
        ends[i] = (ends[i] + bytes) % (mapped / 16 - bytes);
    }
    double copy = cpu_s() - start;
    char *memory = malloc(files * SPREAD);
    memset(memory, 1, files * SPREAD);
    volatile long sum = 0;
    start = cpu_s();
    for (long n = 0; n < records; n++) {
        char *here = memory + chance(files) * SPREAD;
        for (int line = 0; line < LINES; line++) sum += here[(line * 7 % 64) * 64 + (sum & 1)];
    }
    double lines = cpu_s() - start;
    double per = 1e6 / records;
    printf("{\"pwrite_us\": %.3f, \"mapped_us\": %.3f, \"journal_us\": %.3f, \"ten_lines_us\": %.3f}\n",
           each * per, copy * per, journal * per, lines * per);
    return 0;
}
