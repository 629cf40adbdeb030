#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=dash
# The first program of the guest: mounts what a system has, runs the tests that /tests lists, one process each, and says on
# the console what happens, in lines that the host reads (xtask/src/vm/guest.rs).
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/root RTSCOPE_VM=tcg RUST_BACKTRACE=0
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts /var/tmp
mount -t tmpfs tmp /tmp
mount -t tmpfs tmp /var/tmp
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
mount -t tracefs tracing /sys/kernel/tracing
mount -t debugfs debug /sys/kernel/debug
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -o remount,mode=755 /sys/kernel/tracing
ip link set lo up
hostname rtscope-vm
# The second serial port is a device whose interrupts the host makes: see crates/testkit/src/serial.rs.
if [ -c /dev/ttyS1 ]; then export RTSCOPE_VM_SERIAL=/dev/ttyS1; fi

echo "RTSCOPE-VM boot $(uname -r)"
# Each test would ask this again, and an emulated CPU takes seconds for the answer. Without it they ask, and say why not.
if /build/rtscope caps > /dev/null 2>&1; then export RTSCOPE_CAN_WATCH=yes; fi
# Instead of tests: xtask/src/vm/command.rs.
if [ -f /command ]; then
    echo "RTSCOPE-VM run"
    PATH=/build:$PATH sh /command < /dev/null 2>&1
    echo "RTSCOPE-VM ran $?"
    poweroff -f
fi
echo "rtscope tests begin" > /dev/kmsg
while read -r number limit program name; do
    echo "RTSCOPE-VM begin $number"
    timeout -s KILL "$limit" "$program" --exact "$name" --show-output --test-threads=1 < /dev/null 2>&1
    echo "RTSCOPE-VM end $number $?"
done < /tests
echo "RTSCOPE-VM log"
dmesg | sed '1,/rtscope tests begin/d' | tail -n 1000
echo "RTSCOPE-VM off"
poweroff -f
