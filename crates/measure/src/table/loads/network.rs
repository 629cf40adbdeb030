// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flood of ICMP echoes through the loopback device, in a network of its own: the kernel answers them, in its softirqs, and no
//! firewall, counter or port of the machine's own network takes part.

use super::super::child::StartReport;
use super::super::waiter::Board;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto, socket,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// As ping -f sends them, but as large as a frame.
const BYTES: usize = 1400;
/// Sent at once.
const BURST: usize = 16;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Of the IPv4 header that a raw socket gives, without options.
const IP_HEADER: usize = 20;

/// For ever.
pub fn run(board: &Board, counter: usize, report: &mut Option<StartReport>) -> Result<(), String> {
    let network = match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => bring_up().map(|()| "a network of its own")?,
        Err(_) => "the machine's own",
    };
    let failed = |errno: Errno| errno.desc().to_owned();
    let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Icmp)
        .map_err(|errno| format!("a raw socket: {}", errno.desc()))?;
    let packet = request();
    let here = SockaddrIn::new(127, 0, 0, 1, 0);
    sendto(socket.as_raw_fd(), &packet, &here, MsgFlags::empty())
        .map_err(|errno| format!("127.0.0.1: {}", errno.desc()))?;
    if let Some(report) = report.take() {
        report.ready(&format!("ICMP echoes of {BYTES} bytes on the loopback device of {network}"));
    }
    let mut buffer = vec![0; BYTES + 128];
    loop {
        for _ in 0..BURST {
            match sendto(socket.as_raw_fd(), &packet, &here, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => break,
                Err(errno) => return Err(failed(errno)),
            }
        }
        let replies = drain(&socket, &mut buffer).map_err(failed)?;
        board.add(counter, replies);
        if replies == 0 {
            // The softirq runs elsewhere: it will come.
            let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::from(10_u8)).map_err(failed)?;
        }
    }
}

/// The device `lo` of a new network is down.
fn bring_up() -> Result<(), String> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|errno| errno.desc().to_owned())?;
    // SAFETY: all zeros is a value of this structure of numbers and arrays.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq` (netdevice(7)), which lives.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(result).map(drop).map_err(|errno| format!("switching lo on: {}", errno.desc()))
}

/// An echo request with its checksum (RFC 792).
fn request() -> Vec<u8> {
    let mut packet = vec![0; BYTES];
    packet[0] = ECHO_REQUEST;
    let sum: u32 = packet.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !(folded as u16);
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// How many replies are there. A raw socket gets the requests, too.
fn drain(socket: &OwnedFd, buffer: &mut [u8]) -> Result<u64, Errno> {
    let mut replies = 0;
    loop {
        match recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(bytes) if bytes > IP_HEADER && buffer[IP_HEADER] == ECHO_REPLY => replies += 1,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(replies),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_request_with_its_checksum_is_right() {
        let sum: u32 =
            request().chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!(sum, 0xffff);
    }
}
