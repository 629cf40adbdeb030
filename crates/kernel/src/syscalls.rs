// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of the system calls that take paths and names. tracefs describes calls by name only; the programs see numbers.

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

/// Whether a call replaces the caller's memory, so that its arguments cannot be read when it returns.
#[must_use]
pub fn replaces_memory(name: &str) -> bool {
    matches!(name, "execve" | "execveat")
}
