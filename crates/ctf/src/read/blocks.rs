// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TSDL → class model: the blocks `trace`, `env`, `clock`, `stream` and `event`.

use super::class::{
    ByteOrder, ClockClass, EnvValue, EventClass, FieldClass, StreamClass, StructClass, TraceClass, shown_name,
};
use super::lexer::{Fault, Lexer, Token};
use super::parser::{ParseResult, Parser};
use super::resolve;
use rtscope_event::exact;
use std::collections::{BTreeMap, HashMap};
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
            "typedef" => parser.typedef()?,
            "trace" => trace_block(&mut parser, &mut trace)?,
            "env" => env_block(&mut parser, &mut trace.env)?,
            "clock" => trace.clocks.push(clock_block(&mut parser)?),
            "stream" => trace.streams.push(stream_block(&mut parser)?),
            "event" => trace.events.push(event_block(&mut parser)?),
            "callsite" => drop(block(&mut parser)?),
            "struct" | "enum" | "variant" => {
                parser.field_class_from(word)?;
            }
            other => return parser.fault(format!("`{other}` is not a declaration of CTF 1.8")),
        }
    }
    if trace.streams.is_empty() {
        // All of a stream's parts may be left out, and so may the stream.
        trace.streams.push(StreamClass::default());
    }
    check_streams(&mut parser, &trace)?;
    match resolve::resolve(&mut trace, &mut |classes| parser.copied(classes).is_ok()) {
        Ok(()) => Ok(trace),
        Err(what) => parser.fault(what),
    }
}

/// Each stream has its own id. Readers walk the fields of a stream for each event class of it, as if they were written there.
fn check_streams(parser: &mut Parser<'_>, trace: &TraceClass) -> ParseResult<()> {
    let mut fields = HashMap::new();
    for stream in &trace.streams {
        let context = stream.event_context.iter().flat_map(|class| &class.fields);
        if fields.insert(stream.id, context.map(|(_, field)| field.nodes()).sum::<usize>()).is_some() {
            return parser.fault(format!("two streams have the id {}", stream.id));
        }
    }
    for event in &trace.events {
        parser.copied(fields.get(&event.stream_id).copied().unwrap_or(0))?;
    }
    Ok(())
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

/// The assignments of a block: values as text, types by their path.
#[derive(Default)]
struct Block {
    values: BTreeMap<String, EnvValue>,
    types: BTreeMap<String, StructClass>,
}

impl Block {
    /// A number; one that is too large for `i64` is stored as its bits.
    fn signed(&self, key: &str) -> Option<i64> {
        match self.values.get(key)? {
            EnvValue::Number(number) => Some(*number),
            EnvValue::Text(_) => None,
        }
    }

    fn number(&self, key: &str) -> u64 {
        exact::bits(self.signed(key).unwrap_or(0))
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            EnvValue::Text(text) => Some(text),
            EnvValue::Number(_) => None,
        }
    }

    fn uuid(&self) -> Option<Uuid> {
        Uuid::parse_str(self.text("uuid")?).ok()
    }

    fn structure(&mut self, key: &str) -> Option<StructClass> {
        self.types.remove(key)
    }
}

/// `{ KEY = VALUE ; KEY := TYPE ; ... }`
fn block(parser: &mut Parser<'_>) -> ParseResult<Block> {
    let mut block = Block::default();
    parser.expect("{")?;
    let mark = parser.enter();
    while !parser.accept("}")? {
        let key = match parser.next()? {
            Token::Word("typealias") => {
                parser.typealias()?;
                continue;
            }
            Token::Word("typedef") => {
                parser.typedef()?;
                continue;
            }
            Token::Word(word @ ("struct" | "enum" | "variant")) => {
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
    parser.leave(mark);
    Ok(block)
}

fn dotted(parser: &mut Parser<'_>, first: &str) -> ParseResult<String> {
    let mut path = first.to_owned();
    while parser.accept(".")? {
        path.push('.');
        path.push_str(parser.word()?);
    }
    Ok(path)
}

fn value(parser: &mut Parser<'_>) -> ParseResult<EnvValue> {
    match parser.next_inside("a block")? {
        Token::Text(text) => Ok(EnvValue::Text(text.into_owned())),
        Token::Number(number) => Ok(EnvValue::Number(number as i64)),
        Token::Sign("+") => Ok(EnvValue::Number(parser.number()? as i64)),
        Token::Sign("-") => Ok(EnvValue::Number((parser.number()? as i64).wrapping_neg())),
        Token::Word(word) => {
            let mut text = dotted(parser, word)?;
            // Such as the UUID of a clock without its quotes.
            while matches!(parser.peek()?, Token::Word(_)) {
                text.push(' ');
                text.push_str(parser.word()?);
            }
            Ok(EnvValue::Text(text))
        }
        other => parser.fault(format!("expected a value, found {}", other.shown())),
    }
}

fn trace_block(parser: &mut Parser<'_>, trace: &mut TraceClass) -> ParseResult<()> {
    let mut block = block(parser)?;
    trace.uuid = block.uuid();
    trace.packet_header = block.structure("packet.header");
    Ok(())
}

fn env_block(parser: &mut Parser<'_>, env: &mut BTreeMap<String, EnvValue>) -> ParseResult<()> {
    env.append(&mut block(parser)?.values);
    Ok(())
}

fn clock_block(parser: &mut Parser<'_>) -> ParseResult<ClockClass> {
    let block = block(parser)?;
    let frequency = if block.values.contains_key("freq") { block.number("freq") } else { 1_000_000_000 };
    if frequency == 0 {
        return parser.fault("a clock of frequency 0");
    }
    let truth = |key: &str| match block.values.get(key) {
        Some(EnvValue::Number(number)) => *number != 0,
        Some(EnvValue::Text(text)) => text.eq_ignore_ascii_case("true"),
        None => false,
    };
    Ok(ClockClass {
        name: block.text("name").unwrap_or_default().to_owned(),
        uuid: block.uuid(),
        description: block.text("description").unwrap_or_default().to_owned(),
        frequency,
        offset_s: block.signed("offset_s").unwrap_or(0),
        offset_cycles: block.number("offset"),
        absolute: truth("absolute"),
    })
}

fn stream_block(parser: &mut Parser<'_>) -> ParseResult<StreamClass> {
    let mut block = block(parser)?;
    let mut packet_context = block.structure("packet.context");
    for (name, field) in packet_context.iter_mut().flat_map(|class| &mut class.fields) {
        // A packet's end is stored at its beginning, so it must not move the clock.
        if let (FieldClass::Integer(integer), "timestamp_end") = (field, shown_name(name)) {
            integer.clock = None;
        }
    }
    Ok(StreamClass {
        id: block.number("id"),
        packet_context,
        event_header: block.structure("event.header"),
        event_context: block.structure("event.context"),
        clock: None,
    })
}

fn event_block(parser: &mut Parser<'_>) -> ParseResult<EventClass> {
    let mut block = block(parser)?;
    Ok(EventClass {
        id: block.number("id"),
        stream_id: block.number("stream_id"),
        context: block.structure("context"),
        fields: block.structure("fields"),
        loglevel: block.signed("loglevel"),
        name: block.values.remove("name").map(|name| name.to_string()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::class::{Base, NO_SLOT};
    use super::*;

    const HEADER: &str = "clock { name = c; }; typealias integer { size = 8; } := u8; typealias integer { size = 32; align = 8; } := unsigned int;";

    fn fields(body: &str) -> Result<StructClass, Fault> {
        let text = format!("{HEADER} event {{ name = \"e\"; id = 3; fields := struct {{ {body} }}; }};");
        parse(&text).map(|mut trace| trace.events.remove(0).fields.unwrap())
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
        let FieldClass::Array { length: 4, element } = &class.fields[3].1 else { panic!() };
        assert!(matches!(**element, FieldClass::Array { length: 2, .. }));
        let FieldClass::Integer(n) = &class.fields[4].1 else { panic!() };
        let FieldClass::Sequence { length, .. } = &class.fields[5].1 else { panic!() };
        assert!(n.slot != NO_SLOT && n.slot == length.slot);
        let FieldClass::Integer(h) = &class.fields[8].1 else { panic!() };
        let firsts: Vec<i128> = h.mappings.as_ref().unwrap().all.iter().map(|m| m.first).collect();
        assert_eq!(firsts, [0, 5, 10]);
        let FieldClass::Variant(variant) = &class.fields[9].1 else { panic!() };
        let choices: Vec<_> = variant.choices.iter().map(|c| (c.first, c.last, c.option)).collect();
        assert_eq!(choices, [(0, 0, 0), (10, 10, 1)]);
        assert_eq!(variant.tag.as_ref().unwrap().slot, h.slot);
        let FieldClass::Integer(k) = &class.fields[11].1 else { panic!() };
        assert!(k.signed && k.clock.as_deref() == Some("c") && k.align == 1 && k.base == Base::Hexadecimal);
    }

    #[test]
    fn references_may_name_their_scope() {
        let text = format!(
            "{HEADER} trace {{ packet.header := struct {{ u8 n; }}; }};
            stream {{ id = 1; packet.context := struct {{ u8 m; }};
                event.header := struct {{ enum : u8 {{ a, b }} id; }}; event.context := struct {{ u8 c; }}; }};
            event {{ id = 0; stream_id = 1; context := struct {{ u8 s; }};
                fields := struct {{ u8 q[trace.packet.header.n]; u8 r[stream.packet.context.m];
                    variant <stream.event.header.id> {{ u8 a; string b; }} v;
                    struct {{ u8 x; }} t; u8 u[event.fields.t.x]; u8 w[event.context.s]; u8 y[stream.event.context.c]; }}; }};"
        );
        let trace = parse(&text).unwrap();
        assert_eq!(trace.slots, 6);
    }

    #[test]
    fn the_native_order_is_known_before_its_block() {
        let text = format!(
            "{HEADER} struct s {{ u8 a; }}; trace {{ byte_order = be; }}; event {{ fields := struct s; }};"
        );
        let trace = parse(&text).unwrap();
        let FieldClass::Integer(a) = &trace.events[0].fields.as_ref().unwrap().fields[0].1 else { panic!() };
        assert_eq!(a.order, ByteOrder::Big);
    }

    #[test]
    fn hostile_types_are_refused() {
        for (body, word) in [
            ("u8 a[b];", "`b` is not an integer"),
            ("integer { size = 65; } a;", "65 bits"),
            ("integer { size = 8; align = 3; } a;", "alignment of 3"),
            ("nothing a;", "not a known type"),
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
        assert_eq!(trace.env["a"], EnvValue::Text("b".to_owned()));
        assert_eq!((&trace.env["c"], &trace.env["d"]), (&EnvValue::Number(2), &EnvValue::Number(-3)));
        let clock = &trace.clocks[0];
        assert_eq!((clock.frequency, clock.offset_cycles, clock.offset_s), (1000, 7, 1));
        assert_eq!(clock.ns(3), 1_010_000_000);
        assert!(parse("clock { freq = 0; };").is_err());
    }
}
