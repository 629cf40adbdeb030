// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that lie to the recorder while others are recorded. Each is a process of its own user, which may write whatever it
//! wants into that user's directory, for as long as it lives.
//!
//! Where a liar counts losses it does so in units that no honest program reaches ([`LIARS_UNIT`]), so that the account of
//! the others can still be judged.

use super::judge::LIARS_UNIT;
use anyhow::{Context, Result, bail};
use rtscope_abi::program as abi;
use rtscope_testkit::program_files::{self, RING_BYTES, provider_name, put32, put64, record_word, ring_name};
use rtscope_testkit::random::Random;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The user of the first kind; each kind has its own.
pub const FIRST_USER: u32 = 5000;
/// Between two lies of those that change their minds.
const PAUSE: Duration = Duration::from_millis(2);

/// A kind of lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liar {
    /// Lengths and offsets that are not those of the file.
    Lengths,
    /// Rings of a gigabyte without memory behind them, said to be full.
    Sparse,
    /// Thousands of names of one file.
    HardLinks,
    /// Twenty thousand empty files.
    ManyNames,
    /// A provider of 60 000 events with 16 fields each.
    HugeDescriptions,
    /// The same event again and again, with other fields.
    Duplicates,
    /// Names and types that trip readers.
    NastyDescriptions,
    /// A head that jumps.
    Heads,
    /// A tail that jumps.
    Tails,
    /// Losses and waits that nobody had.
    Counters,
    /// Files that are cut and grow while they are mapped.
    Truncation,
    /// FIFOs in place of files.
    Fifos,
    /// Links to other users' files, to devices, and to each other.
    Links,
    /// Files in the names of other processes.
    ForeignProcesses,
    /// Files that nobody may open for writing, or that cannot change their size.
    Sealed,
    /// Other magic numbers and versions.
    Versions,
    /// Random bytes over what was right.
    RandomBytes,
    /// Files that are never ready.
    NeverReady,
    /// A ring that is always full of new records.
    Endless,
    /// Records that stay unfinished, overlap, or are none.
    OpenRecords,
    /// Sessions and locks that are a collector's.
    Sessions,
    /// Files that are made, renamed and removed all the time.
    Churn,
    /// A directory that changes its mode and its kind.
    Directories,
    /// Clocks and times that run backwards, and of other machines.
    Times,
}

impl Liar {
    pub const ALL: [Liar; 24] = [
        Liar::Lengths,
        Liar::Sparse,
        Liar::HardLinks,
        Liar::ManyNames,
        Liar::HugeDescriptions,
        Liar::Duplicates,
        Liar::NastyDescriptions,
        Liar::Heads,
        Liar::Tails,
        Liar::Counters,
        Liar::Truncation,
        Liar::Fifos,
        Liar::Links,
        Liar::ForeignProcesses,
        Liar::Sealed,
        Liar::Versions,
        Liar::RandomBytes,
        Liar::NeverReady,
        Liar::Endless,
        Liar::OpenRecords,
        Liar::Sessions,
        Liar::Churn,
        Liar::Directories,
        Liar::Times,
    ];

    /// Whether its records can count as unfinished or unreadable, or its words as losses of any number.
    pub fn loses_records(self) -> bool {
        matches!(
            self,
            Liar::Heads
                | Liar::Tails
                | Liar::RandomBytes
                | Liar::OpenRecords
                | Liar::Endless
                | Liar::Truncation
                | Liar::Sparse
                | Liar::Lengths
                | Liar::Times
                | Liar::HugeDescriptions
                | Liar::Duplicates
                | Liar::NastyDescriptions
        )
    }

    /// Whether what it says of its losses may be any number.
    pub fn counts_anything(self) -> bool {
        matches!(self, Liar::RandomBytes | Liar::OpenRecords)
    }

    /// Its user.
    pub fn user(self) -> u32 {
        FIRST_USER + self as u32
    }

    fn by_name(name: &str) -> Option<Liar> {
        Liar::ALL.into_iter().find(|liar| format!("{liar:?}") == name)
    }
}

/// The process of a liar: `violence-liar KIND SEED`. It lies until it is killed.
pub fn run(words: &[&str]) -> Result<bool> {
    let [kind, seed] = words else { bail!("violence-liar KIND SEED") };
    let liar = Liar::by_name(kind).context("there is no such liar")?;
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let directory = PathBuf::from(format!("/dev/shm/rtscope-{}", nix::unistd::geteuid()));
    DirBuilder::new().mode(0o700).create(&directory).with_context(|| directory.display().to_string())?;
    let mut place =
        Place { directory, random: Random(seed.parse()?), pid: std::process::id(), birth: birth()? };
    // A lie that the system refuses was told as far as it goes.
    if let Err(error) = place.lie(liar) {
        eprintln!("{liar:?}: {error:#}");
    }
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn birth() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

struct Place {
    directory: PathBuf,
    random: Random,
    pid: u32,
    birth: u64,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<File> {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(true).mode(0o600).open(self.path(name))?;
        file.write_all_at(bytes, 0)?;
        Ok(file)
    }

    /// A provider of this process, with these descriptions.
    fn provider(&self, descriptions: &[String]) -> Vec<u8> {
        program_files::provider(self.pid, self.birth, 0, descriptions)
    }

    fn simple(&self) -> Vec<u8> {
        self.provider(&["violence:liar 6\nu64 n\n".to_owned()])
    }

    /// A ring of this process with some records.
    fn ring(&self, tid: u32, events: u64) -> Vec<u8> {
        let mut bytes = program_files::ring(self.pid, tid, self.birth, abi::RTU_CLOCK_MONOTONIC);
        let now = monotonic();
        let sync = [record_word(abi::RTU_ID_SYNC, 4, now), now, 0, 0];
        let records = (0..events).flat_map(|number| [record_word(0, 2, now + number), number]);
        let mut at = abi::RTU_RING_OFFSET as usize;
        for value in sync.into_iter().chain(records) {
            put64(&mut bytes, at, value);
            at += 8;
        }
        put64(&mut bytes, offset_of!(abi::rtu_ring, head), (at - abi::RTU_RING_OFFSET as usize) as u64);
        bytes
    }

    fn provider_name(&self) -> String {
        provider_name(self.pid, self.birth, 0)
    }

    fn ring_name(&self, number: u32) -> String {
        ring_name(self.pid, self.birth, self.pid, number)
    }

    /// Both files, as an honest program has them.
    fn files(&self) -> Result<(File, File)> {
        let ring = self.write(&self.ring_name(0), &self.ring(self.pid, 100))?;
        Ok((self.write(&self.provider_name(), &self.simple())?, ring))
    }

    fn lie(&mut self, liar: Liar) -> Result<()> {
        match liar {
            Liar::Lengths => self.lengths(),
            Liar::Sparse => self.sparse(),
            Liar::HardLinks => self.hard_links(),
            Liar::ManyNames => self.many_names(),
            Liar::HugeDescriptions => self.huge_descriptions(),
            Liar::Duplicates => self.duplicates(),
            Liar::NastyDescriptions => self.nasty_descriptions(),
            Liar::Heads => self.jumping(offset_of!(abi::rtu_ring, head)),
            Liar::Tails => self.jumping(offset_of!(abi::rtu_ring, tail)),
            Liar::Counters => self.counters(),
            Liar::Truncation => self.truncation(),
            Liar::Fifos => self.fifos(),
            Liar::Links => self.links(),
            Liar::ForeignProcesses => self.foreign_processes(),
            Liar::Sealed => self.sealed(),
            Liar::Versions => self.versions(),
            Liar::RandomBytes => self.random_bytes(),
            Liar::NeverReady => self.never_ready(),
            Liar::Endless => self.endless(),
            Liar::OpenRecords => self.open_records(),
            Liar::Sessions => self.sessions(),
            Liar::Churn => self.churn(),
            Liar::Directories => self.directories(),
            Liar::Times => self.times(),
        }
    }

    fn lengths(&mut self) -> Result<()> {
        let (provider, ring) = self.files()?;
        let halves = [
            offset_of!(abi::rtu_provider, events),
            offset_of!(abi::rtu_provider, text_bytes),
            offset_of!(abi::rtu_provider, text_offset),
            offset_of!(abi::rtu_provider, enabled_offset),
            offset_of!(abi::rtu_provider, enumerations),
        ];
        loop {
            let value = [0, 1, 0xffff, 0x7fff_ffff, u32::MAX][self.random.index(5)];
            let place = halves[self.random.index(halves.len())];
            provider.write_all_at(&value.to_le_bytes(), place as u64)?;
            ring.write_all_at(&value.to_le_bytes(), offset_of!(abi::rtu_ring, ring_bytes) as u64)?;
            // Each time another file.
            fs::rename(self.path(&self.provider_name()), self.path("x"))?;
            fs::rename(self.path("x"), self.path(&self.provider_name()))?;
            std::thread::sleep(PAUSE);
        }
    }

    fn sparse(&mut self) -> Result<()> {
        self.write(&self.provider_name(), &self.simple())?;
        for number in 0..8 {
            let mut bytes = self.ring(self.pid, 0);
            let size = abi::RTU_RING_BYTES_MAX;
            put32(&mut bytes, offset_of!(abi::rtu_ring, ring_bytes), size);
            put64(&mut bytes, offset_of!(abi::rtu_ring, head), u64::from(size) - 64);
            let file = self.write(&self.ring_name(number), &bytes[..4096 + 64])?;
            file.set_len(u64::from(abi::RTU_RING_OFFSET) + u64::from(size))?;
        }
        Ok(())
    }

    fn hard_links(&mut self) -> Result<()> {
        self.files()?;
        for number in 1..1500 {
            let name = provider_name(self.pid, self.birth, number);
            fs::hard_link(self.path(&self.provider_name()), self.path(&name))?;
            fs::hard_link(self.path(&self.ring_name(0)), self.path(&self.ring_name(number)))?;
        }
        Ok(())
    }

    fn many_names(&mut self) -> Result<()> {
        for number in 0..20_000 {
            File::create(self.path(&ring_name(self.pid, self.birth, number + 1, number)))?;
        }
        Ok(())
    }

    fn huge_descriptions(&mut self) -> Result<()> {
        let fields: String = (0..16).map(|number| format!("u8 f{number}\n")).collect();
        let all: Vec<String> =
            (0..60_000).map(|number| format!("violence:liar{number} 6\n{fields}")).collect();
        self.write(&self.ring_name(0), &self.ring(self.pid, 10))?;
        self.write(&self.provider_name(), &self.provider(&all))?;
        Ok(())
    }

    fn duplicates(&mut self) -> Result<()> {
        let all: Vec<String> =
            (0..3000).map(|number| format!("violence:liar 6\nu64 n{number}\nstr n\n")).collect();
        self.write(&self.ring_name(0), &self.ring(self.pid, 10))?;
        self.write(&self.provider_name(), &self.provider(&all))?;
        Ok(())
    }

    fn nasty_descriptions(&mut self) -> Result<()> {
        let all = [
            "violence:liar 6\nu64 n\nu64 n\n",
            "violence:liar 6\nseq u8 a\nu16 _a_length\n",
            "violence:liar 4294967295\nu64 n\n",
            "violence:liar 6\nu64 struct\nu64 int\u{e4}\n",
            "violence:liar\"; }; env { 6\nu64 n\n",
            "violence:liar 6\narray u64 4000000000 n\n",
            "violence:liar 6\nenum Missing n\n",
            "violence:liar 6\n\n\n",
            "violence: 6\nu64 \n",
            "violence:liar -1\nu64 9n\n",
        ];
        let all: Vec<String> = all.iter().map(|text| (*text).to_owned()).collect();
        self.write(&self.ring_name(0), &self.ring(self.pid, 100))?;
        self.write(&self.provider_name(), &self.provider(&all))?;
        Ok(())
    }

    /// A position of a ring that is something else each time.
    fn jumping(&mut self, place: usize) -> Result<()> {
        let (_provider, ring) = self.files()?;
        loop {
            let value = match self.random.below(5) {
                0 => self.random.below(1 << 17) & !7,
                1 => u64::MAX - self.random.below(64),
                2 => self.random.next(),
                3 => 1 << self.random.below(64),
                _ => 0,
            };
            ring.write_all_at(&value.to_le_bytes(), place as u64)?;
            std::thread::sleep(PAUSE);
        }
    }

    fn counters(&mut self) -> Result<()> {
        let (provider, ring) = self.files()?;
        for number in 1.. {
            let value = LIARS_UNIT * (number % 4096);
            for cause in 0..u64::from(abi::RTU_LOST_CAUSES) {
                let place = offset_of!(abi::rtu_provider, lost) as u64 + 8 * cause;
                provider.write_all_at(&value.to_le_bytes(), place)?;
            }
            ring.write_all_at(&value.to_le_bytes(), offset_of!(abi::rtu_ring, lost) as u64)?;
            ring.write_all_at(&u64::MAX.to_le_bytes(), offset_of!(abi::rtu_ring, waits) as u64)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn truncation(&mut self) -> Result<()> {
        let (provider, ring) = self.files()?;
        let head = [RING_BYTES as u64 - 64, 8192, 4096];
        loop {
            let [which, length] = [self.random.index(2), self.random.below(70_000) as usize];
            [&provider, &ring][which].set_len(length as u64)?;
            ring.write_all_at(
                &head[self.random.index(3)].to_le_bytes(),
                offset_of!(abi::rtu_ring, head) as u64,
            )?;
            std::thread::sleep(PAUSE);
            self.files()?;
        }
    }

    fn fifos(&mut self) -> Result<()> {
        for name in [self.provider_name(), self.ring_name(0), "session".to_owned(), "collector".to_owned()] {
            let mode = nix::sys::stat::Mode::S_IRWXU;
            nix::unistd::mkfifo(&self.path(&name), mode)?;
        }
        Ok(())
    }

    fn links(&mut self) -> Result<()> {
        let targets =
            ["/etc/passwd", "/dev/zero", "/dev/full", "/proc/self/mem", "nowhere", "../rtscope-0", "/"];
        for (number, target) in (0..).zip(targets) {
            symlink(target, self.path(&provider_name(self.pid, self.birth, number)))?;
            symlink(target, self.path(&self.ring_name(number)))?;
        }
        symlink("/etc/shadow", self.path("session"))?;
        symlink("collector", self.path("collector"))?;
        Ok(())
    }

    /// In the names of processes that this user may not touch, with births before and after theirs.
    fn foreign_processes(&mut self) -> Result<()> {
        let all = fs::read_dir("/proc")?.flatten();
        let pids: Vec<u32> =
            all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(60).collect();
        for pid in pids {
            for birth in [self.birth, 1, u64::MAX] {
                let bytes = program_files::provider(pid, birth, 0, &["violence:liar 6\nu64 n\n".to_owned()]);
                self.write(&provider_name(pid, birth, 0), &bytes)?;
                let ring = program_files::ring(pid, pid, birth, abi::RTU_CLOCK_MONOTONIC);
                self.write(&ring_name(pid, birth, pid, 0), &ring[..8192])?;
            }
        }
        Ok(())
    }

    fn sealed(&mut self) -> Result<()> {
        let name = std::ffi::CString::new("sealed")?;
        let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
        let sealed = File::from(nix::sys::memfd::memfd_create(name.as_c_str(), flags)?);
        sealed.write_all_at(&self.simple(), 0)?;
        let seals = nix::fcntl::SealFlag::F_SEAL_SHRINK
            | nix::fcntl::SealFlag::F_SEAL_GROW
            | nix::fcntl::SealFlag::F_SEAL_WRITE;
        nix::fcntl::fcntl(&sealed, nix::fcntl::FcntlArg::F_ADD_SEALS(seals))?;
        let link = format!("/proc/{}/fd/{}", self.pid, std::os::fd::AsRawFd::as_raw_fd(&sealed));
        symlink(link, self.path(&self.provider_name()))?;
        for (number, mode) in (0..).zip([0, 0o400, 0o222, 0o4777]) {
            self.write(&self.ring_name(number), &self.ring(self.pid, 10))?;
            fs::set_permissions(self.path(&self.ring_name(number)), fs::Permissions::from_mode(mode))?;
        }
        // The descriptor stays open.
        std::mem::forget(sealed);
        Ok(())
    }

    fn versions(&mut self) -> Result<()> {
        for number in 0..40u32 {
            let birth = self.birth + u64::from(number);
            let mut provider =
                program_files::provider(self.pid, birth, 0, &["violence:liar 6\nu64 n\n".to_owned()]);
            let version = [0, 2, 99, u32::MAX][number as usize % 4];
            put32(&mut provider, offset_of!(abi::rtu_provider, abi_version), version);
            self.write(&provider_name(self.pid, birth, 0), &provider)?;
            let mut ring = program_files::ring(self.pid, self.pid, birth, abi::RTU_CLOCK_CNTVCT);
            put64(&mut ring, 0, abi::RTU_RING_MAGIC ^ 1 << number);
            self.write(&ring_name(self.pid, birth, self.pid, 0), &ring)?;
        }
        Ok(())
    }

    fn random_bytes(&mut self) -> Result<()> {
        let (provider, ring) = self.files()?;
        loop {
            for file in [&provider, &ring] {
                let length = file.metadata()?.len().min(5000);
                let place = self.random.below(length.saturating_sub(8));
                file.write_all_at(&self.random.next().to_le_bytes(), place)?;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn never_ready(&mut self) -> Result<()> {
        let mut provider = self.simple();
        put32(&mut provider, offset_of!(abi::rtu_provider, ready), 0);
        self.write(&self.provider_name(), &provider)?;
        let mut ring = self.ring(self.pid, 100);
        put32(&mut ring, offset_of!(abi::rtu_ring, ready), 0);
        let growing = self.write(&self.ring_name(1), &[])?;
        self.write(&self.ring_name(0), &ring)?;
        for length in 0..1_000_000 {
            growing.set_len(length)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Writes records as fast as it can, and never ends.
    fn endless(&mut self) -> Result<()> {
        let (_provider, ring) = self.files()?;
        let (data, head_at) = (u64::from(abi::RTU_RING_OFFSET), offset_of!(abi::rtu_ring, head) as u64);
        let began = Instant::now();
        let mut lap = 0u64;
        // No longer than a round, so that a lie that nobody reads costs little.
        while began.elapsed() < Duration::from_secs(20) {
            lap += 1;
            let now = monotonic();
            let tag = (lap + u64::from(program_files::KEY)) & 0x7f;
            let word = |id: u32, eighths: u64| {
                u64::from(id) | tag << 16 | eighths << 24 | now << abi::RTU_TIME_SHIFT
            };
            let mut bytes = Vec::with_capacity(RING_BYTES);
            while bytes.len() < RING_BYTES {
                let words = if bytes.len() % program_files::SUB_BUFFER_BYTES == 0 {
                    vec![word(abi::RTU_ID_SYNC, 4), now, 0, 0]
                } else {
                    vec![word(0, 2), lap]
                };
                words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            }
            ring.write_all_at(&bytes, data)?;
            ring.write_all_at(&((lap + 1) * RING_BYTES as u64).to_le_bytes(), head_at)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn open_records(&mut self) -> Result<()> {
        let (_provider, ring) = self.files()?;
        let mut head = RING_BYTES as u64 / 2;
        loop {
            for _ in 0..200 {
                let place = u64::from(abi::RTU_RING_OFFSET) + self.random.below(RING_BYTES as u64) / 8 * 8;
                let id = [0, 0, 1, abi::RTU_ID_SYNC, abi::RTU_ID_PADDING][self.random.index(5)];
                let open = if self.random.flag() { u64::from(abi::RTU_OPEN) << 16 } else { 0 };
                let word = record_word(id, self.random.below(1024), self.random.next() >> 34) | open;
                ring.write_all_at(&word.to_le_bytes(), place)?;
            }
            head += self.random.below(4096) & !7;
            ring.write_all_at(&head.to_le_bytes(), offset_of!(abi::rtu_ring, head) as u64)?;
            std::thread::sleep(PAUSE);
        }
    }

    fn sessions(&mut self) -> Result<()> {
        let lock = self.write("collector", b"1")?;
        // It is held as long as this process lives.
        let held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive);
        std::mem::forget(held);
        let mut session = vec![0; 4096];
        put64(&mut session, 0, abi::RTU_SESSION_MAGIC);
        put32(&mut session, offset_of!(abi::rtu_session, abi_version), abi::RTU_ABI_VERSION);
        put32(&mut session, offset_of!(abi::rtu_session, bytes), u32::MAX);
        put64(&mut session, offset_of!(abi::rtu_session, session), 1);
        put32(&mut session, offset_of!(abi::rtu_session, pid), 1);
        self.write("session", &session)?;
        self.files()?;
        Ok(())
    }

    fn churn(&mut self) -> Result<()> {
        let began = Instant::now();
        for number in 0.. {
            if began.elapsed() > Duration::from_secs(20) {
                break;
            }
            let birth = self.birth + number % 50;
            let (provider, ring) =
                (provider_name(self.pid, birth, 0), ring_name(self.pid, birth, self.pid, 0));
            let bytes = program_files::provider(self.pid, birth, 0, &["violence:liar 6\nu64 n\n".to_owned()]);
            self.write(&provider, &bytes)?;
            self.write(&ring, &program_files::ring(self.pid, self.pid, birth, abi::RTU_CLOCK_MONOTONIC))?;
            fs::rename(self.path(&ring), self.path(&provider))?;
            // The recorder may have removed it.
            let _ = fs::remove_file(self.path(&provider));
            if number % 8 == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn directories(&mut self) -> Result<()> {
        self.files()?;
        // Not a link in place of it: nobody but root may rename there. But its mode is this user's.
        fs::create_dir(self.path(&self.ring_name(7)))?;
        fs::create_dir(self.path("session"))?;
        loop {
            let mode = [0, 0o700, 0o777, 0o1777, 0o4700, 0o500][self.random.index(6)];
            fs::set_permissions(&self.directory, fs::Permissions::from_mode(mode))?;
            std::thread::sleep(PAUSE);
        }
    }

    fn times(&mut self) -> Result<()> {
        let (_provider, ring) = self.files()?;
        let data = u64::from(abi::RTU_RING_OFFSET);
        let mut head = 32 + 100 * 16;
        loop {
            let time = [0, 1, u64::MAX, u64::MAX / 2, monotonic() + 1_000_000_000_000][self.random.index(5)];
            let sync = [record_word(abi::RTU_ID_SYNC, 4, time), time, 0, u64::from(u32::MAX)];
            if (head + 64) % program_files::SUB_BUFFER_BYTES as u64 > 64 && head + 64 < RING_BYTES as u64 {
                let bytes: Vec<u8> = sync.iter().flat_map(|word| word.to_le_bytes()).collect();
                ring.write_all_at(&bytes, data + head)?;
                head += 32;
                ring.write_all_at(&head.to_le_bytes(), offset_of!(abi::rtu_ring, head) as u64)?;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Removes what liars have left.
pub fn sweep(liars: &[Liar]) {
    for liar in liars {
        let directory = Path::new("/dev/shm").join(format!("rtscope-{}", liar.user()));
        // It may have made its directory unusable, or none.
        let _ = fs::set_permissions(&directory, fs::Permissions::from_mode(0o700));
        let _ = fs::remove_dir_all(&directory);
    }
}
