// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system trace module of the tests does what such hardware does: each store is a packet, and nobody gets another's channels.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use rtscope_hardware::stp::Payload;
use rtscope_testkit::stm::{DEVICE, StmMemory};

/// `struct stp_policy_id` with room for a name.
#[repr(C)]
struct Policy {
    size: u32,
    master: u16,
    channel: u16,
    width: u16,
    zero: u16,
    zero2: u32,
    id: [u8; 16],
}

/// STP_POLICY_ID_SET (linux/stm.h).
fn policy_set(file: &File, policy: &mut Policy) -> io::Result<()> {
    // SAFETY: the kernel reads and writes the structure, which is as large as it says, and lives for the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), 0xc010_2500, std::ptr::from_mut(policy)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sixteen channels of a program.
struct Channels {
    _file: File,
    at: NonNull<u8>,
    master: u16,
    first: u16,
}

impl Channels {
    fn open(id: &str) -> io::Result<Channels> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/dev/{DEVICE}"))?;
        let mut policy =
            Policy { size: 32, master: 0, channel: 0, width: 16, zero: 0, zero2: 0, id: [0; 16] };
        policy.id[..id.len()].copy_from_slice(id.as_bytes());
        policy_set(&file, &mut policy)?;
        let page = NonZeroUsize::new(4096).expect("not 0");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, wherever there is room.
        let at = unsafe { mmap(None, page, protection, MapFlags::MAP_SHARED, &file, 0) }?;
        Ok(Channels { _file: file, at: at.cast(), master: policy.master, first: policy.channel })
    }

    fn store<T>(&self, channel: usize, offset: usize, value: T) {
        // SAFETY: a channel has 256 bytes, and the page sixteen channels.
        let place = unsafe { self.at.add(channel * 256 + offset) };
        // SAFETY: within the mapping, and aligned.
        unsafe { place.cast::<T>().write_volatile(value) };
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it.
        let _ = unsafe { munmap(self.at.cast(), 4096) };
    }
}

/// Master, channel and packet, without those that are of the stream itself.
fn told(stm: &StmMemory) -> Vec<(u16, u16, &'static str, u64)> {
    let packets = stm.packets().into_iter().filter_map(|packet| {
        let value = match packet.payload {
            Payload::Data { value, .. } => value,
            Payload::Flag => 0,
            _ => return None,
        };
        Some((packet.master, packet.channel, packet.name(), value))
    });
    packets.collect()
}

// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_each_store_into_a_channel_is_a_packet_of_the_stream() {
    let Some(mut stm) = StmMemory::load() else { return };
    stm.node("user", (16, 17), (32, 63));
    let stores = stm.count("stores");
    let (first, second) = (Channels::open("user").expect("free"), Channels::open("user").expect("free"));
    assert_eq!([(first.master, first.first), (second.master, second.first)], [(16, 32), (16, 48)]);
    first.store(0, 0x00, 0x1122_3344_5566_7788_u64);
    first.store(15, 0x18, 0xfedc_ba98_u32);
    second.store(1, 0x10, 0xbeef_u16);
    second.store(1, 0x08, 0x7f_u8);
    second.store(1, 0x68, 0_u32);
    first.store(0, 0x98, u64::MAX);
    first.store(0, 0x60, 0_u8);
    let expected = [
        (16, 32, "D64MTS", 0x1122_3344_5566_7788),
        (16, 47, "D32", 0xfedc_ba98),
        (16, 49, "D16TS", 0xbeef),
        (16, 49, "D8M", 0x7f),
        (16, 49, "FLAG", 0),
        (16, 32, "D64", u64::MAX),
        (16, 32, "FLAG_TS", 0),
    ];
    assert_eq!(told(&stm), expected);
    assert_eq!((stm.count("stores") - stores, stm.count("refused"), stm.count("lost")), (7, 0, 0));
    // The policy has two masters with 32 channels.
    let (_third, _fourth) = (Channels::open("user").expect("free"), Channels::open("user").expect("free"));
    assert_eq!(Channels::open("user").err().and_then(|error| error.raw_os_error()), Some(libc::ENOSPC));
    assert_eq!(Channels::open("nobody").err().and_then(|error| error.raw_os_error()), Some(libc::EINVAL));
    drop(first);
    assert_eq!(
        Channels::open("user").map(|again| (again.master, again.first)).expect("free again"),
        (16, 32)
    );
    // A write() is the kernel's: the first packet has a time, and a flag ends it.
    stm.clear();
    let mut file = OpenOptions::new().write(true).open(format!("/dev/{DEVICE}")).expect("root may");
    let mut policy = Policy { size: 32, master: 0, channel: 0, width: 1, zero: 0, zero2: 0, id: [0; 16] };
    policy.id[..4].copy_from_slice(b"user");
    policy_set(&file, &mut policy).expect("free");
    file.write_all(b"0123456789").expect("it takes it");
    let names: Vec<&str> = told(&stm).iter().map(|(_, _, name, _)| *name).collect();
    assert_eq!(names, ["D64TS", "D16", "FLAG"]);
}
