// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TSDL → class model: the blocks `trace`, `env`, `clock`, `stream` and `event`.

use super::class::{ByteOrder, ClockClass, EventClass, FieldClass, StreamClass, StructClass, TraceClass};
use super::lexer::{Fault, Lexer, Token};
use super::parser::{Parsed, Parser};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Parses the text of a metadata file.
pub(crate) fn parse(text: &str) -> Result<TraceClass, Fault> {
    let mut parser = Parser::new(text, native_order(text)?);
    let mut trace = TraceClass::default();
    loop {
        let word = match parser.next()? {
            Token::End => break,
            Token::Sign(";") => continue,
            Token::Word(word) => word,
            other => return parser.fault(format!("expected a declaration, found {}", other.shown())),
        };
        match word {
            "typealias" => parser.typealias()?,
            "trace" => trace_block(&mut parser, &mut trace)?,
            "env" => env_block(&mut parser, &mut trace.env)?,
            "clock" => trace.clock = clock_block(&mut parser)?,
            "stream" => trace.streams.push(stream_block(&mut parser)?),
            "event" => trace.events.push(event_block(&mut parser)?),
            "callsite" => drop(block(&mut parser)?),
            "struct" | "enum" | "variant" => {
                parser.field_class_from(word)?;
            }
            other => return parser.fault(format!("`{other}` is no declaration of CTF 1.8")),
        }
    }
    trace.slots = parser.slots;
    Ok(trace)
}

/// The trace block's byte order. Types declared before that block need it already.
fn native_order(text: &str) -> Result<ByteOrder, Fault> {
    let mut lexer = Lexer::new(text);
    let mut in_trace = false;
    let mut before = [Token::End, Token::End];
    loop {
        let token = lexer.next()?;
        match (&before, &token) {
            (_, Token::End) => return Ok(ByteOrder::Little),
            ([_, Token::Word("trace")], Token::Sign("{")) => in_trace = true,
            ([Token::Word("byte_order"), Token::Sign("=")], Token::Word(order)) if in_trace => {
                return match *order {
                    "le" => Ok(ByteOrder::Little),
                    "be" | "network" => Ok(ByteOrder::Big),
                    other => Err(lexer.fault(format!("unknown byte order `{other}` of the trace"))),
                };
            }
            _ => {}
        }
        let [_, last] = before;
        before = [last, token];
    }
}

/// What a block assigns: values as text, types by their path.
#[derive(Default)]
struct Block {
    values: BTreeMap<String, String>,
    types: BTreeMap<String, StructClass>,
}

impl Block {
    fn number(&self, key: &str) -> u64 {
        self.values.get(key).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn uuid(&self) -> Option<Uuid> {
        Uuid::parse_str(self.values.get("uuid")?).ok()
    }

    fn structure(&mut self, key: &str) -> StructClass {
        self.types.remove(key).unwrap_or_default()
    }
}

/// `{ KEY = VALUE ; KEY := TYPE ; ... }`
fn block(parser: &mut Parser<'_>) -> Parsed<Block> {
    let mut block = Block::default();
    parser.expect("{")?;
    while !parser.accept("}")? {
        let key = match parser.next()? {
            Token::Word("typealias") => {
                parser.typealias()?;
                continue;
            }
            Token::Word(word @ ("struct" | "enum")) => {
                parser.field_class_from(word)?;
                parser.expect(";")?;
                continue;
            }
            Token::Word(word) => dotted(parser, word)?,
            other => return parser.fault(format!("expected a name, found {}", other.shown())),
        };
        if parser.accept(":=")? {
            match parser.field_class()? {
                FieldClass::Struct(class) => block.types.insert(key, class),
                _ => return parser.fault(format!("`{key}` must be a struct")),
            };
        } else {
            parser.expect("=")?;
            let value = value(parser)?;
            block.values.insert(key, value);
        }
        parser.expect(";")?;
    }
    Ok(block)
}

fn dotted(parser: &mut Parser<'_>, first: &str) -> Parsed<String> {
    let mut path = first.to_owned();
    while parser.accept(".")? {
        path.push('.');
        path.push_str(parser.word()?);
    }
    Ok(path)
}

fn value(parser: &mut Parser<'_>) -> Parsed<String> {
    match parser.next_inside("a block")? {
        Token::Text(text) => Ok(text.into_owned()),
        Token::Number(number) => Ok(number.to_string()),
        Token::Sign("-") => Ok(format!("-{}", parser.number()?)),
        Token::Word(word) => dotted(parser, word),
        other => parser.fault(format!("expected a value, found {}", other.shown())),
    }
}

fn trace_block(parser: &mut Parser<'_>, trace: &mut TraceClass) -> Parsed<()> {
    let mut block = block(parser)?;
    trace.uuid = block.uuid();
    trace.packet_header = block.structure("packet.header");
    Ok(())
}

fn env_block(parser: &mut Parser<'_>, env: &mut BTreeMap<String, String>) -> Parsed<()> {
    env.append(&mut block(parser)?.values);
    Ok(())
}

fn clock_block(parser: &mut Parser<'_>) -> Parsed<ClockClass> {
    let block = block(parser)?;
    let frequency = if block.values.contains_key("freq") { block.number("freq") } else { 1_000_000_000 };
    if frequency == 0 {
        return parser.fault("a clock of frequency 0");
    }
    Ok(ClockClass {
        uuid: block.uuid(),
        frequency,
        offset_seconds: block.number("offset_s"),
        offset: block.number("offset"),
    })
}

fn stream_block(parser: &mut Parser<'_>) -> Parsed<StreamClass> {
    let mut block = block(parser)?;
    let mut event_header = block.structure("event.header");
    mark_event_ids(&mut event_header);
    Ok(StreamClass {
        id: block.number("id"),
        packet_context: block.structure("packet.context"),
        event_header,
        event_context: block.structure("event.context"),
    })
}

/// Marks the header's fields named `id`. In LTTng's headers there are two, and the second, if it is there, counts.
fn mark_event_ids(header: &mut StructClass) {
    for (name, class) in &mut header.fields {
        match class {
            FieldClass::Integer(integer) if name == "id" => integer.uses.event_id = true,
            FieldClass::Struct(class) => mark_event_ids(class),
            FieldClass::Variant { choices, .. } => {
                for choice in choices {
                    if let FieldClass::Struct(class) = &mut choice.class {
                        mark_event_ids(class);
                    }
                }
            }
            _ => {}
        }
    }
}

fn event_block(parser: &mut Parser<'_>) -> Parsed<EventClass> {
    let mut block = block(parser)?;
    Ok(EventClass {
        id: block.number("id"),
        stream_id: block.number("stream_id"),
        context: block.structure("context"),
        fields: block.structure("fields"),
        name: block.values.remove("name").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "typealias integer { size = 8; } := u8; typealias integer { size = 32; align = 8; } := unsigned int;";

    fn fields(body: &str) -> Result<StructClass, Fault> {
        let text = format!("{HEADER} event {{ name = \"e\"; id = 3; fields := struct {{ {body} }}; }};");
        parse(&text).map(|mut trace| trace.events.remove(0).fields)
    }

    #[test]
    fn all_kinds_of_fields() {
        let body = "u8 _a; unsigned int b; string c; u8 d[4][2]; u8 n; u8 e[n]; struct { u8 x; } f;
            floating_point { exp_dig = 11; mant_dig = 53; align = 8; } g; enum : u8 { one, two = 5 ... 9, three } h;
            variant <h> { u8 one; string three; } i; string { encoding = ASCII; } j;
            integer { size = 3; signed = true; base = hex; map = clock.c.value; } k;";
        let class = fields(body).unwrap();
        assert_eq!(class.fields.len(), 12);
        assert_eq!(class.find("a"), Some(0));
        assert_eq!(class.fields[3].1.min_bits(), 64);
        let FieldClass::Integer(h) = &class.fields[8].1 else { panic!() };
        assert_eq!(h.mappings.iter().map(|m| m.first).collect::<Vec<_>>(), [0, 5, 10]);
        let FieldClass::Variant { choices, tag } = &class.fields[9].1 else { panic!() };
        assert_eq!((choices.len(), Some(*tag)), (2, h.uses.slot));
        let FieldClass::Integer(k) = &class.fields[11].1 else { panic!() };
        assert!(k.signed && k.uses.clock && k.align == 1);
    }

    #[test]
    fn the_native_order_is_known_before_its_block() {
        let text = format!(
            "{HEADER} struct s {{ u8 a; }}; trace {{ byte_order = be; }}; event {{ fields := struct s; }};"
        );
        let trace = parse(&text).unwrap();
        let FieldClass::Integer(a) = &trace.events[0].fields.fields[0].1 else { panic!() };
        assert_eq!(a.order, ByteOrder::Big);
    }

    #[test]
    fn hostile_types_are_refused() {
        for (body, word) in [
            ("struct { } a[4000000000];", "no space"),
            ("u8 a[b];", "`b` is no integer"),
            ("integer { size = 65; } a;", "65 bits"),
            ("integer { size = 8; align = 3; } a;", "alignment of 3"),
            ("nothing a;", "no known type"),
            ("u8 a", "expected `;`"),
            (&"u8 a; ".repeat(5000), "4096 fields"),
            (&"struct { ".repeat(1000), "nested"),
            (&format!("u8 a{};", "[1]".repeat(1000)), "dimensions"),
        ] {
            let fault = fields(body).unwrap_err();
            assert!(fault.what.contains(word), "{body:.40}: {fault:?}");
        }
    }

    #[test]
    fn doubling_structs_are_refused() {
        let mut text = String::from("struct s0 { string a; };");
        for level in 1..20 {
            text += &format!("struct s{level} {{ struct s{} a; struct s{} b; }};", level - 1, level - 1);
        }
        assert!(parse(&text).unwrap_err().what.contains("parts"));
    }

    #[test]
    fn env_and_clock() {
        let trace =
            parse("env { a = \"b\"; c = 2; d = -3; }; clock { freq = 1000; offset = 7; offset_s = 1; };")
                .unwrap();
        assert_eq!(trace.env["a"], "b");
        assert_eq!((trace.env["c"].as_str(), trace.env["d"].as_str()), ("2", "-3"));
        assert_eq!((trace.clock.frequency, trace.clock.offset, trace.clock.offset_seconds), (1000, 7, 1));
        assert!(parse("clock { freq = 0; };").is_err());
    }
}
