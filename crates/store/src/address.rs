// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A socket's address as text: what a system call was given, as people write it.

use nix::libc;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Of `struct sockaddr` (Linux, include/uapi/linux/socket.h, in.h, in6.h, un.h, vm_sockets.h). Bytes behind it are zeros. What is too short for
/// its family, and families that have no common way of writing, are told by their number.
pub(crate) fn text(bytes: &[u8]) -> Vec<u8> {
    let Some((family, rest)) = bytes.split_first_chunk() else { return Vec::new() };
    let family = i32::from(u16::from_ne_bytes(*family));
    let known = match family {
        libc::AF_UNIX => Some(unix(rest)),
        libc::AF_INET => internet(rest),
        libc::AF_INET6 => internet6(rest),
        libc::AF_VSOCK => vsock(rest),
        _ => None,
    };
    known.unwrap_or_else(|| format!("address family {family}").into_bytes())
}

/// A path, or a name that no file has: `@name`, with `@` also for each NUL within it, as ss(8) shows it.
fn unix(rest: &[u8]) -> Vec<u8> {
    let is_abstract = rest.first() == Some(&0);
    let end = if is_abstract {
        rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    } else {
        rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len())
    };
    match rest.get(..end).unwrap_or_default() {
        [] => b"unnamed".to_vec(),
        name => name.iter().map(|byte| if *byte == 0 { b'@' } else { *byte }).collect(),
    }
}

fn internet(rest: &[u8]) -> Option<Vec<u8>> {
    let (port, rest) = rest.split_first_chunk()?;
    let address: [u8; 4] = *rest.first_chunk()?;
    Some(format!("{}:{}", Ipv4Addr::from(address), u16::from_be_bytes(*port)).into_bytes())
}

/// With its scope where it has one: an interface's number.
fn internet6(rest: &[u8]) -> Option<Vec<u8>> {
    let (port, rest) = rest.split_first_chunk()?;
    let (_flow, rest) = rest.split_first_chunk::<4>()?;
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let scope = rest.first_chunk().map_or(0, |scope| u32::from_ne_bytes(*scope));
    let scope = if scope == 0 { String::new() } else { format!("%{scope}") };
    Some(format!("[{}{scope}]:{}", Ipv6Addr::from(*address), u16::from_be_bytes(*port)).into_bytes())
}

/// `vsock:CID:PORT`
fn vsock(rest: &[u8]) -> Option<Vec<u8>> {
    let (_reserved, rest) = rest.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let cid = rest.first_chunk()?;
    Some(format!("vsock:{}:{}", u32::from_ne_bytes(*cid), u32::from_ne_bytes(*port)).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(family: i32, rest: &[u8]) -> String {
        let mut bytes = u16::try_from(family).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(rest);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        String::from_utf8(text(&bytes)).unwrap()
    }

    #[test]
    fn addresses_are_as_people_write_them() {
        assert_eq!(shown(libc::AF_INET, &[0x15, 0x38, 127, 0, 0, 1]), "127.0.0.1:5432");
        let mut six = vec![0, 80, 0, 0, 0, 0];
        six.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        assert_eq!(shown(libc::AF_INET6, &six), "[::1]:80");
        six.extend_from_slice(&2_u32.to_ne_bytes());
        assert_eq!(shown(libc::AF_INET6, &six), "[::1%2]:80");
        assert_eq!(shown(libc::AF_UNIX, b"/run/a.sock\0old"), "/run/a.sock");
        assert_eq!(shown(libc::AF_UNIX, b"\0a\0b"), "@a@b");
        assert_eq!(shown(libc::AF_UNIX, b""), "unnamed");
        let vsock: Vec<u8> = [&[0, 0][..], &1024_u32.to_ne_bytes(), &2_u32.to_ne_bytes()].concat();
        assert_eq!(shown(libc::AF_VSOCK, &vsock), "vsock:2:1024");
        assert_eq!(shown(libc::AF_NETLINK, &[0; 10]), "address family 16");
        assert_eq!(shown(libc::AF_UNSPEC, &[]), "address family 0");
        assert_eq!(shown(libc::AF_INET6, &[0, 80]), "address family 10", "it is cut");
        assert!(text(&[]).is_empty() && text(&[1]).is_empty());
    }
}
