// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A system trace module whose channels are memory (`testkit/modules/stm_memory.c`), in a guest: its policy, and the stream that comes out.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rtscope_hardware::stp::{Decoder, Item, Packet};

use crate::module::{self, Module};

/// The name of the device: that of its node in /dev, too.
pub const DEVICE: &str = "rtscope_stm";
/// Where its stream is read.
const STREAM: &str = "/dev/rtscope_stm_memory";
/// Where policies are.
const CONFIGFS: &str = "/sys/kernel/config";

/// The device, until this is dropped.
#[derive(Debug)]
pub struct StmMemory {
    policy: PathBuf,
    nodes: Vec<PathBuf>,
    // Unloaded in this order.
    _device: Module,
    _protocol: Module,
    _core: Module,
}

impl StmMemory {
    /// Loads it, with an empty policy; `None`, and the reason reported, where that cannot be.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    #[must_use]
    pub fn load() -> Option<StmMemory> {
        let core = module::load("stm_core")?;
        let protocol = module::load("stm_p_basic")?;
        let device = module::load("stm_memory")?;
        if !Path::new(CONFIGFS).join("stp-policy").exists() {
            let output = Command::new("mount").args(["-t", "configfs", "config", CONFIGFS]).output();
            assert!(output.expect("busybox has it").status.success(), "configfs is there with stm_core");
        }
        let policy = Path::new(CONFIGFS).join("stp-policy").join(format!("{DEVICE}:p_basic.tests"));
        fs::create_dir(&policy).expect("nobody else has a policy for it");
        let stm = StmMemory { policy, nodes: Vec::new(), _device: device, _protocol: protocol, _core: core };
        stm.clear();
        Some(stm)
    }

    /// Who says this name gets channels of these.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    pub fn node(&mut self, name: &str, masters: (u16, u16), channels: (u16, u16)) {
        let node = self.policy.join(name);
        fs::create_dir(&node).expect("a node of a policy");
        for (file, (first, last)) in [("masters", masters), ("channels", channels)] {
            fs::write(node.join(file), format!("{first} {last}")).expect("the device has them");
        }
        self.nodes.push(node);
    }

    /// From now on the stream is a new one.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    pub fn clear(&self) {
        let file = OpenOptions::new().write(true).open(STREAM);
        file.and_then(|mut file| file.write_all(b"\n")).expect("the module is loaded");
    }

    /// The stream so far.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    #[must_use]
    pub fn stream(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::open(STREAM).and_then(|mut file| file.read_to_end(&mut bytes)).expect("the module is loaded");
        bytes
    }

    /// The same as packets.
    ///
    /// # Panics
    ///
    /// When something of it is none.
    #[must_use]
    pub fn packets(&self) -> Vec<Packet> {
        let mut packets = Vec::new();
        let mut decoder = Decoder::new();
        let mut sink = |item: Item| match item {
            Item::Packet(packet) => packets.push(packet),
            Item::Lost(lost) => panic!("{lost:?}"),
        };
        decoder.push(&self.stream(), &mut sink);
        decoder.finish(&mut sink);
        packets
    }

    /// What the module counts: `stores`, `refused` or `lost`.
    ///
    /// # Panics
    ///
    /// When it counts no such thing.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        let text = fs::read_to_string(Path::new("/sys/module/stm_memory/parameters").join(what));
        text.expect("it is counted").trim().parse().expect("a number")
    }
}

impl Drop for StmMemory {
    fn drop(&mut self) {
        for directory in self.nodes.iter().chain([&self.policy]) {
            // What a test that failed has left keeps the module, and the guest ends.
            let _ = fs::remove_dir(directory);
        }
    }
}
