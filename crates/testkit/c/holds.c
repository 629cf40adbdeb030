/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A user who holds the lock of a directory of his: he reads it into a page of a file in a FUSE file system, whose server, this program, never gives that page.
 * Arguments: the FUSE device, the directory, and a time in seconds, after which the server ends and the kernel lets go. It says "held" when it is so. Run
 * as root of a user and mount namespace of one's own. With a fourth argument somebody waits for the lock to make a directory of this name: then nobody else
 * gets it for reading either.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROOT = 1, PAGE = 2, BYTES = 4096 };

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void answer(int device, uint64_t unique, const void *data, size_t bytes)
{
	struct {
		struct fuse_out_header header;
		char data[256];
	} out = { { (uint32_t)(sizeof(struct fuse_out_header) + bytes), 0, unique }, { 0 } };
	memcpy(out.data, data, bytes);
	if (write(device, &out, out.header.len) < 0)
		fail("answer");
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.ino = node;
	attr.size = BYTES;
	attr.blocks = BYTES / 512;
	attr.blksize = BYTES;
	attr.nlink = 1;
	attr.mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0644;
	return attr;
}

/* Another process waits for the lock, until it is let go; it has begun to. */
static void wait_for_lock(int device, const char *directory, const char *name)
{
	char path[64], state = 0;
	pid_t waits = fork();
	if (waits == 0) {
		close(device);
		if (chdir(directory) == 0)
			mkdir(name, 0755);
		_exit(0);
	}
	snprintf(path, sizeof path, "/proc/%d/stat", (int)waits);
	while (state != 'D') {
		FILE *file = fopen(path, "r");
		if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
			fail(path);
		fclose(file);
		usleep(1000);
	}
}

static void serve(int device, const char *directory, const char *name)
{
	static char in[1 << 17];
	for (;;) {
		const struct fuse_in_header *asked = (const void *)in;
		if (read(device, in, sizeof in) < 0)
			fail("read the device");
		switch (asked->opcode) {
		case FUSE_INIT: {
			struct fuse_init_out out;
			memset(&out, 0, sizeof out);
			out.major = FUSE_KERNEL_VERSION;
			out.minor = ((const struct fuse_init_in *)(asked + 1))->minor;
			out.max_readahead = out.max_write = BYTES;
			answer(device, asked->unique, &out, sizeof out);
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out out;
			memset(&out, 0, sizeof out);
			out.attr_valid = 1000;
			out.attr = attributes(asked->nodeid);
			answer(device, asked->unique, &out, sizeof out);
			break;
		}
		case FUSE_LOOKUP: {
			struct fuse_entry_out out;
			memset(&out, 0, sizeof out);
			out.nodeid = PAGE;
			out.entry_valid = out.attr_valid = 1000;
			out.attr = attributes(PAGE);
			answer(device, asked->unique, &out, sizeof out);
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out out;
			memset(&out, 0, sizeof out);
			answer(device, asked->unique, &out, sizeof out);
			break;
		}
		case FUSE_READ:
			/* Never answered. */
			if (name)
				wait_for_lock(device, directory, name);
			puts("held");
			fflush(stdout);
			break;
		default:
			break;
		}
	}
}

int main(int count, char **words)
{
	char options[100];
	int device, file, directory;
	void *page;
	if (count != 4 && count != 5)
		return 2;
	alarm((unsigned)atoi(words[3]));
	device = open(words[1], O_RDWR);
	if (device < 0)
		fail("open the device");
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("none", "/tmp", "tmpfs", 0, NULL) || mkdir("/tmp/served", 0755) ||
	    mount("holds", "/tmp/served", "fuse", 0, options))
		fail("mount");
	if (fork() != 0) {
		serve(device, words[2], count == 5 ? words[4] : NULL);
		return 0;
	}
	/* Without the device: when the server ends, so does what waits for it. */
	close(device);
	file = open("/tmp/served/page", O_RDWR);
	directory = open(words[2], O_RDONLY | O_DIRECTORY);
	page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	if (file < 0 || directory < 0 || page == MAP_FAILED)
		fail("open");
	syscall(SYS_getdents64, directory, page, BYTES);
	return 0;
}
