// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of device interrupts, from `/sys/kernel/irq` (Linux 4.9, `CONFIG_SPARSE_IRQ`) or else `/proc/interrupts`.

use rtscope_event::Irq;
use std::fs;

/// Every interrupt that has a handler, with the names of its handlers (`a,b` when it is shared).
#[must_use]
pub fn interrupts() -> Vec<(Irq, String)> {
    let mut found: Vec<(Irq, String)> = fs::read_dir("/sys/kernel/irq")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let irq = entry.file_name().to_str()?.parse().ok()?;
            let names = fs::read_to_string(entry.path().join("actions")).ok()?;
            (!names.trim().is_empty()).then(|| (Irq(irq), names.trim().to_string()))
        })
        .collect();
    if found.is_empty() {
        found =
            fs::read_to_string("/proc/interrupts").map(|text| parse_interrupts(&text)).unwrap_or_default();
    }
    found.sort();
    found
}

/// `  36:   0   42235 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0` → 36, `virtio1-req.0`.
fn parse_interrupts(text: &str) -> Vec<(Irq, String)> {
    text.lines()
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let irq = number.trim().parse().ok()?;
            let name = rest.split("  ").map(str::trim).filter(|part| !part.is_empty()).last()?;
            Some((Irq(irq), name.to_string()))
        })
        .collect()
}

/// The interrupt meant by a number or by a handler's name.
///
/// # Errors
/// A sentence that lists what there is.
pub fn irq_number(text: &str) -> Result<Irq, String> {
    let known = interrupts();
    let by_number = text.parse().ok().map(Irq).filter(|irq| known.iter().any(|(k, _)| k == irq));
    let by_name =
        || known.iter().find(|(_, names)| names.split(',').any(|name| name == text)).map(|(irq, _)| *irq);
    by_number.or_else(by_name).ok_or_else(|| {
        let list: Vec<String> = known.iter().map(|(irq, name)| format!("{irq} {name}")).collect();
        format!("no interrupt '{text}' on this machine; there are: {}", list.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_read_from_proc() {
        let text = "           CPU0       CPU1       \n  24:          1          0  IO-APIC   5-edge      ACPI:Ged\n \
                    36:          0      42235 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\nLOC:  1 2   Local timer interrupts\n";
        let expected = vec![(Irq(24), "ACPI:Ged".to_string()), (Irq(36), "virtio1-req.0".to_string())];
        assert_eq!(parse_interrupts(text), expected);
    }
}
