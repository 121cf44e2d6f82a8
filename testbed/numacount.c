/* QEMU plugin that counts which memory a guest's CPUs use: the accesses that missed a private cache, for each CPU and each node
 * of the memory. It replaces the hardware counters that emulated processors lack, and gets no information from the policies
 * that it judges. Built and loaded by testbed/guest -n.
 *
 * It counts loads and stores of programs, and of these only those at addresses from FROM to TO, where a program has memory only
 * if it asks for it: the measured programs put their memory there, and everything else in the guest is left out. A cache is a
 * table of the lines last used, with one place for each line. The guest's physical address gives the node of the memory:
 * nodes lie one after another, `mib` each.
 *
 *   -plugin libnumacount.so,nodes=N,cpus=CPUs of each,mib=MiB of each,out=FILE[,lines=LINES of a cache]
 *
 * FILE has a line "CPU ON-NODE-0 ON-NODE-1 ..." for each CPU, since the start of the guest. It is rewritten after every 16384
 * misses and at the end, by renaming a new file. The emulator's interface (version 1) is declared here, because few packages
 * contain its header. If it gives addresses of memory blocks instead of the guest's (QEMU 7.2 does: a node's begins at twice the
 * address), addresses beyond the guest's memory show it, as soon as any memory of the last node was used; until then the counts
 * may be wrong. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

typedef uint64_t plugin_id;
typedef uint32_t memory_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, memory_info, uint64_t, void *), int, int, void *);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(memory_info, uint64_t);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

VISIBLE int qemu_plugin_version = 1;

#define FROM 0x100000000000ul
#define TO 0x200000000000ul
/* Programs are below, the kernel is above. */
#define KERNEL 0x800000000000ul

enum { CPUS = 256, NODES = 64, NO_REGISTERS = 0, LOADS_AND_STORES = 3, WRITTEN_EVERY = 16384 };

static unsigned nodes = 1, cpus = CPUS, lines = 4096;
static uint64_t node_bytes = 1;
static const char *out;

static struct cpu {
    uint64_t *tags;
    /* By position in memory, in units of a node: twice the number of nodes, for doubled addresses. */
    uint64_t misses[2 * NODES];
} all[CPUS];

static uint64_t since_written;
static int writing;

static void write_counts(void) {
    char draft[4096];
    if (!out || __sync_lock_test_and_set(&writing, 1)) return;
    snprintf(draft, sizeof draft, "%s.new", out);
    FILE *file = fopen(draft, "w");
    unsigned doubled = 0;
    for (unsigned cpu = 0; cpu < nodes * cpus; cpu++)
        for (unsigned place = nodes; place < 2 * nodes; place++) doubled |= all[cpu].misses[place] != 0;
    for (unsigned cpu = 0; file && cpu < nodes * cpus; cpu++) {
        fprintf(file, "%u", cpu);
        for (unsigned node = 0; node < nodes; node++) fprintf(file, " %" PRIu64, all[cpu].misses[doubled ? 2 * node : node]);
        fputc('\n', file);
    }
    if (file && fclose(file) == 0) rename(draft, out);
    __sync_lock_release(&writing);
}

static void on_access(unsigned number, memory_info info, uint64_t address, void *unused) {
    (void)unused;
    if (address < FROM || address >= TO || number >= CPUS) return;
    struct cpu *cpu = &all[number];
    uint64_t line = address >> 6, *tag = &cpu->tags[(line ^ (line >> 26)) % lines];
    if (*tag == line) return;
    *tag = line;
    struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(info, address);
    if (!where || qemu_plugin_hwaddr_is_io(where)) return;
    uint64_t place = qemu_plugin_hwaddr_phys_addr(where) / node_bytes;
    if (place >= 2 * nodes) return;
    cpu->misses[place]++;
    if (__sync_add_and_fetch(&since_written, 1) >= WRITTEN_EVERY) {
        since_written = 0;
        write_counts();
    }
}

static void on_code(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    size_t many = qemu_plugin_tb_n_insns(block);
    for (size_t at = 0; at < many; at++) {
        struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, at);
        if (qemu_plugin_insn_vaddr(one) < KERNEL)
            qemu_plugin_register_vcpu_mem_cb(one, on_access, NO_REGISTERS, LOADS_AND_STORES, NULL);
    }
}

static void on_end(plugin_id id, void *unused) {
    (void)id, (void)unused;
    write_counts();
}

VISIBLE int qemu_plugin_install(plugin_id id, const void *info, int count, char **words) {
    (void)info;
    for (int at = 0; at < count; at++) {
        char *value = strchr(words[at], '=');
        if (!value) return 1;
        *value++ = 0;
        if (!strcmp(words[at], "nodes")) nodes = (unsigned)atoi(value);
        else if (!strcmp(words[at], "cpus")) cpus = (unsigned)atoi(value);
        else if (!strcmp(words[at], "mib")) node_bytes = strtoull(value, NULL, 10) << 20;
        else if (!strcmp(words[at], "lines")) lines = (unsigned)atoi(value);
        else if (!strcmp(words[at], "out")) out = strdup(value);
        else return 1;
    }
    if (!nodes || nodes > NODES || !cpus || nodes * cpus > CPUS || !node_bytes || !lines) return 1;
    for (unsigned cpu = 0; cpu < nodes * cpus; cpu++) {
        all[cpu].tags = malloc(lines * sizeof *all[cpu].tags);
        if (!all[cpu].tags) return 1;
        memset(all[cpu].tags, 0xff, lines * sizeof *all[cpu].tags);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_code);
    qemu_plugin_register_atexit_cb(id, on_end, NULL);
    return 0;
}
