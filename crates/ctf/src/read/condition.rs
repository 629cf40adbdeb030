// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions on fields: `prev_tid == 42 && (next_comm =~ "kworker*" || prio < 0)`.
//!
//! A small recursive parser, since users type short texts; its depth is limited nevertheless.

use super::pattern::Pattern;

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `=~`, with a pattern
    Like,
}

/// A comparison of a field. `F` represents the field.
#[derive(Clone, Debug, PartialEq)]
pub struct Test<F = String> {
    /// The fields; the comparison has to hold for one of them.
    pub(crate) fields: Vec<F>,
    pub(crate) comparison: Comparison,
    text: Vec<u8>,
    number: Option<i128>,
    float: Option<f64>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition<F = String> {
    /// A comparison.
    Test(Test<F>),
    /// Both.
    And(Box<Condition<F>>, Box<Condition<F>>),
    /// One or both.
    Or(Box<Condition<F>>, Box<Condition<F>>),
    /// Not.
    Not(Box<Condition<F>>),
}

/// Parentheses and negations in each other.
const MAX_DEPTH: u32 = 100;

impl Condition {
    /// Parses a user's condition.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let mut parser = Parser { rest: text, depth: 0 };
        let condition = parser.either()?;
        match parser.rest.trim_start() {
            "" => Ok(condition),
            rest => Err(format!("'{rest}' is left over; join comparisons with && or ||")),
        }
    }

    /// The condition that the comparison holds for one of these fields.
    #[must_use]
    pub fn any_of(fields: &[&str], comparison: Comparison, value: &str) -> Condition {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Condition::Test(Test::new(fields, comparison, value))
    }
}

impl<F> Condition<F> {
    pub(crate) fn map<G>(&self, places: &mut dyn FnMut(&F) -> Vec<G>) -> Condition<G> {
        let mut boxed = |condition: &Condition<F>| Box::new(condition.map(places));
        match self {
            Condition::And(one, other) => Condition::And(boxed(one), boxed(other)),
            Condition::Or(one, other) => Condition::Or(boxed(one), boxed(other)),
            Condition::Not(one) => Condition::Not(boxed(one)),
            Condition::Test(Test { fields, comparison, text, number, float }) => Condition::Test(Test {
                fields: fields.iter().flat_map(places).collect(),
                comparison: *comparison,
                text: text.clone(),
                number: *number,
                float: *float,
            }),
        }
    }

    pub(crate) fn holds(&self, test: &mut dyn FnMut(&Test<F>) -> bool) -> bool {
        match self {
            Condition::And(one, other) => one.holds(test) && other.holds(test),
            Condition::Or(one, other) => one.holds(test) || other.holds(test),
            Condition::Not(one) => !one.holds(test),
            Condition::Test(comparison) => test(comparison),
        }
    }
}

impl<F> Test<F> {
    fn new(fields: Vec<F>, comparison: Comparison, value: &str) -> Test<F> {
        let digits = value.strip_prefix('-').unwrap_or(value);
        let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let number = match hexadecimal {
            Some(digits) => i128::from_str_radix(digits, 16).ok(),
            None => digits.parse::<i128>().ok().filter(|_| !digits.starts_with(['+', '-'])),
        };
        let number = if digits.len() < value.len() { number.map(|number| -number) } else { number };
        Test { fields, comparison, text: value.as_bytes().to_vec(), number, float: value.parse().ok() }
    }

    pub(crate) fn is_number(&self) -> bool {
        self.number.is_some() || self.float.is_some()
    }

    fn order_holds(&self, order: Option<std::cmp::Ordering>) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match self.comparison {
            Comparison::Equal | Comparison::Like => order == Some(Equal),
            Comparison::Unequal => order != Some(Equal),
            Comparison::Less => order == Some(Less),
            Comparison::AtMost => matches!(order, Some(Less | Equal)),
            Comparison::Greater => order == Some(Greater),
            Comparison::AtLeast => matches!(order, Some(Greater | Equal)),
        }
    }

    pub(crate) fn number_holds(&self, number: i128) -> bool {
        match (self.number, self.float) {
            (Some(wanted), _) => self.order_holds(Some(number.cmp(&wanted))),
            (None, Some(wanted)) => self.order_holds((number as f64).partial_cmp(&wanted)),
            (None, None) => false,
        }
    }

    pub(crate) fn float_holds(&self, number: f64) -> bool {
        let wanted = self.float.or(self.number.map(|number| number as f64));
        wanted.is_some_and(|wanted| self.order_holds(number.partial_cmp(&wanted)))
    }

    pub(crate) fn text_holds(&self, text: &[u8]) -> bool {
        match self.comparison {
            Comparison::Like => self.label_matches(text),
            _ => self.order_holds(Some(text.cmp(self.text.as_slice()))),
        }
    }

    pub(crate) fn label_matches(&self, text: &[u8]) -> bool {
        match self.comparison {
            Comparison::Like => Pattern::new(&String::from_utf8_lossy(&self.text)).matches(text),
            _ => text == self.text.as_slice(),
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
    depth: u32,
}

impl Parser<'_> {
    fn accept(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(sign) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn either(&mut self) -> Result<Condition, String> {
        let mut condition = self.both()?;
        while self.accept("||") {
            condition = Condition::Or(Box::new(condition), Box::new(self.both()?));
        }
        Ok(condition)
    }

    fn both(&mut self) -> Result<Condition, String> {
        let mut condition = self.one()?;
        while self.accept("&&") {
            condition = Condition::And(Box::new(condition), Box::new(self.one()?));
        }
        Ok(condition)
    }

    fn one(&mut self) -> Result<Condition, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it is nested too deep".to_owned());
        }
        let condition = if self.accept("!") {
            Condition::Not(Box::new(self.one()?))
        } else if self.accept("(") {
            let condition = self.either()?;
            if !self.accept(")") {
                return Err(match self.rest.trim_start() {
                    "" => "a ')' is missing at the end".to_owned(),
                    rest => format!("a ')' is missing before '{rest}'"),
                });
            }
            condition
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn comparison(&mut self) -> Result<Condition, String> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return Err(format!(
                "expected the name of a field at '{rest}'; write for instance next_tid == 42"
            ));
        }
        self.rest = after;
        let signs = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("=~", Comparison::Like),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = signs.into_iter().find(|(sign, _)| self.accept(sign));
        let Some((_, comparison)) = found else {
            let rest = self.rest.trim_start();
            return Err(format!("after {name} comes one of == != < <= > >= =~, not '{rest}'"));
        };
        let value = self.value()?;
        Ok(Condition::Test(Test::new(vec![name.to_owned()], comparison, &value)))
    }

    fn value(&mut self) -> Result<String, String> {
        let rest = self.rest.trim_start();
        if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let body = rest.get(1..).unwrap_or_default();
            let end = body.find(quote).ok_or_else(|| format!("{rest} has no closing quote"))?;
            let (value, after) = body.split_at(end);
            self.rest = after.get(1..).unwrap_or_default();
            return Ok(value.to_owned());
        }
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, ')' | '&' | '|')).unwrap_or(rest.len());
        let (value, after) = rest.split_at(end);
        if value.is_empty() {
            return Err("a value is missing at the end of a comparison".to_owned());
        }
        self.rest = after;
        Ok(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates with `a` = 5 and `s` = "text".
    fn holds(text: &str) -> bool {
        Condition::parse(text).unwrap().holds(&mut |test| match test.fields[0].as_str() {
            "a" => test.number_holds(5),
            "s" => test.text_holds(b"text"),
            "f" => test.float_holds(0.5),
            _ => false,
        })
    }

    #[test]
    fn conditions() {
        for (text, expected) in [
            ("a == 5", true),
            ("a==0x5", true),
            ("a != 5", false),
            ("a > 4 && a < 6", true),
            ("a >= 5 && a <= 5", true),
            ("a == 4 || a == 5", true),
            ("a == 4 || a == 5 && a == 6", false),
            ("(a == 4 || a == 5) && !(a == 6)", true),
            ("a > -1", true),
            ("a < 5.5", true),
            ("s == text", true),
            ("s == \"text\"", true),
            ("s =~ 't*'", true),
            ("s =~ 'x*'", false),
            ("s != other", true),
            ("f >= 0.5", true),
            ("nothing == 1", false),
            ("!(nothing == 1)", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn faults_are_explained() {
        for (text, word) in [
            ("", "name of a field"),
            ("a", "after a"),
            ("a = 5", "after a"),
            ("a ==", "value is missing"),
            ("a == 1 b", "left over"),
            ("(a == 1", "')' is missing"),
            ("a == \"x", "closing quote"),
            (&"(".repeat(1000), "nested"),
        ] {
            let error = Condition::parse(text).unwrap_err();
            assert!(error.contains(word), "{text:.20}: {error}");
        }
    }
}
