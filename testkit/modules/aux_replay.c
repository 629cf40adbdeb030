// SPDX-License-Identifier: GPL-2.0-only
/*
 * A trace unit that is not there: a PMU with an AUX area whose hardware is a writer, for tests of what records AUX data.
 *
 * What is written to /dev/rtscope_aux_replay is what the unit of the writer's CPU emits at that moment. Where an event of the PMU is
 * running on that CPU, the bytes go into its AUX area; elsewhere they go nowhere, as with a unit that is off. All else is the kernel's: the
 * rings, their records, wakeups, switches of tasks, and enabling and disabling.
 *
 * It does what the driver of Intel PT does (arch/x86/events/intel/pt.c):
 *
 *   full trace  what was emitted is published after each write; a full area is PERF_AUX_FLAG_TRUNCATED and disables the event
 *   overwrite   the area is a circle; its head is a place in it, and is published only when the event stops
 *
 * A read() returns a line for each CPU: "cpu 1 emitted 100 stored 60 refused 20 unheard 20 starts 2". Refused bytes found no room,
 * unheard ones no running event. ioctl(AUX_REPLAY_FLAGS, flags) adds PERF_AUX_FLAG_* to what this CPU publishes next.
 *
 * It has four address comparators. ioctl(AUX_REPLAY_PASS, address) says whether the unit of this CPU is on for that address: 1, or 0. What a program
 * would have the unit write there it writes itself then; all else is the kernel's, as which address a place of a file has in a process.
 *
 * The name is that of the PMU in sysfs: with name=intel_pt it is found as that unit is, in guests whose processor has none.
 */
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define AUX_REPLAY_FLAGS _IOW('r', 1, u64)
#define AUX_REPLAY_PASS _IOW('r', 2, u64)
#define COMPARATORS 4
/* With interrupts off; a longer write() is a short one. */
#define MOST_BYTES (64 << 10)
/* Bits that Intel PT has in its format, below. */
#define CONFIG_MASK 0x0f7bfe33ULL

static char *name = "rtscope_pt";
module_param(name, charp, 0444);
MODULE_PARM_DESC(name, "of the PMU");

/* An AUX area, whose pages the kernel has. */
struct area {
	void **pages;
	size_t bytes;
	bool overwrites;
};

struct counts {
	u64 emitted;
	u64 stored;
	u64 refused;
	u64 unheard;
	u64 starts;
};

/* Of a CPU. Used there with interrupts off. */
struct unit {
	struct perf_output_handle handle;
	/* The event that runs; NULL: the unit is off. */
	struct perf_event *event;
	/* In the area, of the next byte. */
	size_t head;
	/* Stored and not yet published. */
	size_t filled;
	u64 flags;
	struct counts counts;
};

/* Of an event, whichever CPU it runs on; none: it traces everything. */
struct comparators {
	struct perf_addr_filter_range ranges[COMPARATORS];
	int count;
};

static DEFINE_PER_CPU(struct unit, units);

static void unit_begin(struct unit *unit, struct perf_event *event)
{
	struct area *area = perf_aux_output_begin(&unit->handle, event);

	unit->event = area ? event : NULL;
	event->hw.state = area ? 0 : PERF_HES_STOPPED;
	unit->filled = 0;
	if (area)
		unit->head = unit->handle.head & (area->bytes - 1);
}

static void unit_end(struct unit *unit)
{
	struct area *area = perf_get_aux(&unit->handle);
	size_t size = unit->filled;

	unit->event = NULL;
	if (!area)
		return;
	if (unit->flags)
		perf_aux_output_flag(&unit->handle, unit->flags);
	unit->flags = 0;
	if (area->overwrites) {
		unit->handle.head = unit->head;
		size = area->bytes;
	}
	perf_aux_output_end(&unit->handle, size);
}

/* Bytes that fit; a circle takes all. */
static size_t unit_store(struct unit *unit, struct area *area, const u8 *bytes, size_t size)
{
	size_t stored = 0;

	if (!area->overwrites)
		size = min(size, (size_t)unit->handle.size - unit->filled);
	while (stored < size) {
		size_t inside = offset_in_page(unit->head);
		size_t part = min(size - stored, PAGE_SIZE - inside);

		memcpy(area->pages[unit->head >> PAGE_SHIFT] + inside, bytes + stored, part);
		unit->head = (unit->head + part) & (area->bytes - 1);
		stored += part;
	}
	unit->filled += stored;
	return stored;
}

/* With interrupts off. */
static void unit_emit(struct unit *unit, const u8 *bytes, size_t size)
{
	struct perf_event *event = unit->event;
	struct area *area = event ? perf_get_aux(&unit->handle) : NULL;
	size_t stored;

	unit->counts.emitted += size;
	if (!area) {
		unit->counts.unheard += size;
		return;
	}
	stored = unit_store(unit, area, bytes, size);
	unit->counts.stored += stored;
	unit->counts.refused += size - stored;
	if (area->overwrites)
		return;
	if (stored < size)
		unit->flags |= PERF_AUX_FLAG_TRUNCATED;
	/* The unit's interrupt. */
	unit_end(unit);
	unit_begin(unit, event);
}

/* As Intel PT has it: ranges of code that is traced. */
static int replay_addr_filters_validate(struct list_head *filters)
{
	struct perf_addr_filter *filter;
	int count = 0;

	list_for_each_entry(filter, filters, entry)
	{
		if (!filter->size || filter->action == PERF_ADDR_FILTER_ACTION_START)
			return -EOPNOTSUPP;
		if (++count > COMPARATORS)
			return -EOPNOTSUPP;
	}
	return 0;
}

/* Only when something has changed since the last time. A file that is not mapped has a range without an address. */
static void replay_addr_filters_sync(struct perf_event *event)
{
	struct perf_addr_filters_head *head = perf_event_addr_filters(event);
	struct comparators *comparators = event->hw.addr_filters;
	struct perf_addr_filter *filter;
	int range = 0;

	list_for_each_entry(filter, &head->list, entry)
	{
		if (range < COMPARATORS)
			comparators->ranges[range] = event->addr_filter_ranges[range];
		range++;
	}
	comparators->count = min(range, COMPARATORS);
}

static bool unit_passes(const struct unit *unit, u64 address)
{
	const struct comparators *comparators = unit->event ? unit->event->hw.addr_filters : NULL;

	if (!comparators)
		return false;
	for (int i = 0; i < comparators->count; i++)
		if (address - comparators->ranges[i].start < comparators->ranges[i].size)
			return true;
	return !comparators->count;
}

static void replay_start(struct perf_event *event, int mode)
{
	struct unit *unit = this_cpu_ptr(&units);

	perf_event_addr_filters_sync(event);
	unit_begin(unit, event);
	unit->counts.starts += unit->event != NULL;
}

static void replay_stop(struct perf_event *event, int mode)
{
	if (event->hw.state == PERF_HES_STOPPED)
		return;
	event->hw.state = PERF_HES_STOPPED;
	if (mode & PERF_EF_UPDATE)
		unit_end(this_cpu_ptr(&units));
}

static int replay_add(struct perf_event *event, int mode)
{
	if (this_cpu_ptr(&units)->event)
		return -EBUSY;
	event->hw.state = PERF_HES_STOPPED;
	if (!(mode & PERF_EF_START))
		return 0;
	replay_start(event, 0);
	return event->hw.state == PERF_HES_STOPPED ? -EINVAL : 0;
}

static void replay_del(struct perf_event *event, int mode)
{
	replay_stop(event, PERF_EF_UPDATE);
}

static void replay_read_count(struct perf_event *event)
{
}

static struct pmu replay_pmu;

static void replay_destroy(struct perf_event *event)
{
	kfree(event->hw.addr_filters);
	event->hw.addr_filters = NULL;
}

static int replay_event_init(struct perf_event *event)
{
	if (event->attr.type != replay_pmu.type)
		return -ENOENT;
	if (event->attr.config & ~CONFIG_MASK)
		return -EINVAL;
	event->hw.addr_filters = kzalloc(sizeof(struct comparators), GFP_KERNEL);
	if (!event->hw.addr_filters)
		return -ENOMEM;
	event->destroy = replay_destroy;
	return 0;
}

static void *replay_setup_aux(struct perf_event *event, void **pages, int nr_pages, bool overwrites)
{
	struct area *area = is_power_of_2(nr_pages) ? kzalloc(sizeof(*area), GFP_KERNEL) : NULL;

	if (!area)
		return NULL;
	area->pages = pages;
	area->bytes = (size_t)nr_pages << PAGE_SHIFT;
	area->overwrites = overwrites;
	return area;
}

static void replay_free_aux(void *area)
{
	kfree(area);
}

/* As Intel PT has them. */
PMU_FORMAT_ATTR(pt, "config:0");
PMU_FORMAT_ATTR(cyc, "config:1");
PMU_FORMAT_ATTR(pwr_evt, "config:4");
PMU_FORMAT_ATTR(fup_on_ptw, "config:5");
PMU_FORMAT_ATTR(mtc, "config:9");
PMU_FORMAT_ATTR(tsc, "config:10");
PMU_FORMAT_ATTR(noretcomp, "config:11");
PMU_FORMAT_ATTR(ptw, "config:12");
PMU_FORMAT_ATTR(branch, "config:13");
PMU_FORMAT_ATTR(mtc_period, "config:14-17");
PMU_FORMAT_ATTR(cyc_thresh, "config:19-22");
PMU_FORMAT_ATTR(psb_period, "config:24-27");

static struct attribute *format_attributes[] = {
	&format_attr_pt.attr,
	&format_attr_cyc.attr,
	&format_attr_pwr_evt.attr,
	&format_attr_fup_on_ptw.attr,
	&format_attr_mtc.attr,
	&format_attr_tsc.attr,
	&format_attr_noretcomp.attr,
	&format_attr_ptw.attr,
	&format_attr_branch.attr,
	&format_attr_mtc_period.attr,
	&format_attr_cyc_thresh.attr,
	&format_attr_psb_period.attr,
	NULL,
};

PMU_EVENT_ATTR_STRING(psb_cyc, cap_psb_cyc, "1");
PMU_EVENT_ATTR_STRING(mtc, cap_mtc, "1");
PMU_EVENT_ATTR_STRING(ptwrite, cap_ptwrite, "1");
PMU_EVENT_ATTR_STRING(topa_output, cap_topa_output, "1");
PMU_EVENT_ATTR_STRING(mtc_periods, cap_mtc_periods, "249");
PMU_EVENT_ATTR_STRING(psb_periods, cap_psb_periods, "3f");

static struct attribute *cap_attributes[] = {
	&cap_psb_cyc.attr.attr,
	&cap_mtc.attr.attr,
	&cap_ptwrite.attr.attr,
	&cap_topa_output.attr.attr,
	&cap_mtc_periods.attr.attr,
	&cap_psb_periods.attr.attr,
	NULL,
};

PMU_EVENT_ATTR_STRING(max_nonturbo_ratio, max_nonturbo_ratio, "24");
PMU_EVENT_ATTR_STRING(tsc_art_ratio, tsc_art_ratio, "200:2");

static struct attribute *timing_attributes[] = {
	&max_nonturbo_ratio.attr.attr,
	&tsc_art_ratio.attr.attr,
	NULL,
};

static const struct attribute_group format_group = { .name = "format", .attrs = format_attributes };
static const struct attribute_group caps_group = { .name = "caps", .attrs = cap_attributes };
static const struct attribute_group timing_group = { .attrs = timing_attributes };
static const struct attribute_group *groups[] = { &format_group, &caps_group, &timing_group, NULL };

static struct pmu replay_pmu = {
	.module = THIS_MODULE,
	.capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
	.attr_groups = groups,
	.task_ctx_nr = perf_sw_context,
	.event_init = replay_event_init,
	.add = replay_add,
	.del = replay_del,
	.start = replay_start,
	.stop = replay_stop,
	.read = replay_read_count,
	.setup_aux = replay_setup_aux,
	.free_aux = replay_free_aux,
	.nr_addr_filters = COMPARATORS,
	.addr_filters_validate = replay_addr_filters_validate,
	.addr_filters_sync = replay_addr_filters_sync,
};

static ssize_t replay_write(struct file *file, const char __user *from, size_t size, loff_t *position)
{
	unsigned long flags;
	u8 *bytes;

	size = min_t(size_t, size, MOST_BYTES);
	bytes = memdup_user(from, size);
	if (IS_ERR(bytes))
		return PTR_ERR(bytes);
	local_irq_save(flags);
	unit_emit(this_cpu_ptr(&units), bytes, size);
	local_irq_restore(flags);
	kfree(bytes);
	return size;
}

static ssize_t replay_read(struct file *file, char __user *to, size_t size, loff_t *position)
{
	char *text = kzalloc(MOST_BYTES, GFP_KERNEL);
	size_t length = 0;
	ssize_t read;
	int cpu;

	if (!text)
		return -ENOMEM;
	for_each_online_cpu(cpu)
	{
		/* Sums of a CPU that may be emitting: a reader asks when it is not. */
		struct counts counts = per_cpu(units, cpu).counts;

		length += scnprintf(text + length, MOST_BYTES - length,
				    "cpu %d emitted %llu stored %llu refused %llu unheard %llu starts %llu\n", cpu,
				    counts.emitted, counts.stored, counts.refused, counts.unheard, counts.starts);
	}
	read = simple_read_from_buffer(to, size, position, text, length);
	kfree(text);
	return read;
}

static long replay_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	unsigned long irq_flags;
	bool passes;
	u64 flags;

	if (command == AUX_REPLAY_PASS) {
		local_irq_save(irq_flags);
		passes = unit_passes(this_cpu_ptr(&units), argument);
		local_irq_restore(irq_flags);
		return passes;
	}
	if (command != AUX_REPLAY_FLAGS)
		return -ENOTTY;
	if (copy_from_user(&flags, (void __user *)argument, sizeof(flags)))
		return -EFAULT;
	local_irq_save(irq_flags);
	this_cpu_ptr(&units)->flags |= flags;
	local_irq_restore(irq_flags);
	return 0;
}

static const struct file_operations replay_operations = {
	.owner = THIS_MODULE,
	.read = replay_read,
	.write = replay_write,
	.unlocked_ioctl = replay_ioctl,
};

static struct miscdevice replay_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rtscope_aux_replay",
	.fops = &replay_operations,
	.mode = 0600,
};

static int __init replay_init(void)
{
	int error = perf_pmu_register(&replay_pmu, name, -1);

	if (error)
		return error;
	error = misc_register(&replay_device);
	if (error)
		perf_pmu_unregister(&replay_pmu);
	return error;
}

static void __exit replay_exit(void)
{
	misc_deregister(&replay_device);
	perf_pmu_unregister(&replay_pmu);
}

module_init(replay_init);
module_exit(replay_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A PMU whose AUX data is what a process writes (tests of rtscope)");
