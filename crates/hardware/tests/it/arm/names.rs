// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OpenCSD's words for what our decoders found.

use rtscope_hardware::etm::isa::{Instruction, Kind};
use rtscope_hardware::etm::v4::{Address, AddressForm, Packet};
use rtscope_hardware::etm::{Context, Element, Fault, ptm, v3};

/// Of bytes that are in no packet.
pub fn etm4_fault(fault: Fault) -> Option<&'static str> {
    match fault {
        Fault::NotSynchronised => None,
        Fault::Reserved => Some("I_RESERVED"),
        Fault::NotConfigured => Some("I_RESERVED_CFG"),
        Fault::Sequence => Some("I_BAD_SEQUENCE"),
        Fault::Incomplete => Some("I_INCOMPLETE_EOT"),
    }
}

/// Of bytes of ETMv3 and PTM that are in no packet.
pub fn etm3_fault(fault: Fault) -> Option<&'static str> {
    match fault {
        Fault::NotSynchronised => None,
        Fault::Reserved => Some("RESERVED"),
        Fault::NotConfigured => Some("BAD_TRACEMODE"),
        Fault::Sequence => Some("BAD_SEQUENCE"),
        Fault::Incomplete => Some("INCOMPLETE_EOT"),
    }
}

/// Of a packet of PTM.
pub fn ptm(packet: &ptm::Packet) -> String {
    match packet {
        ptm::Packet::Async => "ASYNC",
        ptm::Packet::ISync { .. } => "ISYNC",
        ptm::Packet::Trigger => "TRIGGER",
        ptm::Packet::WaypointUpdate { .. } => "WP_UPDATE",
        ptm::Packet::Ignore => "IGNORE",
        ptm::Packet::ContextId(_) => "CTXTID",
        ptm::Packet::Vmid(_) => "VMID",
        ptm::Packet::Atoms { .. } => "ATOM",
        ptm::Packet::Timestamp { .. } => "TIMESTAMP",
        ptm::Packet::ExceptionReturn => "ERET",
        ptm::Packet::Branch { .. } => "BRANCH_ADDRESS",
    }
    .to_owned()
}

/// Of a packet of ETMv3.
pub fn etm3(packet: &v3::Packet) -> String {
    match packet {
        v3::Packet::Async => "A_SYNC",
        v3::Packet::Cycles(_) => "CYCLE_COUNT",
        v3::Packet::ISync { cycles: Some(_), .. } => "I_SYNC_CYCLE",
        v3::Packet::ISync { .. } => "I_SYNC",
        v3::Packet::Trigger => "TRIGGER",
        v3::Packet::Branch { .. } => "BRANCH_ADDRESS",
        v3::Packet::Atoms { .. } => "P_HDR",
        v3::Packet::ContextId(_) => "CONTEXT_ID",
        v3::Packet::Vmid(_) => "VMID",
        v3::Packet::ExceptionReturn => "EXCEPTION_EXIT",
        v3::Packet::ExceptionEntry => "EXCEPTION_ENTRY",
        v3::Packet::Timestamp(_) => "TIMESTAMP",
        v3::Packet::Ignore => "IGNORE",
        v3::Packet::Data(_) => "DATA",
    }
    .to_owned()
}

/// Of a packet of ETMv4 or ETE.
pub fn etm4(packet: &Packet) -> String {
    match packet {
        Packet::Async => "I_ASYNC",
        Packet::Discard => "I_DISCARD",
        Packet::Overflow => "I_OVERFLOW",
        Packet::TraceInfo(_) => "I_TRACE_INFO",
        Packet::TraceOn => "I_TRACE_ON",
        Packet::Timestamp { .. } => "I_TIMESTAMP",
        Packet::TimestampMarker => "I_TS_MARKER",
        Packet::FunctionReturn => "I_FUNC_RET",
        Packet::Exception { .. } => "I_EXCEPT",
        Packet::Reset => "I_PE_RESET",
        Packet::TransactionFailed => "I_TRANS_FAIL",
        Packet::ExceptionReturn => "I_EXCEPT_RTN",
        Packet::TransactionStart => "I_TRANS_ST",
        Packet::TransactionCommit => "I_TRANS_COMMIT",
        Packet::Instrumentation { .. } => "I_ITE",
        Packet::Cycles { format, .. } => return format!("I_CCNT_F{format}"),
        Packet::Commit(_) => "I_COMMIT",
        Packet::Cancel { format: 1, mispredict: true, .. } => "I_CANCEL_F1_MISPRED",
        Packet::Cancel { format, .. } => return format!("I_CANCEL_F{format}"),
        Packet::Mispredict(_) => "I_MISPREDICT",
        Packet::DataSync { numbered: true, .. } => "I_NUM_DS_MKR",
        Packet::DataSync { numbered: false, .. } => "I_UNNUM_DS_MKR",
        Packet::ConditionalFlush => "I_COND_FLUSH",
        Packet::Conditional(format) => return format!("I_COND_I_F{format}"),
        Packet::ConditionalResult(format) => return format!("I_COND_RES_F{format}"),
        Packet::Ignore => "I_IGNORE",
        Packet::Event(_) => "I_EVENT",
        Packet::Context(_) => "I_CTXT",
        Packet::Address(address) => return format!("I_ADDR_{}", form(address)),
        Packet::AddressContext(address, _) => return format!("I_ADDR_CTXT_{}", form(address)),
        // The misspelling is the oracle's.
        Packet::SourceAddress(address)
            if matches!(address.form, AddressForm::Long32 | AddressForm::Long64) =>
        {
            return format!("I_SCR_ADDR_{}", form(address));
        }
        Packet::SourceAddress(address) => return format!("I_SRC_ADDR_{}", form(address)),
        Packet::Q { .. } => "I_Q",
        Packet::Atoms { format, .. } => return format!("I_ATOM_F{format}"),
    }
    .to_owned()
}

fn form(address: &Address) -> String {
    let set = u8::from(address.is1);
    match address.form {
        AddressForm::Match(_) => "MATCH".to_owned(),
        AddressForm::Short => format!("S_IS{set}"),
        AddressForm::Long32 => format!("L_32IS{set}"),
        AddressForm::Long64 => format!("L_64IS{set}"),
    }
}

/// The oracle's element in the form of [`element`]: without what follows from the rest (conditional), and without the reasons
/// of gaps, of which each decoder has its own.
pub fn oracle_element(text: &str) -> Vec<String> {
    let name = text.split('(').next().unwrap();
    // We give cycles of what is not a range or a time as an element of their own.
    let with_cycles =
        ["TRACE_ON", "PE_CONTEXT", "EXCEPTION", "ADDR_NACC"].contains(&name) && text.contains("[CC=");
    let apart = with_cycles.then(|| format!("CYCLES{}", cycles(text)));
    one_element(text).into_iter().chain(apart).collect()
}

fn one_element(text: &str) -> Option<String> {
    let (name, rest) = text.split_once('(').unwrap();
    Some(match name {
        "NO_SYNC" | "EO_TRACE" => return None,
        "TRACE_ON" => "TRACE_ON".to_owned(),
        "INSTR_RANGE" => {
            let rest =
                rest.strip_prefix("exec range=").unwrap().replace("<cond>", "").replace("b+link", "link");
            // Said only where it is a waypoint.
            let rest = rest.replace("DSB.DMB", "---");
            let rest = rest.replace("A64:", "").replace("V7:impl ", "");
            format!(
                "RANGE {}{}",
                words(rest.split('[').take(2).collect::<Vec<_>>().join("[").as_str()),
                cycles(&rest)
            )
        }
        "ADDR_NACC" => format!("NO_MEMORY {}", rest.split(';').next().unwrap().trim()),
        "PE_CONTEXT" => format!("CONTEXT {}", words(rest.split('[').next().unwrap())),
        "EXCEPTION" => {
            let address = rest
                .strip_prefix("pref ret addr:")
                .map_or("none", |rest| rest.split([';', ' ']).next().unwrap());
            let number = rest.split("excep num (").nth(1).unwrap().split(')').next().unwrap();
            format!("EXCEPTION {number} {address}")
        }
        "EXCEPTION_RET" => "EXCEPTION_RET".to_owned(),
        "TIMESTAMP" => format!("TIMESTAMP {}{}", number_of(rest, "TS="), cycles(rest)),
        "CYCLE_COUNT" => format!("CYCLES{}", cycles(rest)),
        "EVENT" if rest.contains("Trigger") => "TRIGGER".to_owned(),
        "EVENT" => format!("EVENT {}", rest.split("Numbered:").nth(1).unwrap().split(';').next().unwrap()),
        "INSTRUMENTATION" => {
            let (level, value) = rest.strip_prefix("EL").unwrap().split_once("; 0x").unwrap();
            format!(
                "INSTRUMENTATION {level} {:#x}",
                u64::from_str_radix(value.trim_end_matches([')', ' ']), 16).unwrap()
            )
        }
        "MEMTRANS" => format!("TRANSACTION {}", rest.trim_end_matches([')', ' '])),
        "SYNC_MARKER" => "MARKER".to_owned(),
        "I_RANGE_NOPATH" => format!("UNKNOWN_PATH {}", words(rest)),
        _ => return None,
    })
}

fn words(text: &str) -> String {
    let text = text.replace([';', ':', '[', ']', ')', '('], " ");
    text.split_whitespace()
        .filter(|word| !["num_i", "last_sz", "first", "next"].contains(word))
        .collect::<Vec<_>>()
        .join(" ")
}

fn cycles(text: &str) -> String {
    text.split("[CC=")
        .nth(1)
        .map_or(String::new(), |rest| format!(" cycles {}", rest.split(']').next().unwrap()))
}

fn number_of(text: &str, key: &str) -> String {
    let digits =
        text.split(key).nth(1).unwrap().split([']', ';']).next().unwrap().trim().trim_start_matches("0x");
    format!("{:#x}", u64::from_str_radix(digits, 16).unwrap())
}

/// Our element.
pub fn element(element: &Element) -> Option<String> {
    let cycles = |cycles: Option<u32>| cycles.map_or(String::new(), |cycles| format!(" cycles {cycles}"));
    Some(match *element {
        Element::Gap(_) => return None,
        Element::TraceOn { .. } => "TRACE_ON".to_owned(),
        Element::Range(range) => {
            let kind = kind(&range.last);
            let taken = if range.taken { "E" } else { "N" };
            let (start, end) = (range.start, range.end);
            let size = range.last.size;
            let count = range.instructions;
            let range_cycles = cycles(range.cycles);
            format!(
                "RANGE {start:#x} {end:#x} {count} {size} ISA={:?} {taken} {kind}{range_cycles}",
                range.isa
            )
        }
        Element::UnknownPath { start, end, instructions } => {
            let start = start.map_or_else(|| "?".to_owned(), |start| format!("{start:#x}"));
            format!("UNKNOWN_PATH {start} {end:#x} {}", instructions.unwrap_or(0))
        }
        Element::NoMemory { address } => format!("NO_MEMORY {address:#x}"),
        Element::Context(context) => context_text(&context),
        Element::Exception { number, return_address } => {
            let address = return_address.map_or("none".to_owned(), |address| format!("{address:#x}"));
            format!("EXCEPTION {number:#04x} {address}")
        }
        Element::ExceptionReturn => "EXCEPTION_RET".to_owned(),
        Element::Timestamp { value, cycles: count } => format!("TIMESTAMP {value:#x}{}", cycles(count)),
        Element::Cycles(count) => format!("CYCLES cycles {}", count.unwrap_or(0)),
        Element::Event(number) => format!("EVENT {number}"),
        Element::Trigger => "TRIGGER".to_owned(),
        Element::Instrumentation { level, value } => format!("INSTRUMENTATION {level} {value:#x}"),
        Element::Transaction(transaction) => format!("TRANSACTION {transaction:?}"),
        Element::TimestampMarker => "MARKER".to_owned(),
    })
}

fn kind(last: &Instruction) -> String {
    let kind = match last.kind {
        Kind::Direct => "BR",
        Kind::Indirect => "iBR",
        Kind::Barrier => "ISB",
        Kind::Wait => "WFI.WFE",
        Kind::TransactionStart => "TSTART",
        Kind::Other | Kind::DataBarrier => "---",
    };
    let how = match (last.is_return, last.is_exception_return, last.link) {
        (true, ..) => " ret",
        (_, true, _) => " eret",
        (.., true) => " link",
        _ => "",
    };
    format!("{kind}{how}")
}

fn context_text(context: &Context) -> String {
    let mut text = format!("CONTEXT ISA={:?} ", context.isa);
    let world = match (context.nse, context.non_secure) {
        (false, false) => "S",
        (false, true) => "N",
        (true, true) => "Realm",
        (true, false) => "Root",
    };
    match context.level {
        Some(level) => text += &format!("EL{level}{world}"),
        None => text += world,
    }
    text += if context.is_64_bit { " 64-bit" } else { " 32-bit" };
    if let Some(vmid) = context.vmid {
        text += &format!(" VMID={vmid:#x}");
    }
    if let Some(id) = context.context_id {
        text += &format!(" CTXTID={id:#x}");
    }
    text
}
