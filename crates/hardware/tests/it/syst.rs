// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of SyS-T: the given ones against MIPI's printer, and some of our own encoder.

use rtscope_hardware::decode::{Settings, Unit};
use rtscope_hardware::stp::{self, Framing, Messages, Width};
use rtscope_hardware::syst::{
    Body, Checksum, Collateral, CollateralError, Encoder, FormatError, Location, Message, Origin, Severity,
    TEXT_BYTES_MAX, TextError,
};

use super::one_trace::lines;
use super::stm_captures;

/// A line of comma-separated values, with quotes.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cells.last_mut().unwrap().push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            char => cells.last_mut().unwrap().push(char),
        }
    }
    cells
}

/// The messages of MIPI's example, as STP and as bytes: lines `0 <D32TS>  02801c00` and `SYS-T RAW DATA: 001C…`.
fn messages(text: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut all, mut encoder) = (Vec::new(), stp::Encoder::new());
    encoder.sync();
    for line in text.lines() {
        if let Some(raw) = line.strip_prefix("SYS-T RAW DATA: ") {
            let raw = (0..raw.len() / 2)
                .map(|at| u8::from_str_radix(&raw[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            let stream = std::mem::replace(&mut encoder, stp::Encoder::new()).finish();
            encoder.sync();
            all.push((raw, stream));
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let kind =
            words.get(1).and_then(|kind| kind.strip_prefix('<')).and_then(|kind| kind.strip_suffix('>'));
        let value = words.get(2).and_then(|value| u64::from_str_radix(value, 16).ok()).unwrap_or(0);
        let ticks = kind.is_some_and(|kind| kind.ends_with("TS")).then_some(all.len() as u64 * 1000);
        match kind.map(|kind| kind.trim_end_matches("TS")) {
            Some("D32M") => encoder.marked(Width::D32, value, ticks),
            Some("D64M") => encoder.marked(Width::D64, value, ticks),
            Some("FLAG") => encoder.flag(None),
            Some("D8") => encoder.data(Width::D8, value, ticks),
            Some("D16") => encoder.data(Width::D16, value, ticks),
            Some("D32") => encoder.data(Width::D32, value, ticks),
            Some("D64") => encoder.data(Width::D64, value, ticks),
            _ => continue,
        };
    }
    all
}

#[test]
fn each_message_of_mipis_example_has_the_printers_text() {
    let Some(input) = stm_captures::read("sys-t/input_client64.txt") else { return };
    let Some(collateral_xml) = stm_captures::read("sys-t/collateral.xml") else { return };
    let Some(output) = stm_captures::read("sys-t/output_client64.txt") else { return };
    let mut collateral = Collateral::default();
    collateral.add(std::str::from_utf8(&collateral_xml).unwrap()).unwrap();
    let messages = messages(std::str::from_utf8(&input).unwrap());
    let output = String::from_utf8(output).unwrap();
    let mut same = 0;
    for ((raw, stream), line) in messages.iter().zip(output.lines().skip(1)) {
        let expected = cells(line);
        assert_eq!(&bytes_of_stp(stream), raw, "the message as STP");
        let message = Message::parse(raw).unwrap();
        let text = collateral.text(&message);
        assert_eq!(text.error, None, "{text:?}");
        let ours = [
            text.text.replace('\n', " "),
            text.kind,
            message.severity.name().to_string(),
            text.origin,
            message.unit.to_string(),
            text.location,
            raw.len().to_string(),
        ];
        assert_eq!(ours.each_ref(), [1, 2, 3, 4, 5, 8, 9].map(|cell| &expected[cell]), "{line}");
        assert_eq!(message.checksum == Checksum::Right, !expected[10].is_empty(), "{line}");
        same += 1;
    }
    assert_eq!(messages.len(), output.lines().count() - 1);
    assert_are_events(&messages, &output, &collateral);
    let bytes: usize = messages.iter().map(|(raw, _)| raw.len()).sum();
    stm_captures::row(
        "sys-t/input_client64.txt",
        "SyS-T",
        "MIPI's printer",
        same,
        messages.len(),
        bytes as u64,
        0,
    );
}

/// A trace has the printer's texts, too.
fn assert_are_events(messages: &[(Vec<u8>, Vec<u8>)], output: &str, collateral: &Collateral) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stm.bin");
    let stream: Vec<u8> = messages.iter().flat_map(|(_, stream)| stream).copied().collect();
    std::fs::write(&file, stream).unwrap();
    let sys_t = Some(std::sync::Arc::new(collateral.clone()));
    let clock_hz = Some(1_000_000_000);
    let (events, lost) =
        lines(&file, &Settings { unit: Some(Unit::Stp), sys_t, clock_hz, ..Settings::default() });
    assert_eq!((events.len(), lost.len()), (messages.len(), 0));
    for ((_, event), line) in events.iter().zip(output.lines().skip(1)) {
        let cell = cells(line);
        let [text, kind, severity, origin, unit, place] = [1, 2, 3, 4, 5, 8].map(|place| &cell[place]);
        // Short ones say neither; the printer has zeros.
        let (severity, unit) =
            if kind.starts_with("SHORT") { ("", "") } else { (severity.as_str(), unit.as_str()) };
        let said = format!(
            "text={} severity={severity} kind={kind} origin={origin} unit={unit} location={place} ",
            text.trim_end()
        );
        assert!(event.replace('\n', " ").contains(&said) && event.ends_with("fault="), "{event}: {said}");
    }
}

fn bytes_of_stp(stream: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sink =
        Messages::new(Framing::FlagEnds, |message: &stp::Message<'_>| bytes.extend_from_slice(message.bytes));
    let mut decoder = stp::Decoder::new();
    decoder.push(stream, &mut sink);
    decoder.finish(&mut sink);
    assert_eq!(sink.finish().messages(), 0);
    bytes
}

const GUID: [u8; 16] = *b"rtscope's client";

const CATALOG: &str = r#"<Collateral><Client Name="motor">
    <Guids><Guid ID="{72747363-6f70-6527-7320-636c69656e74}"/></Guids>
    <SourceFiles><File ID="3">motor.c</File></SourceFiles>
    <Catalog32><Format ID="0x10" File="3" Line="7">speed %d, %s, %5.1f|%-6x|%06d|%+d|%#o|%c|%p|%lld</Format></Catalog32>
    </Client></Collateral>"#;

fn encoder() -> Encoder {
    let location = Some(Location::Line { file: 3, line: 9 });
    Encoder {
        origin: Origin::Guid(GUID),
        unit: 5,
        location,
        ticks: Some(77),
        has_length: true,
        has_checksum: true,
    }
}

fn arguments() -> Vec<u8> {
    let mut payload = 0x10_u32.to_le_bytes().to_vec();
    payload.extend_from_slice(&(-5_i32).to_le_bytes());
    payload.extend_from_slice(b"forwards\0");
    payload.extend_from_slice(&2.25_f64.to_le_bytes());
    for value in [0xbeef_u32, 42, 7, 8, u32::from(b'x')] {
        payload.extend_from_slice(&value.to_le_bytes());
    }
    payload.extend_from_slice(&0xdead_0000_u64.to_le_bytes());
    payload.extend_from_slice(&(-1_i64).to_le_bytes());
    payload
}

#[test]
fn a_message_with_everything_that_a_header_can_have_is_read() {
    let mut collateral = Collateral::default();
    collateral.add(CATALOG).unwrap();
    let bytes = encoder().message(3, 5, Severity::Warning, &arguments());
    let message = Message::parse(&bytes).unwrap();
    assert_eq!((message.unit, message.ticks, message.checksum), (5, Some(77), Checksum::Right));
    assert_eq!(message.severity, Severity::Warning);
    let text = collateral.text(&message);
    // As printf(3) of the C library writes it.
    assert_eq!(text.text, "speed -5, forwards,   2.2|beef  |000042|+7|010|x|0xdead0000|-1");
    assert_eq!((text.origin.as_str(), text.location.as_str(), text.error), ("motor", "motor.c:9", None));
}

#[test]
fn a_byte_that_changed_makes_the_checksum_wrong() {
    let bytes = encoder().message(2, 1, Severity::Info, b"a text\0");
    for index in 4..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 0x10;
        if let Ok(message) = Message::parse(&damaged) {
            assert_eq!(message.checksum, Checksum::Wrong, "byte {index}");
        }
    }
}

#[test]
fn formats_that_ask_for_too_much_are_refused() {
    let collateral = Collateral::default();
    let printf = |format: &str, arguments: &[u8]| {
        let payload = [format.as_bytes(), b"\0", arguments].concat();
        let bytes = encoder().message(2, 12, Severity::Info, &payload);
        let message = Message::parse(&bytes).unwrap();
        assert!(matches!(message.body, Body::Printf { .. }));
        let text = collateral.text(&message);
        (text.text, text.error)
    };
    let error = |reason| Some(TextError::Format(reason));
    assert_eq!(
        printf("ok %d, %d", &[1, 0, 0, 0]),
        ("ok 1, ".to_string(), error(FormatError::MissingArgument))
    );
    assert_eq!(printf("%999999999999999999999d", &[1, 0, 0, 0]).1, error(FormatError::TooLong));
    assert_eq!(printf("%*d", &[0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0]).1, error(FormatError::TooLong));
    assert_eq!(printf("%4097d", &[1, 0, 0, 0]).1, error(FormatError::TooLong));
    assert_eq!(printf("%4096d", &[1, 0, 0, 0]).0.len(), 4096);
    assert_eq!(printf("%n", &[0; 8]).1, error(FormatError::Conversion));
    assert_eq!(printf("50 %", &[]).1, error(FormatError::Conversion));
    let long = "%4000d".repeat(100);
    assert_eq!(printf(&long, &[0; 400]).1, error(FormatError::TooLong));
}

#[test]
fn floats_are_written_as_c_writes_them() {
    let collateral = Collateral::default();
    // Right-hand sides by printf(1) of coreutils and glibc's printf(3).
    let all = [
        ("%g", 100_000.0, "100000"),
        ("%g", 1e6, "1e+06"),
        ("%g", 0.0001, "0.0001"),
        ("%g", 0.00001, "1e-05"),
        ("%.3g", 1234.5, "1.23e+03"),
        ("%g", 0.0, "0"),
        ("%G", 1e-10, "1E-10"),
        ("%e", 0.0, "0.000000e+00"),
        ("%08.3f", -4.56789, "-004.568"),
        ("%+.0f", 2.5, "+2"),
        ("%6f", f64::INFINITY, "   inf"),
        ("%f", f64::NAN, "nan"),
    ];
    for (format, value, expected) in all {
        let payload = [format.as_bytes(), b"\0", &value.to_le_bytes()].concat();
        let bytes = encoder().message(2, 12, Severity::Info, &payload);
        assert_eq!(collateral.text(&Message::parse(&bytes).unwrap()).text, expected, "{format} {value}");
    }
}

#[test]
fn catalogues_of_several_senders_are_asked_for_what_each_has() {
    let client = |of: &str, id: u8, text: &str| {
        format!("<Client Name='{text}'>{of}<Catalog32><Format ID='{id}'>{text}</Format></Catalog32></Client>")
    };
    let mut collateral = Collateral::default();
    let guid = "<Guids><Guid ID='{72747363-6f70-6527-7320-636c69656e74}'/></Guids>";
    for (of, id, text) in [
        (guid, 1, "one"),
        (guid, 2, "two"),
        ("", 3, "three"),
        ("", 4, "four"),
        ("<Modules><Module ID='9'/></Modules>", 5, "five"),
    ] {
        collateral.add(&client(of, id, text)).unwrap();
    }
    let said = |origin: Origin, id: u32| {
        let encoder = Encoder { origin, location: None, ticks: None, has_length: true, ..encoder() };
        let bytes = encoder.message(3, 1, Severity::Info, &id.to_le_bytes());
        let text = collateral.text(&Message::parse(&bytes).unwrap());
        text.error.is_none().then_some(text.text)
    };
    let of = |origin: Origin| (1..=5).map(|id| said(origin, id).unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(of(Origin::Guid(GUID)), ["one", "two", "", "", ""]);
    assert_eq!(of(Origin::Module(9)), ["", "", "", "", "five"]);
    // Nobody says that it is his: whoever says nothing of himself may be asked, and no other.
    assert_eq!(of(Origin::Module(4)), ["", "", "three", "four", ""]);
    assert_eq!(of(Origin::Guid([7; 16])), ["", "", "", "", ""]);
}

#[test]
fn catalogues_that_are_none_or_ask_for_too_much_are_refused() {
    let nested = |levels: usize| format!("{}<Client/>{}", "<a>".repeat(levels), "</a>".repeat(levels));
    let mut collateral = Collateral::default();
    assert_eq!(collateral.add(&nested(63)), Ok(()));
    assert_eq!(collateral.add(&nested(64)), Err(CollateralError::TooDeep));
    assert_eq!(collateral.add(&nested(100_000)), Err(CollateralError::TooDeep));
    assert_eq!(collateral.add("<html/>"), Err(CollateralError::NoClient));
    // What only looks like elements.
    let text = "<a><!-- <a> --><?a <a> ?><![CDATA[<a>]]></a>".repeat(2);
    let client =
        format!("<b>{}<Client x='<' y=\"'/>\"/></b>", "<a><!-- <a> --><![CDATA[ <a> ]]></a>".repeat(100));
    assert!(collateral.add(&client.replace("x='<' ", "")).is_ok());
    assert!(matches!(collateral.add(&text), Err(CollateralError::Xml(_))));
    // A text has an end, whatever the format.
    let long = "x".repeat(10 * TEXT_BYTES_MAX);
    let mut collateral = Collateral::default();
    collateral
        .add(&format!("<Client><Short32><Format ID='0x1' Mask='0xff'>{long}</Format></Short32></Client>"))
        .unwrap();
    let bytes = 0x11_u32.to_le_bytes();
    let text = collateral.text(&Message::parse(&bytes).unwrap());
    assert_eq!(text.text.len(), TEXT_BYTES_MAX);
    assert_eq!(text.error, Some(TextError::Format(FormatError::TooLong)));
}
