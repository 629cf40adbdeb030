// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TSDL → class model: the part about types. (`blocks` has the part about traces, streams and events.)
//!
//! Recursive descent with limits against hostile metadata, so that it takes memory and time in proportion to its text: nesting
//! depth, the number of classes in one field class, and the number of classes that are copies of others. Each name of a
//! type and each use of one copies it, and a few letters can name a struct of thousands of fields.

use super::class::{
    Base, ByteOrder, FieldClass, IntegerClass, Mapping, Mappings, NO_SLOT, Reference, StructClass,
    VariantClass,
};
use super::lexer::{Fault, Lexer, Token};
use std::collections::HashMap;
use std::sync::Arc;

/// LTTng nests 4 deep.
const MAX_DEPTH: u32 = 24;
/// Classes in one type. The largest system calls of LTTng have about 50.
const MAX_NODES: usize = 4096;
/// Copies in all types, for any size of the text: some 600 MB. All of a kernel's tracepoints have about 50 000.
const MAX_COPIES: usize = 4 << 20;

pub(super) struct Parser<'t> {
    lexer: Lexer<'t>,
    peeked: Option<Token<'t>>,
    pub(super) order: ByteOrder,
    aliases: HashMap<String, FieldClass>,
    /// Earlier meanings of the names that this block has redefined.
    hidden: Vec<(String, Option<FieldClass>)>,
    /// Classes that may still be copied.
    copies_left: usize,
    depth: u32,
}

pub(super) type ParseResult<T> = Result<T, Fault>;

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str, order: ByteOrder) -> Parser<'t> {
        Parser {
            lexer: Lexer::new(text),
            peeked: None,
            order,
            aliases: HashMap::new(),
            hidden: Vec::new(),
            // A class that is written down takes more than one byte of text.
            copies_left: text.len().saturating_add(MAX_NODES).min(MAX_COPIES),
            depth: 0,
        }
    }

    pub(super) fn fault<T>(&self, what: impl Into<String>) -> ParseResult<T> {
        Err(self.lexer.fault(what))
    }

    /// Counts classes that are there once more without being written down.
    pub(super) fn copied(&mut self, classes: usize) -> ParseResult<()> {
        match self.copies_left.checked_sub(classes) {
            Some(left) => self.copies_left = left,
            None => return self.fault("the types have more parts than such a text can need"),
        }
        Ok(())
    }

    /// The class of this name.
    fn known(&mut self, name: &str) -> ParseResult<Option<FieldClass>> {
        let nodes = self.aliases.get(name).map(FieldClass::nodes);
        self.copied(nodes.unwrap_or(0))?;
        Ok(self.aliases.get(name).cloned())
    }

    pub(super) fn peek(&mut self) -> ParseResult<&Token<'t>> {
        if self.peeked.is_none() {
            self.peeked = Some(self.lexer.next()?);
        }
        Ok(self.peeked.as_ref().unwrap_or(&Token::End))
    }

    pub(super) fn next(&mut self) -> ParseResult<Token<'t>> {
        match self.peeked.take() {
            Some(token) => Ok(token),
            None => self.lexer.next(),
        }
    }

    /// Takes the sign if it comes next.
    pub(super) fn accept(&mut self, sign: &str) -> ParseResult<bool> {
        let found = matches!(self.peek()?, Token::Sign(next) if *next == sign);
        if found {
            self.peeked = None;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, sign: &str) -> ParseResult<()> {
        match self.next()? {
            Token::Sign(next) if next == sign => Ok(()),
            other => self.fault(format!("expected `{sign}`, found {}", other.shown())),
        }
    }

    pub(super) fn word(&mut self) -> ParseResult<&'t str> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            other => self.fault(format!("expected a name, found {}", other.shown())),
        }
    }

    pub(super) fn number(&mut self) -> ParseResult<u64> {
        match self.next()? {
            Token::Number(number) => Ok(number),
            other => self.fault(format!("expected a number, found {}", other.shown())),
        }
    }

    /// `typealias TYPE := NAME ;`, the first word taken already.
    pub(super) fn typealias(&mut self) -> ParseResult<()> {
        let class = self.field_class()?;
        self.expect(":=")?;
        let mut name = self.word()?.to_owned();
        while !self.accept(";")? {
            name.push(' ');
            match self.next_inside("a typealias")? {
                Token::Word(word) | Token::Sign(word) => name.push_str(word),
                other => return self.fault(format!("expected a name, found {}", other.shown())),
            }
        }
        self.name_class(name, class);
        Ok(())
    }

    /// `typedef TYPE NAME, NAME[4] ;`, the first word taken already.
    pub(super) fn typedef(&mut self) -> ParseResult<()> {
        let class = self.field_class()?;
        let mut classes = 0;
        loop {
            let name = self.word()?.to_owned();
            self.copied(classes)?;
            classes = class.nodes();
            let class = self.dimensions(class.clone())?;
            self.name_class(name, class);
            if self.accept(";")? {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    fn name_class(&mut self, name: String, class: FieldClass) {
        let before = self.aliases.insert(name.clone(), class);
        self.hidden.push((name, before));
    }

    /// Begins a scope for type names; ends with [`Self::leave`].
    pub(super) fn enter(&self) -> usize {
        self.hidden.len()
    }

    /// Drops the type names since `mark`.
    pub(super) fn leave(&mut self, mark: usize) {
        while self.hidden.len() > mark {
            match self.hidden.pop() {
                Some((name, Some(class))) => drop(self.aliases.insert(name, class)),
                Some((name, None)) => drop(self.aliases.remove(&name)),
                None => return,
            }
        }
    }

    /// A type.
    pub(super) fn field_class(&mut self) -> ParseResult<FieldClass> {
        let word = self.word()?;
        self.field_class_from(word)
    }

    pub(super) fn field_class_from(&mut self, word: &'t str) -> ParseResult<FieldClass> {
        if self.depth >= MAX_DEPTH {
            return self.fault(format!("types are nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let class = match word {
            "integer" => self.integer().map(FieldClass::Integer),
            "floating_point" => self.float(),
            "string" => self.string(),
            "struct" => self.structure(),
            "variant" => self.variant(),
            "enum" => self.enumeration(),
            name => self.named(name),
        }?;
        self.depth -= 1;
        if class.nodes() > MAX_NODES {
            return self.fault(format!("a type has more than {MAX_NODES} parts"));
        }
        Ok(class)
    }

    /// The alias that these words name. Names may have several words (`unsigned long`); the last word before a sign is
    /// the field's name then, which the caller wants, so only known aliases are taken here.
    fn named(&mut self, first: &str) -> ParseResult<FieldClass> {
        if let Some(class) = self.known(first)? {
            return Ok(class);
        }
        let mut name = first.to_owned();
        while let Token::Word(word) = *self.peek()? {
            if name.len() > 256 {
                break;
            }
            self.peeked = None;
            name.push(' ');
            name.push_str(word);
            if let Some(class) = self.known(&name)? {
                return Ok(class);
            }
        }
        self.fault(format!("`{name}` is not a known type"))
    }

    fn integer(&mut self) -> ParseResult<IntegerClass> {
        let (mut bits, mut align) = (None, None);
        let (mut signed, mut text, mut clock) = (false, false, None);
        let (mut order, mut base) = (self.order, Base::Decimal);
        self.expect("{")?;
        while !self.accept("}")? {
            let key = self.word()?;
            self.expect("=")?;
            match key {
                "size" => bits = Some(self.number()?),
                "align" => align = Some(self.number()?),
                "signed" => signed = self.truth()?,
                "byte_order" => order = self.byte_order()?,
                "encoding" => text = self.encoding()?,
                "base" => base = self.base()?,
                "map" => clock = Some(self.clock_name()?),
                _ => {
                    self.next()?;
                }
            }
            self.expect(";")?;
        }
        let bits = match bits.map(|bits| (bits, u32::try_from(bits))) {
            Some((_, Ok(bits @ 1..=64))) => bits,
            Some((bits, _)) => {
                return self.fault(format!("an integer of {bits} bits: 1 to 64 are supported"));
            }
            None => return self.fault("an integer without `size`"),
        };
        let align = self.alignment(align, bits)?;
        let (slot, node, mappings) = (NO_SLOT, 0, None);
        Ok(IntegerClass { bits, align, signed, order, base, text, clock, slot, node, mappings })
    }

    fn encoding(&mut self) -> ParseResult<bool> {
        Ok(match self.next()? {
            Token::Word(word) => !word.eq_ignore_ascii_case("none"),
            Token::Text(text) => !text.eq_ignore_ascii_case("none"),
            other => return self.fault(format!("expected an encoding, found {}", other.shown())),
        })
    }

    fn base(&mut self) -> ParseResult<Base> {
        Ok(match self.next()? {
            Token::Number(2) | Token::Word("binary" | "b") => Base::Binary,
            Token::Number(8) | Token::Word("octal" | "oct" | "o") => Base::Octal,
            Token::Number(10) | Token::Word("decimal" | "dec" | "d" | "i" | "u") => Base::Decimal,
            Token::Number(16) | Token::Word("hexadecimal" | "hex" | "x" | "X" | "p") => Base::Hexadecimal,
            other => return self.fault(format!("`{}` is not a base of numbers", other.shown())),
        })
    }

    /// `clock.NAME.value`
    fn clock_name(&mut self) -> ParseResult<Arc<str>> {
        let path = self.path()?;
        let name = path.strip_prefix("clock.").unwrap_or(&path);
        Ok(name.strip_suffix(".value").unwrap_or(name).into())
    }

    fn alignment(&self, align: Option<u64>, bits: u32) -> ParseResult<u32> {
        match align.map(|align| (align, u32::try_from(align))) {
            None if bits % 8 == 0 => Ok(8),
            None => Ok(1),
            Some((_, Ok(align))) if align.is_power_of_two() && align <= 4096 => Ok(align),
            Some((align, _)) => {
                self.fault(format!("an alignment of {align}: powers of two up to 4096 are supported"))
            }
        }
    }

    fn truth(&mut self) -> ParseResult<bool> {
        match self.next()? {
            Token::Number(number) => Ok(number != 0),
            Token::Word(word) => Ok(word.eq_ignore_ascii_case("true")),
            other => self.fault(format!("expected true or false, found {}", other.shown())),
        }
    }

    pub(super) fn byte_order(&mut self) -> ParseResult<ByteOrder> {
        match self.word()? {
            "le" => Ok(ByteOrder::Little),
            "be" | "network" => Ok(ByteOrder::Big),
            "native" => Ok(self.order),
            other => self.fault(format!("unknown byte order `{other}`")),
        }
    }

    /// A dotted name.
    pub(super) fn path(&mut self) -> ParseResult<String> {
        let mut path = self.word()?.to_owned();
        while self.accept(".")? {
            path.push('.');
            path.push_str(self.word()?);
        }
        Ok(path)
    }

    fn float(&mut self) -> ParseResult<FieldClass> {
        let (mut exponent, mut mantissa, mut align) = (0_u64, 0, None);
        let mut order = self.order;
        self.expect("{")?;
        while !self.accept("}")? {
            let key = self.word()?;
            self.expect("=")?;
            match key {
                "exp_dig" => exponent = self.number()?,
                "mant_dig" => mantissa = self.number()?,
                "align" => align = Some(self.number()?),
                "byte_order" => order = self.byte_order()?,
                _ => {
                    self.next()?;
                }
            }
            self.expect(";")?;
        }
        let bits = match exponent.saturating_add(mantissa) {
            32 => 32,
            64 => 64,
            bits => return self.fault(format!("a floating point number of {bits} bits")),
        };
        Ok(FieldClass::Float { bits, align: self.alignment(align, bits)?, order })
    }

    fn string(&mut self) -> ParseResult<FieldClass> {
        if self.accept("{")? {
            while !self.accept("}")? {
                self.next_inside("a string's attributes")?;
            }
        }
        Ok(FieldClass::Text)
    }

    /// The next token, which must not be the end.
    pub(super) fn next_inside(&mut self, what: &str) -> ParseResult<Token<'t>> {
        match self.next()? {
            Token::End => self.fault(format!("the text ends within {what}")),
            token => Ok(token),
        }
    }

    /// `[NAME] [: TYPE] { LABEL [= VALUE [... VALUE]], ... }`, or `NAME` of one declared before.
    fn enumeration(&mut self) -> ParseResult<FieldClass> {
        let name = self.optional_name()?;
        let container = if self.accept(":")? { Some(self.field_class()?) } else { None };
        if !self.accept("{")? {
            return self.declared("enum", name);
        }
        let container = container.or_else(|| self.aliases.get("int").cloned());
        let Some(FieldClass::Integer(mut class)) = container else {
            return self.fault("an enumeration needs an integer type after `:`");
        };
        class.mappings = Some(Arc::new(Mappings::new(self.mappings()?)));
        self.declare("enum", name, FieldClass::Integer(class))
    }

    fn mappings(&mut self) -> ParseResult<Vec<Mapping>> {
        let mut mappings = Vec::new();
        let mut following = 0;
        while !self.accept("}")? {
            let label = match self.next()? {
                Token::Word(label) => label.to_owned(),
                Token::Text(label) => label.into_owned(),
                other => return self.fault(format!("expected a label, found {}", other.shown())),
            };
            let first = if self.accept("=")? { self.signed_number()? } else { following };
            let last = if self.accept("...")? { self.signed_number()? } else { first };
            following = last + 1;
            mappings.push(Mapping { label, first, last });
            self.accept(",")?;
        }
        Ok(mappings)
    }

    fn signed_number(&mut self) -> ParseResult<i128> {
        let negative = self.accept("-")?;
        let number = i128::from(self.number()?);
        Ok(if negative { -number } else { number })
    }

    fn optional_name(&mut self) -> ParseResult<Option<&'t str>> {
        match *self.peek()? {
            Token::Word(name) => {
                self.peeked = None;
                Ok(Some(name))
            }
            _ => Ok(None),
        }
    }

    fn declared(&mut self, kind: &str, name: Option<&str>) -> ParseResult<FieldClass> {
        let name = format!("{kind} {}", name.unwrap_or_default());
        match self.known(&name)? {
            Some(class) => Ok(class),
            None => self.fault(format!("`{name}` has not been declared")),
        }
    }

    fn declare(&mut self, kind: &str, name: Option<&str>, class: FieldClass) -> ParseResult<FieldClass> {
        if let Some(name) = name {
            self.copied(class.nodes())?;
            self.name_class(format!("{kind} {name}"), class.clone());
        }
        Ok(class)
    }

    /// `[NAME] { FIELDS } [align(N)]`, or `NAME` of one declared before.
    fn structure(&mut self) -> ParseResult<FieldClass> {
        let name = self.optional_name()?;
        if !self.accept("{")? {
            return self.declared("struct", name);
        }
        let mark = self.enter();
        let mut fields = Vec::new();
        while !self.accept("}")? {
            self.members(&mut fields)?;
        }
        self.leave(mark);
        let mut align = 1;
        if matches!(self.peek()?, Token::Word("align")) {
            self.next()?;
            self.expect("(")?;
            let number = self.number()?;
            align = self.alignment(Some(number), 8)?;
            self.expect(")")?;
        }
        let align = fields.iter().map(|(_, class)| class.align()).max().unwrap_or(1).max(align);
        self.declare("struct", name, FieldClass::Struct(StructClass { fields, align }))
    }

    /// One line of a struct or variant: a declaration, or `TYPE NAME, NAME[4] ;`.
    fn members(&mut self, members: &mut Vec<(String, FieldClass)>) -> ParseResult<()> {
        let word = self.word()?;
        match word {
            "typealias" => return self.typealias(),
            "typedef" => return self.typedef(),
            _ => {}
        }
        let class = self.field_class_from(word)?;
        if self.accept(";")? {
            return Ok(()); // Only declares a type.
        }
        let mut classes = 0;
        loop {
            let name = self.word()?.to_owned();
            self.copied(classes)?;
            classes = class.nodes();
            let class = self.dimensions(class.clone())?;
            members.push((name, class));
            if members.len() > MAX_NODES {
                return self.fault(format!("a struct has more than {MAX_NODES} fields"));
            }
            if !self.accept(",")? {
                return self.expect(";");
            }
        }
    }

    /// `[8]` or `[length_field]` after a field's name, any number of times; the last one is the innermost.
    fn dimensions(&mut self, element: FieldClass) -> ParseResult<FieldClass> {
        if !self.accept("[")? {
            return Ok(element);
        }
        if self.depth >= MAX_DEPTH {
            return self.fault("an array of too many dimensions");
        }
        let fixed = match *self.peek()? {
            Token::Number(length) => {
                self.peeked = None;
                Ok(length)
            }
            _ => Err(self.path()?),
        };
        self.expect("]")?;
        self.depth += 1;
        let element = Box::new(self.dimensions(element)?);
        self.depth -= 1;
        Ok(match fixed {
            Ok(length) => FieldClass::Array { element, length },
            Err(path) => FieldClass::Sequence { element, length: Reference::new(path) },
        })
    }

    /// `[NAME] [< TAG >] { OPTIONS }`, or `NAME [< TAG >]` of one declared before.
    fn variant(&mut self) -> ParseResult<FieldClass> {
        let name = self.optional_name()?;
        let mut tag = self.tag()?;
        if self.accept("{")? {
            let mark = self.enter();
            let mut options = Vec::new();
            while !self.accept("}")? {
                self.members(&mut options)?;
            }
            self.leave(mark);
            let class = VariantClass { tag, options, choices: Vec::new() };
            return self.declare("variant", name, FieldClass::Variant(class));
        }
        let FieldClass::Variant(mut class) = self.declared("variant", name)? else {
            return self.fault("this is not a variant");
        };
        class.tag = tag.take().or(class.tag);
        Ok(FieldClass::Variant(class))
    }

    fn tag(&mut self) -> ParseResult<Option<Reference>> {
        if !self.accept("<")? {
            return Ok(None);
        }
        let path = self.path()?;
        self.expect(">")?;
        Ok(Some(Reference::new(path)))
    }
}
