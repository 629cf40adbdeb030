// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spools at the edge of what can be: time, memory and names stay bounded, and what is missing is said.

use super::maker::{end, everything, session, write};
use super::room;
use rtscope_event::CpuId;
use rtscope_store::{Error, Options, Spool, convert};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    for name in ["cpu0.bank", "cpu1.pages", "started.json", "end.json"] {
        for kind in ["pipe", "link", "device"] {
            let room = room();
            drop(write(&room.target, &session(), &everything(), Some(&end())));
            let (path, aside) = (room.partial.join(name), room.partial.join("aside"));
            if path.exists() {
                fs::rename(&path, &aside).unwrap();
            } else {
                fs::write(&aside, "{\"started\":5000000000000}").unwrap();
            }
            // The pipe has a writer, so that opening it would succeed at once and the test always ends.
            let _writer = (kind == "pipe").then(|| {
                assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
                fs::File::options().read(true).write(true).open(&path).unwrap()
            });
            match kind {
                "link" => std::os::unix::fs::symlink(&aside, &path).unwrap(),
                "device" => std::os::unix::fs::symlink("/dev/null", &path).unwrap(),
                _ => {}
            }
            let spool = Spool::open(&room.partial);
            let error =
                spool.and_then(|spool| convert(spool, &room.target, &Options::default())).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Broken { .. }) && text.contains(name), "{name} {kind}: {text}");
            assert!(text.contains("it is no regular file"), "{name} {kind}: {text}");
        }
    }
}

#[test]
fn a_spool_of_more_cpus_than_linux_can_have_is_refused() {
    let room = room();
    let mut session = session();
    session.cpus = (0..8_192).map(CpuId).collect();
    drop(write(&room.target, &session, &everything(), Some(&end())));
    fs::write(room.partial.join("cpu4000000000.bank"), "").unwrap();
    let refused = |path: &Path| {
        Spool::open(path).and_then(|spool| convert(spool, &room.target, &Options::default())).unwrap_err()
    };
    let error = refused(&room.partial);
    assert!(error.to_string().contains("8193 CPUs; more than 8192 cannot be"), "{error}");
    assert!(!room.target.exists() && room.partial.exists());
}
