// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flood of UDP datagrams on 127.0.0.1 that keeps a CPU in the network softirq for milliseconds at a time.
//!
//! How: one send with UDP_SEGMENT hands the kernel up to 64 datagrams as one packet. On loopback that packet is received
//! at once, on the same CPU, in softirq context with bottom halves off, which no task can preempt. The receiving socket
//! carries a classic BPF filter of hundreds of expensive instructions, which runs once per datagram and then drops it. So
//! nothing leaves the machine, nothing is queued, no setting is changed, and the number of datagrams determines the length
//! of the softirq.
//!
//! The sender is an ordinary task: what disturbs is the softirq, not the sender's priority.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;
use rtscope_testkit::disturber::{self, MakeBurst, Plan, Span};
use rtscope_testkit::sched::Policy;
use rtscope_testkit::stop::exit_code;
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration};
use serde_json::{Value, json};

/// Lengths of the filter to try. The kernel counts its memory against net.core.optmem_max, which varies: 20 KiB
/// before Linux 6.7, 128 KiB since.
const FILTER_LENGTHS: [usize; 5] = [4000, 2000, 1000, 600, 300];
/// The smallest limit that kernels have for the segments of one send (UDP_MAX_SEGMENTS).
const MOST_SEGMENTS: usize = 64;
/// Bytes per datagram: small, so that copying costs little compared with filtering.
const SEGMENT_BYTES: usize = 64;

/// Keeps a CPU in the network softirq at intervals, and notes when.
#[derive(Debug, Parser)]
struct Options {
    /// Name of the thread (15 bytes)
    #[arg(long, default_value = "flood")]
    name: String,
    /// Policy of the sender: fifo:1..99, rr:1..99 or other
    #[arg(long, default_value = "other")]
    policy: Policy,
    /// How long one send should keep the CPU
    #[arg(long, default_value = "2ms", value_parser = parse_duration)]
    burst: Duration,
    /// Time from one send to the next
    #[arg(long, default_value = "20ms", value_parser = parse_duration)]
    every: Duration,
    #[command(flatten)]
    span: Span,
}

/// Asks hundreds of times where the payload begins, which makes the kernel dissect the packet; then drops it.
fn expensive_filter(length: usize) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let payload_offset = (libc::SKF_AD_OFF + libc::SKF_AD_PAY_OFFSET) as u32;
    let ask = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, payload_offset);
    let mut program = vec![ask; length - 1];
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0));
    program
}

/// Attaches the longest filter that the kernel takes; returns its length.
fn attach_longest_filter(socket: &UdpSocket) -> Result<usize> {
    for length in FILTER_LENGTHS {
        match attach_filter(socket, &mut expensive_filter(length)) {
            Ok(()) => return Ok(length),
            Err(Errno::ENOMEM) => {}
            Err(error) => return Err(error).context("cannot attach a socket filter"),
        }
    }
    bail!("the kernel has no memory for a socket filter; net.core.optmem_max is too small")
}

fn attach_filter(socket: &UdpSocket, program: &mut [libc::sock_filter]) -> nix::Result<()> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?,
        filter: program.as_mut_ptr(),
    };
    let size = size_of_val(&filter) as libc::socklen_t;
    // SAFETY: `filter` and the `program` that it points to are borrowed for the whole call, `len` is the number of
    // instructions that `program` has, and the kernel copies both before it returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size,
        )
    };
    Errno::result(result).map(drop)
}

/// A socket that sends to a neighbour with an expensive filter.
struct Flood {
    sender: UdpSocket,
    /// Keeps its port and its filter; never read from, since the filter drops all.
    _receiver: UdpSocket,
    payload: Vec<u8>,
    filter_length: usize,
}

impl Flood {
    fn new() -> Result<Self> {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a UDP socket on 127.0.0.1")?;
        let filter_length = attach_longest_filter(&receiver)?;
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a UDP socket on 127.0.0.1")?;
        sender.connect(receiver.local_addr()?).context("connect on 127.0.0.1")?;
        let segment = i32::try_from(SEGMENT_BYTES).context("size of a segment")?;
        setsockopt(&sender, UdpGsoSegment, &segment)
            .context("this kernel has no UDP_SEGMENT (it came with 4.18)")?;
        let payload = vec![0; MOST_SEGMENTS * SEGMENT_BYTES];
        Ok(Flood { sender, _receiver: receiver, payload, filter_length })
    }

    /// One send of that many datagrams. Returns how long it took.
    fn send(&self, segments: usize) -> Result<u64> {
        let start_ns = now_ns();
        self.sender.send(&self.payload[..segments * SEGMENT_BYTES]).context("send on 127.0.0.1")?;
        Ok(now_ns() - start_ns)
    }

    /// The shortest of some sends: the one that was disturbed least.
    fn measure(&self, segments: usize) -> Result<u64> {
        let mut shortest = u64::MAX;
        for _ in 0..5 {
            shortest = shortest.min(self.send(segments)?);
        }
        Ok(shortest)
    }

    /// How many datagrams take `burst_ns`.
    fn tune(&self, burst_ns: u64) -> Result<(usize, u64)> {
        let all_ns = self.measure(MOST_SEGMENTS)?;
        let per_segment = (all_ns / MOST_SEGMENTS as u64).max(1);
        let segments = usize::try_from(burst_ns / per_segment)?.clamp(1, MOST_SEGMENTS);
        let send_ns = self.measure(segments)?;
        if send_ns < burst_ns / 4 {
            bail!("{segments} datagrams only take {send_ns} ns: choose a shorter --burst than {burst_ns} ns");
        }
        Ok((segments, send_ns))
    }
}

/// Follows a CPU whose speed changes, half of the way at each burst: one that was interrupted must not spoil the next.
fn next_segments(segments: usize, send_ns: u64, burst_ns: u64) -> usize {
    let fitting = (segments as u64 * burst_ns).checked_div(send_ns).unwrap_or(1).min(MOST_SEGMENTS as u64);
    (segments + fitting as usize).div_ceil(2).clamp(1, MOST_SEGMENTS)
}

fn prepare(burst_ns: u64) -> Result<(Value, MakeBurst)> {
    let flood = Flood::new()?;
    let (segments, send_ns) = flood.tune(burst_ns)?;
    let details = json!({"segments": segments, "instructions": flood.filter_length, "send_ns": send_ns});
    let mut segments = segments;
    let make_burst: MakeBurst = Box::new(move |_| {
        // A send that fails makes no burst; the notes then show one of a few microseconds.
        if let Ok(send_ns) = flood.send(segments) {
            segments = next_segments(segments, send_ns, burst_ns);
        }
    });
    Ok((details, make_burst))
}

fn run(options: Options) -> Result<()> {
    let burst_ns = duration_ns(options.burst);
    let plan = Plan {
        name: options.name,
        policy: options.policy,
        burst: options.burst,
        every: options.every,
        span: options.span,
    };
    disturber::run(plan, move || prepare(burst_ns))
}

fn main() -> ExitCode {
    exit_code(run(Options::parse()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_datagrams_follows_the_speed() {
        assert_eq!(next_segments(20, 2_000_000, 2_000_000), 20);
        assert_eq!(next_segments(20, 1_000_000, 2_000_000), 30);
        assert_eq!(next_segments(20, 4_000_000, 2_000_000), 15);
        assert_eq!(next_segments(1, 9_000_000, 2_000_000), 1);
        assert_eq!(next_segments(64, 1, 2_000_000), 64);
    }
}
