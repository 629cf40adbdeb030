// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Class model → plans.
//!
//! The compiler walks a class once and tracks what is known of the position: fields of fixed size and place are joined to one
//! step, and text between values to one literal.

use super::class::{
    ByteOrder, FieldClass, IntegerClass, Mappings, NO_SLOT, StructClass, VariantClass, shown_name,
};
use super::plan::{
    Case, Count, Field, FieldIndex, Integer, NO_FIELD, NoStyle, Op, Plan, Scope, Shape, Style,
};
use super::run::SHORT_LITERAL;
use rtscope_event::exact;
use std::collections::HashMap;
use std::sync::Arc;

/// Of all fields of a plan. Long names of structs around many fields would take far more than the text; further fields have no name
/// to select by.
const PATH_BYTES_MAX: usize = 256 << 10;

/// A plan for passing over these scopes, one after the other.
pub(crate) fn passing(scopes: &[Option<&StructClass>]) -> Plan {
    let mut compiler = Compiler::new(None);
    for class in scopes.iter().flatten() {
        compiler.structure(class, 0);
    }
    compiler.finish()
}

/// A plan that yields all fields of a scope, including those for readers only.
pub(crate) fn picking(scope: Scope, class: Option<&StructClass>) -> Plan {
    picking_all(&[(scope, class)])
}

/// The same for several scopes, one after the other.
pub(crate) fn picking_all(scopes: &[(Scope, Option<&StructClass>)]) -> Plan {
    let mut compiler = Compiler::new(Some(&NoStyle));
    compiler.everything = true;
    for (scope, class) in scopes.iter().filter_map(|(scope, class)| Some((*scope, (*class)?))) {
        compiler.scope = Some(scope);
        compiler.structure(class, 0);
    }
    compiler.finish()
}

/// A plan for showing these scopes, one after the other. `hidden` selects fields of a scope that are not shown;
/// a scope without any field left is not shown either, unless it had none.
pub(crate) fn showing(
    scopes: &[(Scope, Option<&StructClass>)],
    style: &dyn Style,
    hidden: &dyn Fn(Scope, &str) -> bool,
) -> Plan {
    let mut compiler = Compiler::new(Some(style));
    let mut first = true;
    for (scope, class) in scopes.iter().filter_map(|(scope, class)| Some((*scope, (*class)?))) {
        let shown =
            |(name, class): &(String, FieldClass)| in_sight(class) && !hidden(scope, shown_name(name));
        compiler.scope = Some(scope);
        compiler.hidden = class.fields.iter().map(|field| !shown(field)).collect();
        if class.fields.is_empty() || compiler.hidden.contains(&false) {
            compiler.literal(&style.scope(scope, first));
            compiler.structure(class, 0);
            first = false;
        } else {
            let style = compiler.style.take();
            compiler.structure(class, 0);
            compiler.style = style;
        }
    }
    compiler.finish()
}

/// Fields that only move the clock are not shown, as in babeltrace2.
fn in_sight(class: &FieldClass) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.clock.is_none() || integer.slot != NO_SLOT,
        FieldClass::Struct(class) => {
            class.fields.is_empty() || class.fields.iter().any(|(_, field)| in_sight(field))
        }
        FieldClass::Array { element, .. } | FieldClass::Sequence { element, .. } => in_sight(element),
        FieldClass::Variant(class) => class.options.iter().any(|(_, option)| in_sight(option)),
        FieldClass::Float { .. } | FieldClass::Text => true,
    }
}

struct Compiler<'s> {
    plan: Plan,
    style: Option<&'s dyn Style>,
    scope: Option<Scope>,
    /// Show fields that only move the clock, too.
    everything: bool,
    /// For each field of the scope itself.
    hidden: Vec<bool>,
    path: Vec<String>,
    /// The position is known to be `rest` more than a multiple of `modulus` bits.
    modulus: u64,
    rest: u64,
    pending_literal: String,
    /// Bits of fixed size not yet passed over.
    pending_skip: u64,
    /// Enumerations of the plan so far, by the address of their labels.
    known: HashMap<*const Mappings, u16>,
    /// Bytes that the paths of fields may still take.
    path_bytes_left: usize,
}

impl<'s> Compiler<'s> {
    fn new(style: Option<&'s dyn Style>) -> Compiler<'s> {
        Compiler {
            plan: Plan::default(),
            style,
            scope: None,
            everything: false,
            hidden: Vec::new(),
            path: Vec::new(),
            modulus: 1,
            rest: 0,
            pending_literal: String::new(),
            pending_skip: 0,
            known: HashMap::new(),
            path_bytes_left: PATH_BYTES_MAX,
        }
    }

    fn finish(mut self) -> Plan {
        self.flush();
        if !self.plan.literals.is_empty() {
            // So that each literal can be read as if it had the size of short ones.
            self.plan.literals.extend_from_slice(&[0; SHORT_LITERAL]);
        }
        self.plan
    }

    fn literal(&mut self, text: &str) {
        self.pending_literal.push_str(text);
    }

    fn styled(&mut self, text: impl Fn(&dyn Style) -> String) {
        if let Some(style) = self.style {
            self.pending_literal.push_str(&text(style));
        }
    }

    /// Adds pending operations. Their order does not matter: a literal does not move the position.
    fn flush(&mut self) {
        if self.pending_skip > 0 {
            self.plan.ops.push(Op::Skip(std::mem::take(&mut self.pending_skip)));
        }
        if !self.pending_literal.is_empty() {
            let place = exact::count(self.plan.literals.len());
            self.plan.ops.push(Op::Literal(place, exact::count(self.pending_literal.len())));
            self.plan.literals.extend_from_slice(self.pending_literal.as_bytes());
            self.pending_literal.clear();
        }
    }

    fn push(&mut self, op: Op) -> usize {
        self.flush();
        self.plan.ops.push(op);
        self.plan.ops.len() - 1
    }

    fn here(&mut self) -> usize {
        self.flush();
        self.plan.ops.len()
    }

    fn align(&mut self, align: u32) {
        let bits = u64::from(align.max(1));
        if self.modulus % bits == 0 {
            let padding = (bits - self.rest % bits) % bits;
            self.skip(padding);
        } else if bits > 1 {
            self.push(Op::Align(align));
            (self.modulus, self.rest) = (bits, 0);
        }
    }

    /// Passes over a fixed size.
    fn skip(&mut self, bits: u64) {
        self.pending_skip = self.pending_skip.saturating_add(bits);
        self.moved(bits);
    }

    fn moved(&mut self, bits: u64) {
        self.rest = (self.rest + bits % self.modulus) % self.modulus;
    }

    /// From here on the position is only known to be a multiple of this many bits.
    fn lost(&mut self, modulus: u64) {
        (self.modulus, self.rest) = (modulus, 0);
    }

    fn structure(&mut self, class: &StructClass, depth: u32) {
        self.align(class.align);
        self.styled(|style| style.open(Shape::Struct, depth));
        let mut first = true;
        for (place, (name, field)) in class.fields.iter().enumerate() {
            let hide =
                depth == 0 && self.hidden.get(place) == Some(&true) || !(self.everything || in_sight(field));
            let style = self.style;
            if hide {
                self.style = None;
            } else {
                self.styled(|style| style.member(shown_name(name), first, depth));
                first = false;
            }
            self.path.push(shown_name(name).to_owned());
            self.field(field, depth);
            self.path.pop();
            self.style = style;
        }
        self.styled(|style| style.close(Shape::Struct, depth));
    }

    fn name_field(&mut self) -> FieldIndex {
        let (Some(scope), Some(_)) = (self.scope, self.style) else { return NO_FIELD };
        let index = FieldIndex::try_from(self.plan.fields.len()).unwrap_or(NO_FIELD);
        if self.path.iter().any(|part| part == ELEMENT) || index == NO_FIELD {
            return NO_FIELD;
        }
        let bytes: usize = self.path.iter().map(|part| part.len() + 1).sum();
        let Some(left) = self.path_bytes_left.checked_sub(bytes) else { return NO_FIELD };
        self.path_bytes_left = left;
        self.plan.fields.push(Field { scope, path: self.path.join(".") });
        index
    }

    fn field(&mut self, class: &FieldClass, depth: u32) {
        match class {
            FieldClass::Integer(integer) => self.integer(integer),
            FieldClass::Float { bits, align, order } => {
                self.align(*align);
                if self.style.is_none() {
                    return self.skip((*bits).into());
                }
                let field = self.name_field();
                self.push(Op::Float { bits: *bits, order: *order, field });
                self.moved((*bits).into());
            }
            FieldClass::Text => {
                self.align(8);
                let field = self.name_field();
                self.push(if self.style.is_none() { Op::SkipText } else { Op::Text(field) });
                self.lost(8);
            }
            FieldClass::Struct(class) => self.structure(class, depth + 1),
            FieldClass::Array { element, length } => self.elements(element, Count::Fixed(*length), depth + 1),
            FieldClass::Sequence { element, length } => {
                self.elements(element, Count::Noted(length.slot), depth + 1);
            }
            FieldClass::Variant(class) => self.variant(class, depth + 1),
        }
    }

    fn integer(&mut self, class: &IntegerClass) {
        self.align(class.align);
        if self.style.is_none() && class.slot == NO_SLOT && class.clock.is_none() {
            return self.skip(class.bits.into());
        }
        let field = self.name_field();
        let integer = self.integer_of(class, field);
        let whole = self.modulus % 8 == 0 && self.rest % 8 == 0;
        let quick = whole && class.order == ByteOrder::Little && [8, 16, 32, 64].contains(&class.bits);
        self.push(if quick { Op::Bytes(integer) } else { Op::Bits(integer) });
        self.moved(class.bits.into());
    }

    fn integer_of(&mut self, class: &IntegerClass, field: FieldIndex) -> Integer {
        let enumeration = class.mappings.as_ref().map_or(0, |mappings| {
            if self.style.is_none() {
                return 0;
            }
            let enumerations = &mut self.plan.enumerations;
            *self.known.entry(Arc::as_ptr(mappings)).or_insert_with(|| {
                enumerations.push(Arc::clone(mappings));
                u16::try_from(enumerations.len()).unwrap_or(0)
            })
        });
        Integer {
            // The parser allows 1 to 64.
            bits: u8::try_from(class.bits).unwrap_or(64),
            signed: class.signed,
            base: class.base,
            field,
            enumeration,
            order: class.order,
            shown: self.style.is_some(),
            clock: class.clock.is_some(),
            slot: class.slot,
        }
    }

    fn elements(&mut self, element: &FieldClass, count: Count, depth: u32) {
        self.align(element.align());
        if let FieldClass::Integer(integer) = element {
            if integer.is_byte() && integer.slot == NO_SLOT {
                return self.byte_elements(integer, count, depth);
            }
        }
        if self.style.is_none() {
            if let Some(bits) = fixed_size(element) {
                self.push(Op::SkipElements { count, bits });
                return self.lost(if bits % 8 == 0 && element.align() >= 8 { 8 } else { 1 });
            }
        }
        self.styled(|style| style.open(Shape::Array, depth));
        let at = self.push(Op::Loop { count, body: 0 });
        // An element begins where the one before it ended.
        self.lost(1);
        self.path.push(ELEMENT.to_owned());
        self.field(element, depth);
        self.path.pop();
        let end = self.here();
        if let Some(Op::Loop { body, .. }) = self.plan.ops.get_mut(at) {
            *body = exact::count(end - at - 1);
        }
        self.lost(1);
        self.styled(|style| style.close(Shape::Array, depth));
    }

    fn byte_elements(&mut self, class: &IntegerClass, count: Count, depth: u32) {
        if class.text || self.style.is_none() {
            let field = self.name_field();
            match (count, self.style) {
                (Count::Fixed(count), None) if count < 1 << 32 => return self.skip(count * 8),
                (count, None) => self.push(Op::SkipElements { count, bits: 8 }),
                (count, Some(_)) => self.push(Op::Characters { count, field }),
            };
        } else {
            self.styled(|style| style.open(Shape::Array, depth));
            let field = self.name_field();
            let element = self.integer_of(class, field);
            self.push(Op::Array { count, element });
            self.styled(|style| style.close(Shape::Array, depth));
        }
        match count {
            Count::Fixed(count) => self.moved(count.saturating_mul(8)),
            Count::Noted(_) => self.lost(8),
        }
    }

    fn variant(&mut self, class: &VariantClass, depth: u32) {
        let tag = class.tag.as_ref().map_or(NO_SLOT, |tag| tag.slot);
        self.styled(|style| style.open(Shape::Variant, depth));
        let table = self.plan.tables.len();
        self.plan.tables.push(Vec::new());
        self.push(Op::Choose { tag, table: exact::count(table) });
        let (modulus, rest) = (self.modulus, self.rest);
        let mut places = Vec::new();
        let mut jumps = Vec::new();
        for (name, option) in &class.options {
            (self.modulus, self.rest) = (modulus, rest);
            places.push(self.here());
            self.path.push(shown_name(name).to_owned());
            self.field(option, depth);
            self.path.pop();
            jumps.push(self.push(Op::Jump(0)));
        }
        let end = self.here();
        for jump in jumps {
            if let Some(op) = self.plan.ops.get_mut(jump) {
                *op = Op::Jump(exact::count(end - jump));
            }
        }
        let cases = class.choices.iter().filter_map(|choice| {
            let place = exact::count(*places.get(choice.option)?);
            Some(Case { first: choice.first, last: choice.last, place })
        });
        let cases = cases.collect();
        if let Some(table) = self.plan.tables.get_mut(table) {
            *table = cases;
        }
        self.lost(1);
        self.styled(|style| style.close(Shape::Variant, depth));
    }
}

/// Stands in paths for repeated elements, which have no names.
const ELEMENT: &str = "[]";

/// The size of an element, if it is the same for all, aligns the next one, and nothing in it matters.
fn fixed_size(class: &FieldClass) -> Option<u64> {
    let mut bits = 0;
    add_fixed(class, &mut bits)?;
    (bits > 0 && bits % u64::from(class.align().max(1)) == 0).then_some(bits)
}

/// Passes over a class that begins `at` bits behind a multiple of any alignment.
fn add_fixed(class: &FieldClass, at: &mut u64) -> Option<()> {
    match class {
        FieldClass::Integer(integer) if integer.slot == NO_SLOT && integer.clock.is_none() => {
            *at =
                at.checked_next_multiple_of(integer.align.max(1).into())?.checked_add(integer.bits.into())?;
        }
        FieldClass::Float { bits, align, .. } => {
            *at = at.checked_next_multiple_of((*align).max(1).into())?.checked_add((*bits).into())?;
        }
        FieldClass::Struct(class) => {
            *at = at.checked_next_multiple_of(class.align.max(1).into())?;
            class.fields.iter().try_for_each(|(_, field)| add_fixed(field, at))?;
        }
        FieldClass::Array { element, length } if *length < 1 << 32 => match &**element {
            FieldClass::Integer(integer) if integer.is_byte() && integer.slot == NO_SLOT => {
                *at = at.checked_next_multiple_of(8)?.checked_add(length * 8)?;
            }
            _ => return None,
        },
        _ => return None,
    }
    Some(())
}
