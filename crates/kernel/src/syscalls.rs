// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of system calls: tracefs describes calls by name only, the programs see numbers. Which calls take paths and names.
//! And whether the programs can be trusted with the calls themselves.

use crate::ebpf::{EbpfConfig, EbpfPrograms, Error, RecorderConfig, StreamConfig};
use crate::programs::PROBE_PREEMPTION;

/// By number, from 0: the calls as tracefs names them; `-` where there is none. (Some have another name in C: `newstat` is
/// stat.)
#[cfg(target_arch = "x86_64")]
const FROM_0: &str = "\
    read write open close newstat newfstat newlstat poll lseek mmap mprotect munmap brk rt_sigaction \
    rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap \
    msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm setitimer getpid \
    sendfile64 socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname \
    getpeername socketpair setsockopt getsockopt clone fork vfork execve exit wait4 kill newuname semget \
    semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync fdatasync truncate ftruncate getdents \
    getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown \
    lchown umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid \
    geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid \
    setresgid getresgid getpgid setfsuid setfsgid getsid capget capset rt_sigpending rt_sigtimedwait \
    rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib personality ustat statfs fstatfs sysfs \
    getpriority setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler \
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall munlockall \
    vhangup modify_ldt pivot_root - prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount \
    umount swapon swapoff reboot sethostname setdomainname iopl ioperm - init_module delete_module - - \
    quotactl - - - - - - gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr \
    listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity \
    sched_getaffinity set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area \
    lookup_dcookie epoll_create - - remap_file_pages getdents64 set_tid_address restart_syscall semtimedop \
    fadvise64 timer_create timer_settime timer_gettime timer_getoverrun timer_delete clock_settime \
    clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes - mbind \
    set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr \
    kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init inotify_add_watch \
    inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat \
    linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list \
    splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create eventfd \
    fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 \
    inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark \
    prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu \
    process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp \
    getrandom memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range \
    preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq uretprobe uprobe";
#[cfg(target_arch = "aarch64")]
const FROM_0: &str = "\
    io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr \
    fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd lookup_dcookie \
    eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 inotify_add_watch \
    inotify_rm_watch ioctl ioprio_set ioprio_get flock mknodat mkdirat unlinkat symlinkat linkat renameat \
    umount mount pivot_root - statfs fstatfs truncate ftruncate fallocate faccessat chdir fchdir chroot \
    fchmod fchmodat fchownat fchown openat close vhangup pipe2 quotactl getdents64 lseek read write readv \
    writev pread64 pwrite64 preadv pwritev sendfile64 pselect6 ppoll signalfd4 vmsplice splice tee \
    readlinkat newfstatat newfstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime \
    timerfd_gettime utimensat acct capget capset personality exit exit_group waitid set_tid_address unshare \
    futex set_robust_list get_robust_list nanosleep getitimer setitimer kexec_load init_module delete_module \
    timer_create timer_gettime timer_getoverrun timer_settime timer_delete clock_settime clock_gettime \
    clock_getres clock_nanosleep syslog ptrace sched_setparam sched_setscheduler sched_getscheduler \
    sched_getparam sched_setaffinity sched_getaffinity sched_yield sched_get_priority_max \
    sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend \
    rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority \
    getpriority reboot setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid \
    setfsgid times setpgid getpgid getsid setsid getgroups setgroups newuname sethostname setdomainname \
    getrlimit setrlimit getrusage umask prctl getcpu gettimeofday settimeofday adjtimex getpid getppid \
    getuid geteuid getgid getegid gettid sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify \
    mq_getsetattr msgget msgctl msgrcv msgsnd semget semctl semtimedop semop shmget shmctl shmat shmdt \
    socket socketpair bind listen accept connect getsockname getpeername sendto recvfrom setsockopt \
    getsockopt shutdown sendmsg recvmsg readahead brk munmap mremap add_key request_key keyctl clone execve \
    mmap fadvise64_64 swapon swapoff mprotect msync mlock munlock mlockall munlockall mincore madvise \
    remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo \
    perf_event_open accept4 recvmmsg - - - - - - - - - - - - - - - - wait4 prlimit64 fanotify_init \
    fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime syncfs setns sendmmsg process_vm_readv \
    process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create \
    bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc \
    pkey_free statx";
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FROM_0: &str = "";
/// From here on all architectures have the same numbers.
const COMMON_FIRST: usize = 424;
const FROM_COMMON: &str = "\
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig \
    fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 \
    mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret \
    process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake \
    futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal \
    setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr listns";

/// The number of a call by its name in tracefs; `None` for one that is newer than this program. Those are left to ftrace.
#[must_use]
pub fn syscall_number(name: &str) -> Option<usize> {
    let place = |names: &str| names.split(' ').position(|known| known == name && known != "-");
    place(FROM_0).or_else(|| place(FROM_COMMON).map(|place| COMMON_FIRST + place))
}

/// The calls that this program knows: numbers and names in tracefs.
pub fn known_syscalls() -> impl Iterator<Item = (usize, &'static str)> {
    let named = |first: usize, names: &'static str| {
        names.split(' ').enumerate().map(move |(place, name)| (first + place, name))
    };
    named(0, FROM_0).chain(named(COMMON_FIRST, FROM_COMMON)).filter(|(_, name)| !matches!(*name, "" | "-"))
}

/// Whether the kernel runs the programs on sys_enter and sys_exit with preemption off, so that none of them can be met by
/// another task's call and be skipped. Found out by running one.
///
/// # Errors
/// When the kernel refuses the program.
pub fn are_not_preempted() -> Result<bool, Error> {
    let config = EbpfConfig {
        recorder: Some(RecorderConfig {
            bank_bytes: 1 << 16,
            snapshot: None,
            stream: Some(StreamConfig::default()),
        }),
        only: vec![PROBE_PREEMPTION],
        ..EbpfConfig::default()
    };
    let mut session = EbpfPrograms::prepare(&config)?;
    let answer = session.section(".data.probe", 8)?;
    session.attach()?;
    // Any system call of this process does.
    let _ = call_once();
    Ok(answer.load(0) == NOT_PREEMPTED)
}

/// As in bpf/hooks/syscall.bpf.h.
const NOT_PREEMPTED: u64 = 2;

fn call_once() -> libc::pid_t {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::getppid() }
}

/// Those that every architecture has: the name in tracefs (`sys_enter_` + this), and the number.
const EVERYWHERE: &[(&str, libc::c_long)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("chdir", libc::SYS_chdir),
    ("chroot", libc::SYS_chroot),
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("faccessat", libc::SYS_faccessat),
    ("faccessat2", libc::SYS_faccessat2),
    ("fanotify_mark", libc::SYS_fanotify_mark),
    ("fchmodat", libc::SYS_fchmodat),
    ("fchownat", libc::SYS_fchownat),
    ("fgetxattr", libc::SYS_fgetxattr),
    ("fremovexattr", libc::SYS_fremovexattr),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsetxattr", libc::SYS_fsetxattr),
    ("fsopen", libc::SYS_fsopen),
    ("fspick", libc::SYS_fspick),
    ("getxattr", libc::SYS_getxattr),
    ("inotify_add_watch", libc::SYS_inotify_add_watch),
    ("lgetxattr", libc::SYS_lgetxattr),
    ("linkat", libc::SYS_linkat),
    ("listxattr", libc::SYS_listxattr),
    ("llistxattr", libc::SYS_llistxattr),
    ("lremovexattr", libc::SYS_lremovexattr),
    ("lsetxattr", libc::SYS_lsetxattr),
    ("memfd_create", libc::SYS_memfd_create),
    ("mkdirat", libc::SYS_mkdirat),
    ("mknodat", libc::SYS_mknodat),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount),
    ("mq_open", libc::SYS_mq_open),
    ("mq_unlink", libc::SYS_mq_unlink),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("newfstatat", libc::SYS_newfstatat),
    ("open_tree", libc::SYS_open_tree),
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("pivot_root", libc::SYS_pivot_root),
    ("quotactl", libc::SYS_quotactl),
    ("readlinkat", libc::SYS_readlinkat),
    ("removexattr", libc::SYS_removexattr),
    ("renameat", libc::SYS_renameat),
    ("renameat2", libc::SYS_renameat2),
    ("request_key", libc::SYS_request_key),
    ("setxattr", libc::SYS_setxattr),
    ("statfs", libc::SYS_statfs),
    ("statx", libc::SYS_statx),
    ("swapoff", libc::SYS_swapoff),
    ("swapon", libc::SYS_swapon),
    ("symlinkat", libc::SYS_symlinkat),
    ("truncate", libc::SYS_truncate),
    ("unlinkat", libc::SYS_unlinkat),
    ("utimensat", libc::SYS_utimensat),
];

/// Those that only x86 has: newer architectures have the `...at` forms alone.
#[cfg(target_arch = "x86_64")]
const HERE: &[(&str, libc::c_long)] = &[
    ("access", libc::SYS_access),
    ("chmod", libc::SYS_chmod),
    ("chown", libc::SYS_chown),
    ("creat", libc::SYS_creat),
    ("fchmodat2", libc::SYS_fchmodat2),
    ("futimesat", libc::SYS_futimesat),
    ("lchown", libc::SYS_lchown),
    ("link", libc::SYS_link),
    ("mkdir", libc::SYS_mkdir),
    ("mknod", libc::SYS_mknod),
    ("newlstat", libc::SYS_lstat),
    ("newstat", libc::SYS_stat),
    ("open", libc::SYS_open),
    ("readlink", libc::SYS_readlink),
    ("rename", libc::SYS_rename),
    ("rmdir", libc::SYS_rmdir),
    ("symlink", libc::SYS_symlink),
    ("unlink", libc::SYS_unlink),
];
#[cfg(not(target_arch = "x86_64"))]
const HERE: &[(&str, libc::c_long)] = &[];

/// The number of a call that takes a path or a name; `None` for all others.
#[must_use]
pub fn path_syscall(name: &str) -> Option<usize> {
    let found = EVERYWHERE.iter().chain(HERE).find(|(known, _)| *known == name);
    found.and_then(|(_, number)| usize::try_from(*number).ok())
}

/// The number of a call that takes a socket's address, and which argument that is; the one behind it is its size. `None` for all others. (`sendmsg`
/// has it behind another pointer.)
#[must_use]
pub fn address_syscall(name: &str) -> Option<(usize, u8)> {
    let argument = match name {
        "connect" | "bind" => 1,
        "sendto" => 4,
        _ => return None,
    };
    syscall_number(name).map(|number| (number, argument))
}

/// Whether a call replaces the caller's memory, so that its arguments cannot be read when it returns.
#[must_use]
pub fn replaces_memory(name: &str) -> bool {
    matches!(name, "execve" | "execveat")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_c_library() {
        for (name, number) in EVERYWHERE.iter().chain(HERE) {
            assert_eq!(syscall_number(name), usize::try_from(*number).ok(), "{name}");
        }
        let others = [
            ("getppid", libc::SYS_getppid),
            ("newfstat", libc::SYS_fstat),
            ("umount", libc::SYS_umount2),
            ("exit_group", libc::SYS_exit_group),
            ("futex", libc::SYS_futex),
            ("rseq", libc::SYS_rseq),
            ("io_uring_enter", libc::SYS_io_uring_enter),
            ("futex_waitv", libc::SYS_futex_waitv),
            ("set_mempolicy_home_node", libc::SYS_set_mempolicy_home_node),
        ];
        for (name, number) in others {
            assert_eq!(syscall_number(name), usize::try_from(number).ok(), "{name}");
        }
        assert_eq!(syscall_number("no_such_call"), None);
        assert_eq!(syscall_number("-"), None);
    }
}
