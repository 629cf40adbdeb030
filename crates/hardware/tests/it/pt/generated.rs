// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are made at random, executed at random, traced by our encoder, and followed: the instructions must be those that were
//! executed, and the events those that were told.

use rtscope_hardware::pt::{
    Block, ClockConfig, Event, Flow, FlowDecoder, FlowSink, Memory, Packet, SpaceId, Stamp, Tracer,
    TracerConfig,
};
use rtscope_testkit::random::Random;

const BASE: u64 = 0x7f00_0000_0000;

/// Code, and where its instructions and blocks begin.
pub struct Program {
    pub code: Vec<u8>,
    blocks: Vec<u64>,
}

/// Without a branch, of 1 to 7 bytes.
const PLAIN: [&[u8]; 7] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x48, 0x89, 0xc0],
    &[0x0f, 0x1f, 0x40, 0],
    &[0xf3, 0x48, 0x0f, 0xae, 0xe0], // PTWRITE RAX
    &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
];

impl Program {
    pub fn new(random: &mut Random) -> Self {
        let (mut code, mut blocks, mut open) = (Vec::new(), Vec::new(), Vec::new());
        let count = 200;
        for block in 0..count {
            blocks.push(BASE + code.len() as u64);
            for _ in 0..random.below(9) {
                code.extend(PLAIN[random.below(7) as usize]);
            }
            // Forward, so that no circle is without a decision.
            let forward = block + 1 + random.below(8) as usize;
            let anywhere = random.below(count as u64) as usize;
            let kind = if forward >= count { 7 } else { random.below(10) };
            let (bytes, target): (&[u8], _) = match kind {
                0 | 1 => (&[0x0f, 0x84, 0, 0, 0, 0], Some(anywhere)),
                2 => (&[0xe9, 0, 0, 0, 0], Some(forward)),
                3 | 4 => (&[0xe8, 0, 0, 0, 0], Some(forward)),
                5 => (&[0xc3], None),
                6 => (&[0xff, 0xd0], None),
                7 => (&[0xff, 0xe0], None),
                8 => (&[0x0f, 5], None),
                // A call of the next instruction, for its address.
                _ => (&[0xe8, 0, 0, 0, 0, 0x58], None),
            };
            code.extend(bytes);
            open.extend(target.map(|target| (code.len(), target)));
        }
        for (end, target) in open {
            let distance = (blocks[target].wrapping_sub(BASE + end as u64)) as u32;
            code[end - 4..end].copy_from_slice(&distance.to_le_bytes());
        }
        Self { code, blocks }
    }

    fn at(&self, ip: u64) -> &[u8] {
        &self.code[(ip - BASE) as usize..]
    }

    fn any(&self, random: &mut Random) -> u64 {
        self.blocks[random.below(self.blocks.len() as u64) as usize]
    }

    /// The instruction's length.
    fn len(&self, ip: u64) -> u64 {
        match self.at(ip) {
            [0xc3 | 0x90 | 0x58, ..] => 1,
            [0xff, 0xd0 | 0xe0, ..] | [0x0f, 5, ..] | [0x66, 0x90, ..] => 2,
            [0x48, ..] => 3,
            [0x0f, 0x1f, 0x40, ..] => 4,
            [0xe8 | 0xe9 | 0xf3, ..] => 5,
            [0x0f, 0x84, ..] | [0x66, 0x0f, ..] => 6,
            [0x0f, 0x1f, 0x80, ..] => 7,
            other => panic!("{:x?}", &other[..8]),
        }
    }

    fn fixed_target(&self, ip: u64) -> u64 {
        let end = ip + self.len(ip);
        let distance = i32::from_le_bytes(self.at(end - 4)[..4].try_into().unwrap());
        end.wrapping_add(i64::from(distance) as u64)
    }

    /// The instruction after that at `ip`.
    fn step(&self, ip: u64, stack: &mut Vec<u64>, random: &mut Random) -> u64 {
        let after = ip + self.len(ip);
        match self.at(ip) {
            [0x0f, 0x84, ..] if random.below(2) == 0 => self.fixed_target(ip),
            [0xe9, ..] => self.fixed_target(ip),
            [0xe8, ..] => {
                stack.push(after);
                self.fixed_target(ip)
            }
            // Most go back to their call.
            [0xc3, ..] if random.below(10) > 0 => stack.pop().unwrap_or_else(|| self.any(random)),
            [0xff, 0xd0, ..] => {
                stack.push(after);
                self.any(random)
            }
            [0xc3, ..] | [0xff, 0xe0, ..] => self.any(random),
            [0x58, ..] => {
                stack.pop();
                after
            }
            _ => after,
        }
    }
}

/// What was executed, and what was told between.
#[derive(Debug, Default)]
pub struct Executed {
    pub instructions: Vec<u64>,
    pub events: Vec<(usize, Event)>,
}

fn event(random: &mut Random, ip: u64, tracer: &mut Tracer, executed: &mut Executed) {
    let payload = random.below(u64::MAX);
    match random.below(4) {
        0 => {
            tracer.other(Packet::Ptw { payload, wide: true, ip: true });
            tracer.here(ip);
            let event = Event::Write { payload, wide: true, at: Some(ip) };
            executed.events.push((executed.instructions.len(), event));
        }
        1 => {
            tracer.other(Packet::ExStop { ip: true });
            tracer.here(ip);
            let event = Event::ExecutionStopped { at: Some(ip) };
            executed.events.push((executed.instructions.len(), event));
        }
        2 => tracer.synchronise(Some(ip), &[Packet::Cbr { ratio: 20 }]),
        _ => {
            // What was executed since the last packet is not known after an overflow: it is told first.
            tracer.other(Packet::Bep { ip: true });
            tracer.here(ip);
            executed.events.push((executed.instructions.len(), Event::GroupEnd { at: Some(ip) }));
            tracer.overflow(ip);
            executed.events.push((executed.instructions.len(), Event::Overflow));
            executed.events.push((executed.instructions.len(), Event::Recovered { ip }));
        }
    }
}

/// Executes a program and traces it.
pub fn traced(
    program: &Program,
    config: TracerConfig,
    steps: usize,
    random: &mut Random,
) -> (Vec<u8>, Executed) {
    let mut memory = Memory::new();
    memory.add(BASE, program.code.as_slice().into());
    let (mut tracer, mut executed, mut stack) = (Tracer::new(config), Executed::default(), Vec::new());
    let mut ip = program.blocks[0];
    tracer.synchronise(None, &[Packet::Tsc { ticks: 1000 }, Packet::Tma { ctc: 0, fast_counter: 0 }]);
    tracer.enable(ip);
    for step in 0..steps {
        let next = program.step(ip, &mut stack, random);
        executed.instructions.push(ip);
        tracer.executed(ip, next, &mut memory).unwrap();
        ip = next;
        if step % 50 == 49 {
            tracer.timing(Packet::Mtc { ctc: (step / 50 + 1) as u8 });
        }
        match random.below(200) {
            0 => {
                let to = program.any(random);
                tracer.interrupt(ip, to);
                executed.events.push((executed.instructions.len(), Event::Asynchronous { from: ip, to }));
                ip = to;
            }
            1 => event(random, ip, &mut tracer, &mut executed),
            _ => {}
        }
    }
    tracer.here(ip);
    tracer.disable();
    (tracer.finish(), executed)
}

/// What a decoder says.
pub struct Followed<'m> {
    pub executed: Executed,
    memory: &'m Memory,
    ticks: u64,
}

impl FlowSink for Followed<'_> {
    fn block(&mut self, block: &Block, _: &Stamp) {
        for instruction in self.memory.instructions(block, rtscope_hardware::pt::ExecMode::Bits64) {
            self.executed.instructions.push(instruction.unwrap().0);
        }
    }

    fn event(&mut self, event: Event, stamp: &Stamp) {
        let ticks = stamp.time.map_or(0, |time| time.ticks);
        assert!(ticks >= self.ticks, "time goes back: {event:?} {stamp:?}");
        self.ticks = ticks;
        let told = self.executed.instructions.len();
        match event {
            Event::Mode { .. }
            | Event::Enabled { .. }
            | Event::Disabled { .. }
            | Event::Frequency { .. }
            | Event::Synchronised { .. } => {}
            other => self.executed.events.push((told, other)),
        }
    }
}

pub fn followed(program: &Program, stream: &[u8], piece: usize) -> Executed {
    let mut memory = Memory::new();
    memory.add(BASE, program.code.as_slice().into());
    let mut flow =
        Flow::new(ClockConfig { mtc_frequency: 0, tsc_per_crystal: Some((100, 1)), nominal_ratio: None });
    flow.change(SpaceId::FIRST, |there| *there = memory.clone());
    let mut decoder = FlowDecoder::new(flow);
    let mut followed = Followed { executed: Executed::default(), memory: &memory, ticks: 0 };
    for piece in stream.chunks(piece) {
        decoder.push(piece, &mut followed);
    }
    decoder.finish(&mut followed);
    followed.executed
}

#[test]
fn programs_made_at_random_are_followed_exactly() {
    let mut interrupts = 0;
    for seed in 0..60 {
        let random = &mut Random(seed);
        let program = Program::new(random);
        let config = TracerConfig {
            long_branches: seed % 2 == 1,
            returns_with_targets: seed % 5 == 4,
            defer_targets: seed % 3 == 2,
        };
        let (stream, executed) = traced(&program, config, 20_000, random);
        let followed = followed(&program, &stream, 1 + seed as usize * 7);
        let differs = executed.instructions.iter().zip(&followed.instructions).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}, {config:?}, {:?}", followed.events.last());
        assert_eq!(executed.instructions.len(), followed.instructions.len(), "seed {seed}");
        assert_eq!(executed.events, followed.events, "seed {seed}");
        interrupts +=
            followed.events.iter().filter(|(_, event)| matches!(event, Event::Asynchronous { .. })).count();
    }
    assert!(interrupts > 1000, "{interrupts}");
}
