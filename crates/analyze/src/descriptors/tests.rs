// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

const FILES: u64 = 0x1000;

struct Teller {
    all: Descriptors,
    now: u64,
    table: u64,
    tid: u32,
    pid: u32,
}

impl Teller {
    fn new(limits: DescriptorLimits) -> Teller {
        let mut teller = Teller { all: Descriptors::new(limits), now: 1_000, table: 1, tid: 10, pid: 10 };
        teller.task(TaskChange::Seen);
        teller
    }

    /// Of another task.
    fn by(&mut self, tid: u32, pid: u32, table: u64) -> &mut Teller {
        (self.tid, self.pid, self.table) = (tid, pid, table);
        self
    }

    fn tell(&mut self, call: Option<&'static str>, change: DescriptorChange) {
        self.now += 10;
        let (tid, pid) = (Tid(self.tid), Pid(self.pid));
        let record = DescriptorRecord {
            time: MonotonicNs(self.now),
            table: TableId(self.table),
            tid,
            pid,
            call,
            change,
        };
        self.all.record(&record);
    }

    fn task(&mut self, change: TaskChange) {
        let comm = format!("task-{}", self.pid);
        let told = TaskTable { change, parent: Pid(1), start: MonotonicNs(self.now), comm };
        self.tell(None, DescriptorChange::Task(told));
    }

    fn slot(&mut self, call: &'static str, fd: u32, file: u64, inode: u64, discovery: Discovery) {
        let description = (inode > 0).then(|| {
            Box::new(FileDescription { name: format!("/file-{inode}"), inode, ..FileDescription::default() })
        });
        let slot = SlotState {
            fd,
            file: (file > 0).then_some(OpenFileId(FILES + file)),
            cloexec: false,
            description,
            discovery,
            is_copy: ["dup", "recvmsg"].contains(&call),
            may_repeat: call == "dup2",
        };
        self.tell(Some(call), DescriptorChange::Slot(slot));
    }

    fn given(&mut self, call: &'static str, fd: u32, file: u64, inode: u64) {
        self.slot(call, fd, file, inode, Discovery::Call);
    }

    fn free(&mut self, call: &'static str, fd: u32) {
        self.slot(call, fd, 0, 0, Discovery::Call);
    }

    fn chunk(&mut self, call: Option<&'static str>, files: &[(usize, u64)], is_scan: bool) {
        let mut all = Box::new([0; CHUNK_SLOTS]);
        files.iter().for_each(|(fd, file)| all[*fd] = FILES + file);
        let chunk = SlotChunk {
            first: 0,
            files: Some(all),
            cloexec_or_open: 0,
            is_first: true,
            is_last: true,
            is_scan,
        };
        self.tell(call, DescriptorChange::Chunk(chunk));
    }

    fn rows(&self, with_closed: bool) -> Vec<DescriptorRow> {
        self.all.report(&DescriptorQuery { with_closed, ..DescriptorQuery::default() }).descriptors
    }

    /// Process, number and file of what is open.
    fn open(&self) -> Vec<(u32, u32, u64)> {
        self.rows(false).iter().map(|row| (row.pid.0, row.fd, row.inode.unwrap_or(0))).collect()
    }
}

#[test]
fn a_descriptor_is_open_from_its_giving_to_its_freeing() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.given("openat", 3, 1, 100);
    teller.given("dup", 4, 1, 100);
    assert_eq!(teller.open(), [(10, 3, 100), (10, 4, 100)]);
    teller.free("close", 3);
    let rows = teller.rows(true);
    assert_eq!(teller.open(), [(10, 4, 100)]);
    let closed = rows.iter().find(|row| row.fd == 3).and_then(|row| row.closed).expect("it was closed");
    assert_eq!((closed.by, closed.call), (ClosedBy::Call, Some("close")));
    // The copy was given by dup; its file was opened by openat.
    let copy = &rows[0];
    assert_eq!(
        (copy.given.by.call, copy.opened.and_then(|opened| opened.call)),
        (Some("dup"), Some("openat"))
    );
}

#[test]
fn the_last_record_about_a_slot_is_right_whatever_came_before() {
    let mut teller = Teller::new(DescriptorLimits::default());
    // A thread closes 3, another one is given it again, and what the first one sees is told last.
    teller.given("openat", 3, 1, 100);
    teller.given("openat", 3, 2, 200);
    teller.slot("close", 3, 2, 200, Discovery::Found);
    assert_eq!(teller.open(), [(10, 3, 200)]);
    // It was opened by openat, not by close.
    assert_eq!(teller.rows(false)[0].opened.and_then(|opened| opened.call), Some("openat"));
    let replaced: Vec<_> =
        teller.rows(true).into_iter().filter_map(|row| row.closed).map(|closed| closed.by).collect();
    assert_eq!(replaced, [ClosedBy::Replaced]);
}

#[test]
fn what_was_found_first_is_attributed_to_the_call_that_gave_it() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.slot("ioctl", 3, 1, 100, Discovery::Found);
    assert_eq!(teller.rows(false)[0].given.by.discovery, Discovery::Found);
    teller.by(11, 10, 1).given("openat", 3, 1, 100);
    let rows = teller.rows(true);
    assert_eq!(rows.len(), 1, "nothing was closed: {rows:?}");
    assert_eq!((rows[0].given.by.call, rows[0].given.by.tid), (Some("openat"), Tid(11)));
}

#[test]
fn the_same_number_and_place_may_be_another_file() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.given("openat", 3, 1, 100);
    // The kernel reuses the place of a file that was closed; the record of its closing comes later, and finds the new one.
    teller.given("openat", 3, 1, 100);
    assert_eq!(teller.rows(true).len(), 2);
    // dup2 of a descriptor to itself does nothing.
    teller.given("dup2", 3, 1, 100);
    assert_eq!(teller.rows(true).len(), 2);
}

#[test]
fn children_inherit_and_exec_and_exit_close() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.given("openat", 3, 1, 100);
    teller.given("openat", 4, 2, 200);
    teller.by(20, 20, 2).task(TaskChange::Fork(Tid(10)));
    teller.chunk(Some("clone"), &[(3, 1), (4, 2)], false);
    assert_eq!(teller.open(), [(10, 3, 100), (10, 4, 200), (20, 3, 100), (20, 4, 200)]);
    let inherited = teller.rows(false).pop().expect("four");
    assert_eq!(inherited.given.reached, Reached::Inherited);
    assert_eq!(inherited.opened.map(|opened| opened.pid), Some(Pid(10)));
    teller.task(TaskChange::Exec(Tid(20)));
    teller.chunk(Some("execve"), &[(3, 1)], false);
    let by = |rows: Vec<DescriptorRow>| {
        rows.into_iter().filter_map(|row| row.closed).map(|row| row.by).collect::<Vec<_>>()
    };
    assert_eq!(by(teller.rows(true)), [ClosedBy::Exec]);
    teller.task(TaskChange::Exit);
    assert_eq!(teller.open(), [(10, 3, 100), (10, 4, 200)]);
    assert_eq!(by(teller.rows(true)), [ClosedBy::Exec, ClosedBy::Exit]);
}

#[test]
fn a_table_ends_with_its_last_task() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.given("openat", 3, 1, 100);
    // Another process with the same table.
    teller.by(20, 20, 1).task(TaskChange::Fork(Tid(10)));
    assert_eq!(teller.rows(false)[0].shared_with, [Pid(20)]);
    teller.by(10, 10, 1).task(TaskChange::Exit);
    assert_eq!(teller.open(), [(20, 3, 100)]);
    // It gets one of its own: nothing is closed, and the number is the one that was given before.
    teller.by(20, 20, 2).task(TaskChange::Unshare);
    teller.chunk(Some("unshare"), &[(3, 1)], false);
    assert_eq!(teller.open(), [(20, 3, 100)]);
    assert_eq!(teller.rows(false)[0].given.by.call, Some("openat"));
    teller.task(TaskChange::Exit);
    assert_eq!(teller.open(), []);
    assert_eq!(teller.all.counts().open, 0);
}

#[test]
fn a_thread_that_executes_takes_the_number_of_its_process() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.given("openat", 3, 1, 100);
    teller.by(11, 10, 1).task(TaskChange::Fork(Tid(10)));
    teller.by(10, 10, 1).task(TaskChange::Exit);
    teller.task(TaskChange::Exec(Tid(11)));
    teller.chunk(Some("execve"), &[(3, 1)], false);
    assert_eq!(teller.open(), [(10, 3, 100)]);
    let report = teller.all.report(&DescriptorQuery::default());
    assert_eq!(report.processes.iter().map(|process| process.threads).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_copy_may_be_told_before_its_file_is_described() {
    let mut teller = Teller::new(DescriptorLimits::default());
    // A thread forks while another one is in open: the child's slots are told before open returns.
    teller.by(20, 20, 2).task(TaskChange::Fork(Tid(10)));
    teller.chunk(Some("clone"), &[(3, 1)], false);
    assert!(teller.all.has_undescribed());
    teller.by(10, 10, 1).given("openat", 3, 1, 100);
    assert!(!teller.all.has_undescribed());
    assert_eq!(teller.open(), [(10, 3, 100), (20, 3, 100)]);
    // One that is never described is counted.
    teller.by(30, 30, 3).task(TaskChange::Fork(Tid(10)));
    teller.chunk(Some("clone"), &[(5, 7)], false);
    teller.all.advance(MonotonicNs(teller.now + UNDESCRIBED_NS + 1));
    assert_eq!(teller.all.counts().files_not_known, 1);
}

#[test]
fn a_scan_mends_what_was_lost() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.given("openat", 3, 1, 100);
    teller.by(20, 20, 2).task(TaskChange::Fork(Tid(10)));
    teller.given("openat", 5, 2, 200);
    teller.all.begin_scan();
    // 3 was closed and 4 opened without being told; process 20 is gone.
    teller.by(10, 10, 1).task(TaskChange::Seen);
    teller.chunk(None, &[(4, 3)], true);
    teller.slot("", 4, 3, 300, Discovery::Scan);
    teller.all.end_scan();
    assert_eq!(teller.open(), [(10, 4, 300)]);
    assert_eq!(teller.rows(false)[0].given.reached, Reached::Before);
    let by: Vec<_> = teller.rows(true).into_iter().filter_map(|row| row.closed).map(|row| row.by).collect();
    assert_eq!(by, [ClosedBy::Unknown, ClosedBy::Unknown]);
    assert_eq!(teller.all.counts().ends_not_seen, 1);
}

#[test]
fn what_was_closed_is_kept_for_a_while_and_memory_is_bounded() {
    let limits = DescriptorLimits { open: 3, closed: 2, closed_for_ns: 1_000, tasks: 2 };
    let mut teller = Teller::new(limits);
    for fd in 3..7 {
        teller.given("openat", fd, u64::from(fd), u64::from(fd) * 100);
    }
    assert_eq!((teller.open().len(), teller.all.counts().open_not_kept), (3, 1));
    (3..6).for_each(|fd| teller.free("close", fd));
    assert_eq!((teller.rows(true).len(), teller.all.counts().closed_forgotten), (2, 1));
    teller.all.advance(MonotonicNs(teller.now + 1_001));
    assert_eq!(teller.rows(true), []);
    (11..14).for_each(|tid| teller.by(tid, 10, 1).task(TaskChange::Fork(Tid(10))));
    assert_eq!(teller.all.counts().tasks_not_kept, 2);
    // Files that nobody has are forgotten, too.
    for file in 0..5_000 {
        teller.by(10, 10, 1).given("openat", 3, 100 + file, 1_000 + file);
        teller.free("close", 3);
        teller.all.advance(MonotonicNs(teller.now));
    }
    assert!(teller.all.files.len() < 3_000, "{} files", teller.all.files.len());
}

#[test]
fn it_can_be_asked_by_process_number_and_path() {
    let mut teller = Teller::new(DescriptorLimits::default());
    teller.given("openat", 3, 1, 100);
    teller.given("openat", 4, 2, 200);
    teller.by(20, 20, 2).task(TaskChange::Seen);
    teller.given("openat", 3, 3, 300);
    let found = |query: DescriptorQuery| -> Vec<u64> {
        teller.all.report(&query).descriptors.iter().filter_map(|row| row.inode).collect()
    };
    let any = DescriptorQuery::default;
    assert_eq!(found(DescriptorQuery { pids: vec![Pid(10)], ..any() }), [100, 200]);
    assert_eq!(found(DescriptorQuery { fd: Some(3), ..any() }), [100, 300]);
    assert_eq!(
        found(DescriptorQuery { path: Some(rtscope_event::Pattern::new("/file-[23]00")), ..any() }),
        [0; 0]
    );
    assert_eq!(
        found(DescriptorQuery { path: Some(rtscope_event::Pattern::new("/file-?00")), fd: Some(4), ..any() }),
        [200]
    );
}
