/* A plugin for QEMU's user mode that counts the instructions a program executes.
 *
 *     gcc -O2 -shared -fPIC count_instructions.c -o count.so
 *     qemu-aarch64 -cpu cortex-a72 -plugin ./count.so -d plugin program
 *
 * Whenever the program calls getppid() the count so far is written as a line "count N" to standard error: a program
 * puts a call before and after what it wants counted, and subtracts. No header is packaged with QEMU 7, so what is used
 * of its plugin interface, version 1, is declared here. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t plugin_id;
typedef struct { const char *target_name; } plugin_info; /* the beginning of qemu_info_t */
struct qemu_plugin_tb;
enum { ADD_U64 = 0 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*made)(plugin_id, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *counter, uint64_t step);
extern void qemu_plugin_register_vcpu_syscall_cb(plugin_id id,
                                                 void (*called)(plugin_id, unsigned, int64_t, uint64_t, uint64_t,
                                                                uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                                                uint64_t));
extern void qemu_plugin_outs(const char *text);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t executed;
static int64_t getppid_number;

static void count_block(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD_U64, &executed, qemu_plugin_tb_n_insns(tb));
}

static void report(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                   uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    char line[40];
    (void)id, (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != getppid_number) return;
    snprintf(line, sizeof line, "count %" PRIu64 "\n", executed);
    qemu_plugin_outs(line);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const plugin_info *info, int argc,
                                                               char **argv)
{
    (void)argc, (void)argv;
    getppid_number = strcmp(info->target_name, "arm") == 0 ? 64 : strcmp(info->target_name, "aarch64") == 0 ? 173 : 110;
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
    qemu_plugin_register_vcpu_syscall_cb(id, report);
    return 0;
}
