// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OpenCSD's words for what our decoders found.

use rtscope_hardware::etm::Fault;
use rtscope_hardware::etm::v4::{Address, AddressForm, Packet};

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

/// The oracle's element, without words.
pub fn oracle_element(_text: &str) -> Option<String> {
    None
}
