// SPDX-License-Identifier: GPL-2.0-only
/*
 * A system trace module that is not there: a device of the kernel's class stm whose channels are memory, for tests of what writes into channels.
 *
 * Policies, masters, ranges of channels, ioctls and mmap() are the kernel's (drivers/hwtracing/stm). What this module has is the end: each store
 * into a mapped channel, and each packet of a write(), becomes packets of an STPv2 stream in memory, in the order in which they came. Reading
 * /dev/rtscope_stm_memory gives the stream from its begin; a write() to it begins a new one. "/sys/module/stm_memory/parameters/..." count.
 *
 * A channel is an extended stimulus port of Arm's STM: 256 bytes, in which the address of a store says what it is (CoreSight STM-500, 3.2). With
 * RAM there only the last store would be seen. So a mapping has no page: each store faults, its instruction is decoded and stepped over,
 * and its address, size and value are kept, as the bus would have them. A store that no port takes is refused with SIGBUS, and counted.
 *
 * The core maps memory by itself (stm_char_mmap), so the file's operations are replaced when it gets its channels: the core's mmap is called
 * with all that it checks, and then what it has mapped is taken away.
 */
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pfn.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/stm.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <asm/ptrace.h>
#include <asm/set_memory.h>

/* Since then the core says what is to be mapped, and mm maps it. */
#define HAS_MMAP_PREPARE (LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0))

#define NAME "rtscope_stm"
#define PORT_BYTES 256
/* Of a port: what a store is, by the bits of its address. The guaranteed ones have bit 7 clear. */
#define PORT_INVARIANT 0x80
#define PORT_FLAG 0x60
#define PORT_NO_MARK 0x10
#define PORT_NO_TIME 0x08
/* Packets between two synchronisations, as hardware has them now and then. */
#define SYNC_EVERY 500

static uint channels = 1024;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "of each master");
static uint buffer_kb = 16384;
module_param(buffer_kb, uint, 0444);
MODULE_PARM_DESC(buffer_kb, "of the stream; packets that do not fit are lost");
static ulong stores;
module_param(stores, ulong, 0444);
MODULE_PARM_DESC(stores, "into mapped channels");
static ulong refused;
module_param(refused, ulong, 0444);
MODULE_PARM_DESC(refused, "stores that no port takes");
static ulong lost;
module_param(lost, ulong, 0444);
MODULE_PARM_DESC(lost, "packets that did not fit");

/* A channel range that is mapped. */
struct channel_range {
	unsigned int master, channel, count;
	const struct vm_operations_struct *core;
};

/* ---- the stream --------------------------------------------------------------------------------------------------------- */

static DEFINE_SPINLOCK(lock);
/* All below: under `lock`. */
static u8 *stream;
static size_t nibbles;
static unsigned int since_sync = SYNC_EVERY, master_now, channel_now;

static void put(u64 value, unsigned int count)
{
	while (count--) {
		u8 nibble = value >> (4 * count) & 0xf;

		if (nibbles & 1)
			stream[nibbles / 2] |= nibble << 4;
		else
			stream[nibbles / 2] = nibble;
		nibbles++;
	}
}

static void put_sync(void)
{
	/* ASYNC, VERSION 3 (times in natural binary), FREQ. */
	for (int i = 0; i < 21; i++)
		put(0xf, 1);
	put(0x0, 1);
	put(0xf003, 4);
	put(0xf08, 3);
	put(1000000000, 8);
	since_sync = 0;
	master_now = channel_now = 0;
}

static void put_source(unsigned int master, unsigned int channel)
{
	if (master != master_now) {
		put(0x1, 1);
		put(master, 2);
		master_now = master;
		channel_now = 0;
	}
	if (channel != channel_now) {
		if (channel >> 8 == channel_now >> 8) {
			put(0x3, 1);
			put(channel & 0xff, 2);
		} else {
			put(0xf3, 2);
			put(channel, 4);
		}
		channel_now = channel;
	}
}

/* Begins a packet of a channel. False: the buffer is full. */
static bool begin(unsigned int master, unsigned int channel)
{
	/* A synchronisation, a source, the largest packet. */
	if (nibbles / 2 + 64 > (size_t)buffer_kb << 10) {
		lost++;
		return false;
	}
	if (since_sync++ >= SYNC_EVERY)
		put_sync();
	put_source(master, channel);
	return true;
}

static void put_time(void)
{
	/* Sixteen nibbles. */
	put(0xe, 1);
	put(ktime_get_mono_fast_ns(), 16);
}

static void emit_data(unsigned int master, unsigned int channel, unsigned int size, bool marked, bool timed, u64 value)
{
	/* By size (1, 2, 4, 8 bytes): plain, with mark and time, with time, with mark. */
	static const u16 opcodes[4][4] = {
		{ 0x4, 0x8, 0xf4, 0xf8 }, { 0x5, 0x9, 0xf5, 0xf9 }, { 0x6, 0xa, 0xf6, 0xfa }, { 0x7, 0xb, 0xf7, 0xfb }
	};
	unsigned long flags;
	u16 opcode = opcodes[ilog2(size)][marked && timed ? 1 : timed ? 2 : marked ? 3 : 0];

	spin_lock_irqsave(&lock, flags);
	if (begin(master, channel)) {
		put(opcode, opcode > 0xf ? 2 : 1);
		put(value, size * 2);
		if (timed)
			put_time();
	}
	spin_unlock_irqrestore(&lock, flags);
}

static void emit_flag(unsigned int master, unsigned int channel, bool timed)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	if (begin(master, channel)) {
		put(timed ? 0xe : 0xfe, timed ? 1 : 2);
		if (timed)
			put_time();
	}
	spin_unlock_irqrestore(&lock, flags);
}

/* ---- stores into mapped channels ------------------------------------------------------------------------------------------- */

static bool emit_store(const struct channel_range *range, unsigned long offset, unsigned int size, u64 value)
{
	unsigned int channel = range->channel + offset / PORT_BYTES, port = offset % PORT_BYTES & ~PORT_INVARIANT;
	bool timed = !(port & PORT_NO_TIME), marked = !(port & PORT_NO_MARK);

	if (offset / PORT_BYTES >= range->count)
		return false;
	switch (port & ~(PORT_NO_TIME | PORT_NO_MARK)) {
	case 0:
		/* What crosses into the next place would be two stores of two kinds. */
		if (port % 8)
			return false;
		emit_data(range->master, channel, size, marked, timed, value);
		return true;
	case PORT_FLAG:
		if (port & PORT_NO_MARK)
			return false;
		emit_flag(range->master, channel, timed);
		return true;
	default:
		return false;
	}
}

static u64 register_of(const struct pt_regs *regs, unsigned int number)
{
	const unsigned long all[16] = { regs->ax,  regs->cx,  regs->dx,	 regs->bx, regs->sp,  regs->bp,
					regs->si,  regs->di,  regs->r8,	 regs->r9, regs->r10, regs->r11,
					regs->r12, regs->r13, regs->r14, regs->r15 };

	return all[number];
}

/* A store of a register or a constant. Returns the length of its instruction; 0: it is something else. */
static unsigned int decode(const u8 *code, const struct pt_regs *regs, unsigned int *size, u64 *value)
{
	unsigned int at = 0, rex = 0, operand, mod, rm, constant = 0;
	bool is_short = false;

	if (code[at] == 0x66) {
		is_short = true;
		at++;
	}
	if ((code[at] & 0xf0) == 0x40)
		rex = code[at++];
	operand = code[at++];
	if (operand != 0x88 && operand != 0x89 && operand != 0xc6 && operand != 0xc7)
		return 0;
	*size = operand == 0x88 || operand == 0xc6 ? 1 : rex & 8 ? 8 : is_short ? 2 : 4;
	mod = code[at] >> 6;
	rm = code[at] & 7;
	*value = register_of(regs, (code[at++] >> 3 & 7) | (rex & 4) << 1);
	if (mod == 3)
		return 0;
	if (rm == 4) {
		if (mod == 0 && (code[at] & 7) == 5)
			at += 4;
		at++;
	}
	at += mod == 1 ? 1 : mod == 2 || (mod == 0 && rm == 5) ? 4 : 0;
	if (operand == 0xc6 || operand == 0xc7) {
		constant = *size == 8 ? 4 : *size;
		*value = constant == 1 ?
				 (s8)code[at] :
			 constant == 2 ?
				 (s16)(code[at] | code[at + 1] << 8) :
				 (s32)(code[at] | code[at + 1] << 8 | code[at + 2] << 16 | (u32)code[at + 3] << 24);
		at += constant;
	}
	if (*size < 8)
		*value &= (1ULL << (8 * *size)) - 1;
	return at;
}

static vm_fault_t range_fault(struct vm_fault *vmf)
{
	struct channel_range *range = vmf->vma->vm_private_data;
	struct pt_regs *regs = task_pt_regs(current);
	unsigned long offset = vmf->real_address - vmf->vma->vm_start;
	/* The longest instruction has 15 bytes. */
	u8 code[24] = {};
	unsigned int length = 0, size;
	u64 value;

	if (vmf->flags & FAULT_FLAG_USER && vmf->flags & FAULT_FLAG_WRITE) {
		pagefault_disable();
		if (__copy_from_user_inatomic(code, (const void __user *)regs->ip, 15) < 15)
			length = decode(code, regs, &size, &value);
		pagefault_enable();
	}
	if (!length || !emit_store(range, offset, size, value)) {
		refused++;
		return VM_FAULT_SIGBUS;
	}
	stores++;
	regs->ip += length;
	return VM_FAULT_NOPAGE;
}

static void range_open(struct vm_area_struct *vma)
{
	struct channel_range *range = vma->vm_private_data, *copy = kmemdup(range, sizeof(*range), GFP_KERNEL);

	if (range->core->open)
		range->core->open(vma);
	/* Without memory it is leaked with the mapping: a test's machine has some. */
	if (copy)
		vma->vm_private_data = copy;
}

static void range_close(struct vm_area_struct *vma)
{
	struct channel_range *range = vma->vm_private_data;

	if (range->core->close)
		range->core->close(vma);
	kfree(range);
}

#if HAS_MMAP_PREPARE
static int range_mapped(unsigned long start, unsigned long end, pgoff_t offset, const struct file *file, void **private)
{
	struct channel_range *range = *private;

	return range->core->mapped ? range->core->mapped(start, end, offset, file, private) : 0;
}
#endif

static const struct vm_operations_struct range_operations = {
#if HAS_MMAP_PREPARE
	.mapped = range_mapped,
#endif
	.open = range_open,
	.close = range_close,
	.fault = range_fault,
};

/* ---- the device ---------------------------------------------------------------------------------------------------------------- */

/* What the core is given to map, and what it asked for; under `mapping`. */
static DEFINE_MUTEX(mapping);
static struct page *page;
static struct channel_range asked;
static const struct file_operations *core_operations;
static struct file_operations file_operations;

static phys_addr_t memory_address(struct stm_data *data, unsigned int master, unsigned int channel, unsigned int count)
{
	asked.master = master;
	asked.channel = channel;
	asked.count = count;
	return count * PORT_BYTES == PAGE_SIZE ? PFN_PHYS(page_to_pfn(page)) : 0;
}

/* What the core has mapped, or wants to be, as a range whose stores fault. NULL: no memory. */
static struct channel_range *new_range(const struct vm_operations_struct *core)
{
	struct channel_range *range = kmemdup(&asked, sizeof(asked), GFP_KERNEL);

	if (range)
		range->core = core;
	return range;
}

#if HAS_MMAP_PREPARE
static int memory_mmap_prepare(struct vm_area_desc *desc)
{
	int error;

	mutex_lock(&mapping);
	error = core_operations->mmap_prepare(desc);
	desc->private_data = error ? NULL : new_range(desc->vm_ops);
	mutex_unlock(&mapping);
	if (error)
		return error;
	desc->vm_ops = &range_operations;
	desc->action.type = MMAP_NOTHING;
	return desc->private_data ? 0 : -ENOMEM;
}
#else
static int memory_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct channel_range *range;
	int error;

	mutex_lock(&mapping);
	error = core_operations->mmap(file, vma);
	range = error ? NULL : new_range(vma->vm_ops);
	mutex_unlock(&mapping);
	if (error)
		return error;
	if (!range)
		return -ENOMEM;
	zap_vma_ptes(vma, vma->vm_start, vma->vm_end - vma->vm_start);
	vma->vm_ops = &range_operations;
	vma->vm_private_data = range;
	return 0;
}
#endif

static int replace_operations(const void *unused, struct file *file, unsigned int number)
{
	if (!S_ISCHR(file_inode(file)->i_mode) || strcmp(file->f_path.dentry->d_name.name, NAME) ||
	    file->f_op == &file_operations)
		return 0;
	if (!core_operations) {
		core_operations = file->f_op;
		file_operations = *file->f_op;
#if HAS_MMAP_PREPARE
		file_operations.mmap_prepare = memory_mmap_prepare;
#else
		file_operations.mmap = memory_mmap;
#endif
	}
	if (file->f_op == core_operations)
		file->f_op = &file_operations;
	return 0;
}

/* A file has got its channels: the caller's. */
static int memory_link(struct stm_data *data, unsigned int master, unsigned int channel)
{
	iterate_fd(current->files, 0, replace_operations, NULL);
	return core_operations ? 0 : -EOPNOTSUPP;
}

/* A packet of a write(). */
static ssize_t notrace memory_packet(struct stm_data *data, unsigned int master, unsigned int channel,
				     unsigned int type, unsigned int flags, unsigned int size,
				     const unsigned char *payload)
{
	bool marked = flags & STP_PACKET_MARKED, timed = flags & STP_PACKET_TIMESTAMPED;
	u64 value = 0;

	switch (type) {
	case STP_PACKET_DATA:
		size = rounddown_pow_of_two(min(size, 8U));
		memcpy(&value, payload, size);
		emit_data(master, channel, size, marked, timed, value);
		return size;
	case STP_PACKET_FLAG:
		emit_flag(master, channel, timed);
		return size;
	default:
		return -ENOTSUPP;
	}
}

static struct stm_data device = {
	.name = NAME,
	.sw_start = 16,
	.sw_end = 23,
	.sw_mmiosz = PORT_BYTES,
	.packet = memory_packet,
	.mmio_addr = memory_address,
	.link = memory_link,
};

/* ---- reading back ---------------------------------------------------------------------------------------------------------------- */

static ssize_t stream_read(struct file *file, char __user *to, size_t size, loff_t *position)
{
	/* The nibble that is missing at its end is 0, a packet of nothing. Until something comes: whoever reads waits until all is quiet. */
	/* ORDER: none; the number alone. */
	size_t bytes = (READ_ONCE(nibbles) + 1) / 2;

	return simple_read_from_buffer(to, size, position, stream, bytes);
}

static ssize_t stream_write(struct file *file, const char __user *from, size_t size, loff_t *position)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	nibbles = 0;
	since_sync = SYNC_EVERY;
	spin_unlock_irqrestore(&lock, flags);
	return size;
}

static const struct file_operations stream_operations = {
	.owner = THIS_MODULE,
	.read = stream_read,
	.write = stream_write,
	.llseek = default_llseek,
};

static struct miscdevice stream_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rtscope_stm_memory",
	.fops = &stream_operations,
	.mode = 0600,
};

static int __init memory_init(void)
{
	int error = -ENOMEM;

	stream = vzalloc((size_t)buffer_kb << 10);
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!stream || !page)
		goto free;
	/* As the core maps it, or the kernel warns of two kinds of mappings. */
	set_memory_uc((unsigned long)page_address(page), 1);
	error = misc_register(&stream_device);
	if (error)
		goto cached;
	device.sw_nchannels = channels;
	error = stm_register_device(NULL, &device, THIS_MODULE);
	if (!error)
		return 0;
	misc_deregister(&stream_device);
cached:
	set_memory_wb((unsigned long)page_address(page), 1);
free:
	if (page)
		__free_page(page);
	vfree(stream);
	return error;
}

static void __exit memory_exit(void)
{
	stm_unregister_device(&device);
	misc_deregister(&stream_device);
	set_memory_wb((unsigned long)page_address(page), 1);
	__free_page(page);
	vfree(stream);
}

module_init(memory_init);
module_exit(memory_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A system trace module in memory, for tests");
