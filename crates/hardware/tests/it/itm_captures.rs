// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ITM and DWT: each packet against the crate `itm` 0.9.0-rc.1, in its words.

use rtscope_hardware::itm::{Action, Decoder, Delay, Item, Packet, Payload};
use rtscope_hardware::{Lost, LostCause};

use super::stm_captures;

fn bytes_of(value: u32, size: u8) -> Vec<u8> {
    value.to_le_bytes()[..usize::from(size)].to_vec()
}

fn exception(number: u16) -> String {
    match number {
        0 => "ThreadMode".to_string(),
        2 => "Exception(NonMaskableInt)".to_string(),
        3 => "Exception(HardFault)".to_string(),
        4 => "Exception(MemoryManagement)".to_string(),
        5 => "Exception(BusFault)".to_string(),
        6 => "Exception(UsageFault)".to_string(),
        11 => "Exception(SVCall)".to_string(),
        12 => "Exception(DebugMonitor)".to_string(),
        14 => "Exception(PendSV)".to_string(),
        15 => "Exception(SysTick)".to_string(),
        number => format!("Interrupt {{ irqn: {} }}", number - 16),
    }
}

const fn relation(delay: Delay) -> &'static str {
    match delay {
        Delay::None => "Sync",
        Delay::Timestamp => "UnknownDelay",
        Delay::Event => "AssocEventDelay",
        Delay::Both => "UnknownAssocEventDelay",
    }
}

/// As the crate prints it.
fn line(payload: Payload) -> String {
    match payload {
        Payload::Sync => "Sync".to_string(),
        Payload::Overflow => "Overflow".to_string(),
        Payload::LocalTimestamp { delta_ticks, short: true, .. } => {
            format!("LocalTimestamp2 {{ ts: {delta_ticks} }}")
        }
        Payload::LocalTimestamp { delta_ticks, delay, .. } => {
            format!("LocalTimestamp1 {{ ts: {delta_ticks}, data_relation: {} }}", relation(delay))
        }
        Payload::GlobalLow { value, wrapped, clock_changed, .. } => {
            format!("GlobalTimestamp1 {{ ts: {value}, wrap: {wrapped}, clkch: {clock_changed} }}")
        }
        Payload::GlobalHigh { value, .. } => format!("GlobalTimestamp2 {{ ts: {value} }}"),
        Payload::Stimulus { port, size, value } => {
            format!("Instrumentation {{ port: {port}, payload: {:?} }}", bytes_of(value, size))
        }
        Payload::Counters(bits) => {
            let of = |bit: u8| bits >> bit & 1 != 0;
            let (cyc, fold, lsu, sleep, exc, cpi) = (of(5), of(4), of(3), of(2), of(1), of(0));
            format!(
                "EventCounterWrap {{ cyc: {cyc}, fold: {fold}, lsu: {lsu}, sleep: {sleep}, exc: {exc}, cpi: {cpi} }}"
            )
        }
        Payload::Exception { number, action } => {
            let action = match action {
                Action::Entered => "Entered",
                Action::Exited => "Exited",
                Action::Returned => "Returned",
            };
            format!("ExceptionTrace {{ exception: {}, action: {action} }}", exception(number))
        }
        Payload::PcSample(pc) => format!("PCSample {{ pc: {pc:?} }}"),
        Payload::DataPc { comparator, pc } => format!("DataTracePC {{ comparator: {comparator}, pc: {pc} }}"),
        Payload::DataAddress { comparator, address } => {
            format!("DataTraceAddress {{ comparator: {comparator}, data: {:?} }}", address.to_le_bytes())
        }
        Payload::DataValue { comparator, written, size, value } => {
            let access = if written { "Write" } else { "Read" };
            let value = bytes_of(value, size);
            format!("DataTraceValue {{ comparator: {comparator}, access_type: {access}, value: {value:?} }}")
        }
        other => format!("{other:?}"),
    }
}

fn agrees(name: &str, stream: &[u8], listing: &str) {
    let (mut lines, mut lost, mut in_packets) = (Vec::new(), 0, 0);
    let mut sink = |item: Item| match item {
        Item::Packet(Packet { payload, bytes, .. }) => {
            lines.push(line(payload));
            in_packets += bytes;
        }
        Item::Lost(Lost { bytes, cause: LostCause::Malformed, offset }) => {
            lost += bytes;
            let header = stream[offset as usize];
            lines.push(format!("ERR MalformedPacket(InvalidSourcePayload {{ header: {header}, size: 0 }})"));
        }
        Item::Lost(cut) => lost += cut.bytes,
    };
    let mut decoder = Decoder::new();
    decoder.push(stream, &mut sink);
    decoder.finish(&mut sink);
    let said: Vec<&str> = listing.lines().collect();
    let mut same = 0;
    for (index, (ours, said)) in lines.iter().zip(&said).enumerate() {
        assert_eq!(ours, said, "{name}: packet {index}");
        same += 1;
    }
    assert_eq!(lines.len(), said.len(), "{name}");
    assert_eq!(in_packets + lost, stream.len() as u64, "{name}: every byte is in a packet or lost");
    stm_captures::row(name, "ITM, DWT", "itm 0.9.0-rc.1", same, said.len(), stream.len() as u64, lost);
}

#[test]
fn each_packet_of_the_itm_captures_is_the_itm_crates() {
    let all = [
        ("itm/itm_only.bin", "itm_only"),
        ("itm/sigrok-stm32f105/id1.itm.bin", "stm32f105.id1"),
        ("itm/synthetic-lts-gts.bin", "synthetic"),
    ];
    for (path, listing) in all {
        let Some(stream) = stm_captures::read(path) else { return };
        let Some(listing) = stm_captures::expected(&format!("itm-0.9.0-rc.1/{listing}.txt.xz")) else {
            return;
        };
        agrees(path, &stream, &listing);
    }
}
