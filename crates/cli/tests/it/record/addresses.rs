// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses that system calls are given, against what the kernel says of the sockets.

use crate::command::{field, rtscope};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::KilledWithTest;
use rtscope_testkit::{babeltrace2, skip};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

// NEEDS: one kernel
#[test]
fn root_addresses_of_sockets_are_as_people_write_them() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("babeltrace2") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let mut recorder = rtscope();
    recorder.args(["record", "-k", "syscalls:connect,syscalls:bind,syscalls:sendto", "-o"]).arg(&trace);
    let recorder = recorder.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut recorder = KilledWithTest::start(recorder).expect("it can be started");
    let mut said = String::new();
    let mut notes = BufReader::new(recorder.stderr.take().expect("piped"));
    while !said.contains("recording tracepoints") {
        assert!(notes.read_line(&mut said).expect("it is text") > 0, "it has ended: {said}");
    }
    // This process makes the calls.
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let bound = listener.local_addr().expect("it is bound");
    let mut stream = TcpStream::connect(bound).expect("it listens");
    stream.write_all(b"without an address").expect("it is connected");
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let itself = datagrams.local_addr().expect("it is bound");
    datagrams.send_to(b"x", itself).expect("it is its own");
    let six = UdpSocket::bind("[::1]:0").and_then(|socket| {
        let itself = socket.local_addr()?;
        socket.send_to(b"x", itself)?;
        Ok(itself)
    });
    let path = directory.path().join("unix.socket");
    let _named = UnixListener::bind(&path).expect("a temporary directory");
    kill(Pid::from_raw(recorder.id() as i32), Signal::SIGINT).expect("it runs");
    assert!(recorder.wait().expect("it ends").success());
    let text = babeltrace2::text(&trace, &[]).expect("it is installed");
    let tid = nix::unistd::gettid().to_string();
    let own: Vec<&str> = text.lines().filter(|line| field(line, "tid") == Some(&tid)).collect();
    let has = |name: &str, field: &str| {
        own.iter().any(|line| line.contains(&format!("syscall_entry_{name}:")) && line.contains(field))
    };
    assert!(has("bind", "umyaddr = \"127.0.0.1:0\""), "{text}");
    assert!(has("connect", &format!("uservaddr = \"{bound}\"")), "{text}");
    assert!(has("bind", &format!("umyaddr = \"{}\"", path.display())), "{text}");
    assert!(has("sendto", &format!("addr = \"{itself}\"")), "{text}");
    assert!(has("sendto", "addr = \"(null)\""), "{text}");
    match six {
        Ok(itself) => assert!(has("sendto", &format!("addr = \"{itself}\"")), "{text}"),
        Err(error) => println!("IPv6 is not there: {error}"),
    }
}
