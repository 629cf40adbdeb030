// SPDX-License-Identifier: GPL-2.0-only
/*
 * Switches interrupts, softirqs or preemption off on one CPU for a known time, for tests of what finds such times.
 *
 * The device /dev/rtscope_injector takes a line "WHAT MICROSECONDS" and acts on the CPU of the writer before write() returns:
 *
 *   irqs 2000      local interrupts are disabled
 *   softirqs 2000  local softirqs are disabled; EOPNOTSUPP where the kernel does not keep them out of such a time
 *   preempt 2000   preemption is disabled
 *   none 2000      nothing is disabled: the same loop, which also gives way where the scheduler asks for it
 *
 * Reading the same file descriptor returns what it did last: "irqs cpu 1 begin_ns 123 end_ns 456". The stamps are of
 * CLOCK_MONOTONIC. "begin" is read after the switch and "end" before it is undone, so all of what lies between them was
 * spent in that state.
 *
 * For the guests of `./x vm` only: whoever may write here can stop a CPU.
 */
#include <linux/bottom_half.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/version.h>

/*
 * With PREEMPT_RT a task that has disabled softirqs can be preempted. Until Linux 6.18 a lock for each CPU made others wait
 * with theirs; since then (CONFIG_PREEMPT_RT_NEEDS_BH_LOCK unset) ksoftirqd handles them meanwhile.
 */
#if defined(CONFIG_PREEMPT_RT) && !defined(CONFIG_PREEMPT_RT_NEEDS_BH_LOCK) && \
	LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
#define SOFTIRQS_STAY_OUT 0
#else
#define SOFTIRQS_STAY_OUT 1
#endif

/* Longer than this, watchdogs of the kernel would report us. */
#define MOST_MICROSECONDS 1000000

/* The last report of one open file. */
struct report {
	char text[96];
	size_t size;
};

struct stamps {
	unsigned int cpu;
	u64 begin_ns;
	u64 end_ns;
};

/* Keeps this CPU busy; the clock is read all the time, so the end is late by one reading at most. */
static struct stamps spin(u64 duration_ns, bool gives_way)
{
	struct stamps stamps = { .cpu = raw_smp_processor_id(), .begin_ns = ktime_get_ns() };

	do {
		if (gives_way)
			cond_resched();
		cpu_relax();
		stamps.end_ns = ktime_get_ns();
	} while (stamps.end_ns - stamps.begin_ns < duration_ns);
	return stamps;
}

static int inject(const char *what, u64 duration_ns, struct stamps *stamps)
{
	if (!strcmp(what, "irqs")) {
		unsigned long flags;

		local_irq_save(flags);
		*stamps = spin(duration_ns, false);
		local_irq_restore(flags);
	} else if (!strcmp(what, "softirqs")) {
		if (!SOFTIRQS_STAY_OUT)
			return -EOPNOTSUPP;
		local_bh_disable();
		*stamps = spin(duration_ns, false);
		local_bh_enable();
	} else if (!strcmp(what, "preempt")) {
		preempt_disable();
		*stamps = spin(duration_ns, false);
		preempt_enable();
	} else if (!strcmp(what, "none")) {
		*stamps = spin(duration_ns, true);
	} else {
		return -EINVAL;
	}
	return 0;
}

static int injector_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc(sizeof(struct report), GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static int injector_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

/* The position is 0 after it, so that a read() begins with the report. */
static ssize_t injector_write(struct file *file, const char __user *from, size_t size, loff_t *position)
{
	struct report *report = file->private_data;
	struct stamps stamps;
	unsigned int microseconds;
	char line[32], what[16];
	int error;

	if (size >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, size))
		return -EFAULT;
	line[size] = '\0';
	if (sscanf(line, "%15s %u", what, &microseconds) != 2 || microseconds > MOST_MICROSECONDS)
		return -EINVAL;
	error = inject(what, (u64)microseconds * NSEC_PER_USEC, &stamps);
	if (error)
		return error;
	report->size = scnprintf(report->text, sizeof(report->text), "%s cpu %u begin_ns %llu end_ns %llu\n", what,
				 stamps.cpu, stamps.begin_ns, stamps.end_ns);
	*position = 0;
	return size;
}

static ssize_t injector_read(struct file *file, char __user *to, size_t size, loff_t *position)
{
	struct report *report = file->private_data;

	return simple_read_from_buffer(to, size, position, report->text, report->size);
}

static const struct file_operations injector_operations = {
	.owner = THIS_MODULE,
	.open = injector_open,
	.release = injector_release,
	.read = injector_read,
	.write = injector_write,
};

static struct miscdevice injector = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rtscope_injector",
	.fops = &injector_operations,
	.mode = 0600,
};
module_misc_device(injector);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Switches interrupts, softirqs or preemption off for a known time (tests of rtscope)");
