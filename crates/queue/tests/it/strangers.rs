// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue between two who do not trust each other: neither can take memory away from under the other.

use crate::with_c::{Element, Peer, element, memory_of, sparse, succeeded};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use rtscope_queue::{Consumer, Error, Producer};
use rtscope_testkit::skip;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

const PAGE: i64 = 4096;

/// Takes the second page of a queue's memory out of its file.
fn punch(file: impl AsFd) -> Result<(), Errno> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(file, flags, PAGE, PAGE)
}

fn clone_of(descriptor: &OwnedFd) -> File {
    File::from(descriptor.try_clone().expect("it is open"))
}

/// What the C side says when it cannot open it, sealing.
fn error_of_c(peer: &Peer, mode: &str, descriptor: &OwnedFd) -> String {
    let output = peer.start(mode, descriptor, 0).wait_with_output().expect("it was started");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn nobody_takes_memory_out_of_a_sealed_queue() {
    let (mut producer, descriptor) = Producer::<Element>::create(1024).expect("it can be made");
    let mut consumer = Consumer::<Element>::open_sealed(clone_of(&descriptor)).expect("it is a queue");
    let before = memory_of(&clone_of(&descriptor));
    assert_eq!(punch(&descriptor), Err(Errno::EPERM));
    assert_eq!(memory_of(&clone_of(&descriptor)), before);
    assert!(clone_of(&descriptor).set_len(0).is_err());
    // Both sides go on, and each may seal it.
    (0..1024).for_each(|number| assert!(producer.push(&element(number))));
    (0..1024).for_each(|number| assert_eq!(consumer.pop(), Some(element(number))));
    producer.seal(&descriptor).expect("the other side has sealed it");
    consumer.seal(&descriptor).expect("it is sealed");
    // A third one is told why.
    for opened in
        [Consumer::<Element>::open(clone_of(&descriptor)), Consumer::open_sealed(clone_of(&descriptor))]
    {
        assert!(matches!(opened, Err(Error::Sealed)), "{opened:?}");
    }
    let Some(peer) = Peer::compile() else { return };
    for mode in ["consume", "Consume"] {
        assert_eq!(error_of_c(&peer, mode, &descriptor), format!("error {}", Errno::EPERM as i32));
    }
}

#[test]
fn c_seals_what_rust_has_made() {
    const COUNT: u64 = 2000;
    let Some(peer) = Peer::compile() else { return };
    let (mut producer, descriptor) = Producer::<Element>::create(1024).expect("it can be made");
    let child = peer.start("Consume", &descriptor, COUNT);
    for number in 0..COUNT {
        while !producer.push(&element(number)) {
            std::thread::yield_now();
        }
    }
    println!("{}", succeeded(child));
    assert_eq!(punch(&descriptor), Err(Errno::EPERM));
}

#[test]
fn memory_that_was_taken_out_before_is_found_out() {
    let Some(peer) = Peer::compile() else { return };
    // Before it is opened: refused, and nobody has paid.
    let (producer, descriptor) = Producer::<Element>::create(1024).expect("it can be made");
    punch(&descriptor).expect("it is not sealed yet");
    let left = memory_of(&clone_of(&descriptor));
    let opened = Consumer::<Element>::open_sealed(clone_of(&descriptor));
    assert!(matches!(opened, Err(Error::NoQueue("its memory is not there"))), "{opened:?}");
    assert_eq!(error_of_c(&peer, "Consume", &descriptor), format!("error {}", Errno::EPROTO as i32));
    assert_eq!(memory_of(&clone_of(&descriptor)), left);
    drop(producer);
    // Afterwards, by the other side, which does not want to be the one that seals: its maker asks.
    let (producer, descriptor) = Producer::<Element>::create(1024).expect("it can be made");
    let _other = Consumer::<Element>::open(clone_of(&descriptor)).expect("it is a queue");
    punch(&descriptor).expect("it is not sealed yet");
    let sealed = producer.seal(&descriptor);
    assert!(matches!(sealed, Err(Error::NoQueue("its memory is not there"))), "{sealed:?}");
}

#[test]
fn a_queue_of_an_earlier_version_is_opened_and_said_to_be_unsealable() {
    let Some(peer) = Peer::compile() else { return };
    let file = sparse(384 + 2 * 16, 2);
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))
        .expect("it can be sealed");
    let descriptor = OwnedFd::from(file);
    let opened = Consumer::<Element>::open_sealed(clone_of(&descriptor));
    assert!(matches!(opened, Err(Error::Unsealable)), "{opened:?}");
    assert_eq!(error_of_c(&peer, "Consume", &descriptor), format!("error {}", Errno::EPERM as i32));
    assert!(Consumer::<Element>::open(clone_of(&descriptor)).is_ok());
    succeeded(peer.start("batches", &descriptor, 2));
}

/// Huge pages of this machine, as they were before.
struct HugePages(String);

impl HugePages {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    /// `None`, and the test is reported as skipped, when there can be none.
    fn reserve(count: u64) -> Option<HugePages> {
        let before = std::fs::read_to_string(Self::FILE).ok()?;
        let wanted = before.trim().parse::<u64>().ok()? + count;
        let pages = HugePages(before);
        let _ = std::fs::write(Self::FILE, wanted.to_string());
        let now = std::fs::read_to_string(Self::FILE).ok()?;
        if now.trim() != wanted.to_string() {
            skip::say("this machine gives no huge pages");
            return None;
        }
        Some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::FILE, self.0.trim());
    }
}

// NEEDS: host
#[test]
fn root_a_queue_in_huge_pages_is_refused() {
    if skip::without_root() {
        return;
    }
    let Some(peer) = Peer::compile() else { return };
    let Some(_pages) = HugePages::reserve(1) else { return };
    let flags = MFdFlags::MFD_HUGETLB | MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
    let file = File::from(memfd_create(c"huge", flags).expect("it can be made"));
    file.set_len(2 << 20).expect("a huge page");
    let mut header = vec![0; 384];
    File::from(Producer::<Element>::create(2).expect("it can be made").1)
        .read_exact_at(&mut header, 0)
        .expect("it is ours");
    // SAFETY: nobody else has the file; the mapping is unmapped at the end of this block.
    let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.expect("there is a huge page");
    map[..384].copy_from_slice(&header);
    drop(map);
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("it can be sealed");
    let descriptor = OwnedFd::from(file);
    let opened = Consumer::<Element>::open(clone_of(&descriptor));
    assert!(matches!(opened, Err(Error::NoQueue(why)) if why.contains("huge pages")), "{opened:?}");
    assert_eq!(error_of_c(&peer, "consume", &descriptor), format!("error {}", Errno::EPROTO as i32));
}
